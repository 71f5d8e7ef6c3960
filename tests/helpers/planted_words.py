"""A model with a head that really attends by a rule, put there in its weights, and texts to find the rule in."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from words import tokenizer_with

from headwise.corpus import Corpus
from headwise.model.model import Model
from headwise.randomness import keyed
from headwise.tasks.labelled.words import CATEGORIES

ANIMALS = (*CATEGORIES["animals"], *CATEGORIES["birds"])
PLACES = (*CATEGORIES["countries"], *CATEGORIES["cities"])
NAMES = (*CATEGORIES["men"], *CATEGORIES["women"])
OTHERS = (*CATEGORIES["fruits"], *CATEGORIES["tools"], *CATEGORIES["clothes"], *CATEGORIES["drinks"])
VOCABULARY = Path(__file__).with_suffix(".txt")
WIDTH, HEAD = 32, 16


@lru_cache(maxsize=2)
def planted_words(*, flipped: bool = False) -> Model:
    """L1H0 attends to animals from everything that is no name, and to places from names: one channel, both its poles.

    Embeddings carry two directions: *kind* (+ animal, − place) and *mood* (− name, + all others). The head's query
    reads mood, its key reads kind, along one axis. ``flipped`` turns the sign of both, which changes nothing.
    """
    # Texts fall into halves by the numbers of their tokens, so the numbers must not change with the tasks' wordings.
    tokenizer = tokenizer_with(VOCABULARY.read_text(encoding="utf-8").split())
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=WIDTH,
        n_layer=2,
        n_head=WIDTH // HEAD,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=None,
    )
    hf = transformers.GPT2LMHeadModel(config)
    generator = keyed(0, "planted words")
    with torch.no_grad():
        for name, parameter in sorted(hf.named_parameters()):
            if "ln_" not in name:
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
        directions = torch.randn(WIDTH, 3, generator=generator)
        directions[:, 0] = 1.0  # the mean, which the norm takes away
        axes = torch.linalg.qr(directions)[0]
        mood, kind = axes[:, 1], axes[:, 2]
        for word, number in tokenizer.get_vocab().items():
            hf.transformer.wte.weight[number] += mood * (-3.0 if word in NAMES else 3.0)
            hf.transformer.wte.weight[number] += kind * (3.0 * (word in ANIMALS) - 3.0 * (word in PLACES))
        listen = torch.zeros(HEAD)
        listen[3] = -1.5 if flipped else 1.5
        block: Any = hf.transformer.h[1]
        attention = block.attn.c_attn.weight
        attention[:, :HEAD] = torch.outer(mood, listen)
        attention[:, WIDTH : WIDTH + HEAD] = torch.outer(kind, listen)
    return Model(hf.eval().requires_grad_(False), tokenizer, name="planted-words")


def worded_corpus(texts: int = 260, length: int = 22) -> Corpus:
    """Random words: some animals, places and names among others."""
    made = []
    for number in range(texts):
        generator = keyed(number, "worded corpus")
        kinds = torch.multinomial(
            torch.tensor([0.1, 0.1, 0.25, 0.55]), length, replacement=True, generator=generator
        )
        some = [(ANIMALS, PLACES, NAMES, OTHERS)[kind] for kind in kinds.tolist()]
        made.append(
            " ".join(words[int(torch.randint(len(words), (1,), generator=generator))] for words in some)
        )
    return Corpus("worded", tuple(made), ("worded",) * texts)
