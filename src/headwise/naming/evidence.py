"""Causal evidence for the name of one subject of a model: texts are changed and passed through it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from headwise.naming.activation import Activations, LayerReads
from headwise.naming.causal import ChangeTest, Score, broken, made_true, removed
from headwise.naming.cells import Cells
from headwise.naming.rules import Rule
from headwise.naming.signals import Subject
from headwise.naming.texts import Texts

if TYPE_CHECKING:
    from headwise.bases.basis import Bases
    from headwise.contrast.bank import BankFeature
    from headwise.model.model import Model
    from headwise.types import Head

BATCH = 16
"""Texts that pass through the model together."""
Features = Mapping[tuple["Head", str], "BankFeature"]


def evidence(
    model: Model,
    subject: Subject,
    rule: Rule,
    texts: Texts,
    positives: Cells,
    negatives: Cells,
    threshold: float,
    *,
    bases: Bases | None = None,
    features: Features | None = None,
    seed: int = 0,
) -> tuple[ChangeTest, ...]:
    """Break, make and, for what is only part of a head, remove: on cells of the test half, each of its own text.

    ``positives`` are cells where the subject acts, ``negatives`` cells where it does not; from the score ``threshold``
    on it acts.
    """
    score = score_of(model, subject, bases=bases, features=features)
    found = [
        broken(rule, texts, positives, model.tokenizer, score, seed=seed),
        made_true(rule, texts, negatives, model.tokenizer, score, threshold, seed=seed),
    ]
    if subject.level not in ("head", "sink"):
        both = Cells.joined([positives, negatives])
        fall = fall_of(model, subject, bases=bases, features=features)(texts, both)
        found.append(removed(rule.holds(texts, both), fall))
    return tuple(found)


def score_of(
    model: Model, subject: Subject, *, bases: Bases | None = None, features: Features | None = None
) -> Score:
    """How strongly a subject acts at any cells of any texts."""
    acts = Activations(model, [subject], bases=bases, features=features)
    return _at_cells(acts, lambda reads: acts.score(0, reads))


def fall_of(
    model: Model, subject: Subject, *, bases: Bases | None = None, features: Features | None = None
) -> Score:
    """How much attention any cells lose when a subject's part leaves the logits of their rows."""
    acts = Activations(model, [subject], bases=bases, features=features)
    return _at_cells(acts, lambda reads: acts.fall(0, reads))


def _at_cells(acts: Activations, values: Callable[[LayerReads], Tensor]) -> Score:
    (layer,) = acts.by_layer

    @torch.no_grad()
    def at(texts: Texts, cells: Cells) -> np.ndarray:
        found = np.zeros(len(cells))
        needed = np.unique(cells.text)
        for start in range(0, len(needed), BATCH):
            some = needed[start : start + BATCH]
            stream = acts.model.split([texts.ids_of(int(text)) for text in some], layers=acts.layers)
            all_cells = values(LayerReads(stream, layer)).double().cpu().numpy()
            here = np.isin(cells.text, some)
            row = np.searchsorted(some, cells.text[here])
            found[here] = all_cells[row, cells.destination[here], cells.source[here]]
        return found

    return at
