"""Evidence from a model: its scores at cells are those of whole passes, and a planted head passes break and make."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from words import word_tokenizer, worded_model

from headwise.naming.activation import Activations, LayerReads
from headwise.naming.cells import Cells
from headwise.naming.evidence import evidence, fall_of, score_of
from headwise.naming.rules import Rule
from headwise.naming.signals import Subject
from headwise.naming.texts import Texts
from headwise.tasks.labelled.words import CATEGORIES

FRUITS, ANIMALS = CATEGORIES["fruits"], CATEGORIES["animals"]


def lines(number: int, seed: int = 0) -> list[str]:
    """Fruits and animals in a random order, twelve words each."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice([*FRUITS[:18], *ANIMALS[:18]], 12, replace=False)) for _ in range(number)]


def test_scores_at_cells_are_those_of_the_whole_pass() -> None:
    model = worded_model()
    texts = Texts.read(word_tokenizer(), [*lines(20), "apple banana"])
    cells = Cells.of([(20, 2, 1), (3, 7, 2), (19, 12, 12), (0, 5, 5), (3, 7, 2)])
    for text in ("L1H0", "L2H1 key MLP0", "L1H1 ch2 ++"):
        subject = Subject.parse(text)
        acts = Activations(model, [subject])
        found = score_of(model, subject)(texts, cells)
        for value, (number, d, s) in zip(found, cells.rows(), strict=True):
            reads = LayerReads(model.split([texts.ids_of(number)]), subject.head.layer)
            assert value == pytest.approx(float(acts.score(0, reads)[0, d, s]), abs=1e-4)


def test_without_all_channels_a_row_is_uniform() -> None:
    model = worded_model()
    texts = Texts.read(word_tokenizer(), lines(3))
    head = Subject.parse("L1H0")
    whole = Subject(head.head, channels=tuple(range(model.d_head)), pole="++")
    cells = Cells.of([(0, 5, 3), (1, 9, 9), (2, 4, 0)])
    before = torch.from_numpy(score_of(model, head)(texts, cells)).sigmoid().numpy()
    after = before - fall_of(model, whole)(texts, cells)
    assert after == pytest.approx(1 / (cells.destination + 1), abs=1e-4)


@pytest.mark.slow
def test_a_model_is_asked_for_evidence() -> None:
    """Random weights: the head's strongest words are found, and changing them is what takes its attention."""
    model = worded_model(7)
    texts = Texts.read(word_tokenizer(), lines(120))
    subject = Subject.parse("L0H2")
    last = np.full(120 * 11, 12)
    cells = Cells(np.repeat(np.arange(120), 11), last, np.tile(np.arange(1, 12), 120))
    scores = score_of(model, subject)(texts, cells)
    acts = scores >= np.quantile(scores, 0.75)
    words = texts.word[texts.sources(cells)]
    best = max(np.unique(words), key=lambda word: acts[words == word].mean())
    rule = Rule.parse([[f"source.token={texts.words[best]}"]])
    holds = rule.holds(texts, cells)
    one_each = lambda some: some[np.unique(some.text, return_index=True)[1]]  # noqa: E731
    found = evidence(
        model,
        subject,
        rule,
        texts,
        one_each(cells[holds]),
        one_each(cells[~holds]),
        float(scores[holds].min()),
    )
    assert [one.kind for one in found] == ["break", "make"]
    assert found[0].n >= 20 and found[0].p < 0.01
    assert found[0].difference and found[0].difference.low > 0
    part = Subject.parse("L0H2 key embedding")
    kinds = [
        one.kind
        for one in evidence(model, part, rule, texts, one_each(cells[holds]), one_each(cells[~holds]), 0.0)
    ]
    assert kinds == ["break", "make", "remove"]
