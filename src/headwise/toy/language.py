"""A small language of whole words: sentences in which the indirect object must be named, and repeated sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from headwise.randomness import keyed

NAMES = (
    *("anna", "ben", "carla", "david", "emma", "frank", "grace", "henry", "iris", "jack", "kelly", "liam"),
    *("mary", "nora", "oscar", "paul", "quinn", "rosa", "sam", "tina", "uma", "victor", "wendy", "zoe"),
)
PLACES = ["store", "garden", "office", "school", "station", "beach", "library", "market", "museum", "park"]
THINGS = ["book", "drink", "ball", "ring", "letter", "snack", "basket", "kite", "lamp", "cake"]
# {a} and {b} are the two people in the order in which they enter; {s} acts, and the other one is the answer.
WORDINGS = (
    "then {a} and {b} went to the {place} . {s} gave a {thing} to",
    "when {a} and {b} were at the {place} , {s} gave a {thing} to",
    "friends {a} and {b} found a {thing} at the {place} . {s} gave it to",
    "after {a} met {b} at the {place} , {s} handed a {thing} to",
    "while {a} and {b} walked to the {place} , {s} passed the {thing} to",
    "{a} saw {b} near the {place} with a {thing} . then {s} gave it to",
)
SPECIAL = ("<pad>", "<bos>", "<unk>")


def vocabulary() -> list[str]:
    """Every word of the language, special tokens first."""
    fixed = {word for wording in WORDINGS for word in wording.split() if "{" not in word}
    return [*SPECIAL, *sorted(fixed), *NAMES, *PLACES, *THINGS]


@dataclass(frozen=True)
class Sentence:
    """A prompt that ends before the answer."""

    text: str
    answer: str
    wrong: str
    wording: int
    order: str
    """ABBA if the answer entered first, BABA if second."""


def sentences(count: int, seed: int, *labels: object) -> list[Sentence]:
    """``count`` sentences, keyed by seed and labels.

    >>> sentences(1, 0)[0].text.split()[-1]
    'to'
    """
    g = keyed(seed, "sentences", *labels)
    draws = torch.rand(count, 6, generator=g)
    made = []
    for row in draws.tolist():
        wording = int(row[0] * len(WORDINGS))
        first = int(row[1] * len(NAMES))
        second = (first + 1 + int(row[2] * (len(NAMES) - 1))) % len(NAMES)
        a, b = NAMES[first], NAMES[second]
        subject_first = row[3] < 0.5
        s, answer = (a, b) if subject_first else (b, a)
        place, thing = PLACES[int(row[4] * len(PLACES))], THINGS[int(row[5] * len(THINGS))]
        text = WORDINGS[wording].format(a=a, b=b, s=s, place=place, thing=thing)
        made.append(Sentence(text, answer, s, wording, "BABA" if subject_first else "ABBA"))
    return made


def training_batch(count: int, seed: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels [count, L] (−100 where nothing is to be predicted): half sentences, half repetitions."""
    words = {word: i for i, word in enumerate(vocabulary())}
    rows = [
        [1, *(words[w] for w in f"{s.text} {s.answer}".split())]
        for s in sentences(count // 2, seed, "train", step)
    ]
    g = keyed(seed, "repeats", step)
    half = 8
    random = torch.randint(len(SPECIAL), len(words), (count - count // 2, half), generator=g)
    rows += [[1, *row, *row] for row in random.tolist()]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return ids, ids.masked_fill(ids == 0, -100)


def tokenizer() -> Any:
    """A word-level tokenizer that puts <bos> before every text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {word: i for i, word in enumerate(vocabulary())}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    raw.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])  # type: ignore[assignment]
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<bos>", eos_token="<bos>", unk_token="<unk>"
    )
