"""A byte-level tokenizer that cuts rare words into pieces, trained here in a moment, and texts to plant rules in."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from headwise.corpus import Corpus, documentation
from headwise.naming.cells import Cells
from headwise.naming.texts import Texts


@lru_cache(maxsize=1)
def corpus() -> Corpus:
    """One package's documentation: a few hundred paragraphs, read in seconds."""
    return documentation(["networkx"])


@lru_cache(maxsize=1)
def piece_tokenizer() -> Any:
    """Frequent words are one token with the space before them, rare ones several, other scripts bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(corpus().texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made)


@lru_cache(maxsize=2)
def ordinary_texts(texts: int = 400) -> Texts:
    """Texts of the default corpus, 64 tokens each."""
    chosen = corpus().first(texts)
    return Texts.read(piece_tokenizer(), chosen.texts, chosen.kinds, tokens=64)


def all_cells(texts: Texts, chosen: np.ndarray | None = None) -> Cells:
    """Every cell of some texts, the first token left out."""
    parts = []
    for text in range(len(texts)) if chosen is None else chosen.tolist():
        d, s = np.tril_indices(int(texts.lengths[text]))
        kept = s > 0
        parts.append(Cells(np.full(int(kept.sum()), text), d[kept], s[kept]))
    return Cells.joined(parts)


def drawn_cells(texts: Texts, number: int, seed: int, chosen: np.ndarray | None = None) -> Cells:
    """Random cells of random texts, the first token left out."""
    rng = np.random.default_rng(seed)
    known = np.flatnonzero(texts.lengths > 2) if chosen is None else chosen
    text = rng.choice(known, number)
    d = 1 + (rng.random(number) * (texts.lengths[text] - 1)).astype(int)
    return Cells(text, d, 1 + (rng.random(number) * d).astype(int))
