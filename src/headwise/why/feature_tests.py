"""Named features tested: removed from the query, swapped between keys, beside random subspaces of the same rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.circuits.counterfactual import Outcome
from headwise.contrast.bank import BankFeature
from headwise.contrast.subspaces import random_subspaces
from headwise.model.edits import RemoveWithin, SwapWithin, VectorEdit
from headwise.randomness import keyed
from headwise.tracing.causes import attention as softmax_row
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell

SUBSPACES = (100, 1000)
"""Random subspaces against which a named feature is tested, at least and at most."""
CELLS = 2**20
"""Cells of attention that are held at once."""


@dataclass(frozen=True)
class FeatureTest:
    """A named feature, removed from the query or swapped between the key and its strongest rival.

    Controls are random subspaces of the same rank; their attention follows from the same algebra, which ``predicted``
    against ``observed`` shows to be exact.
    """

    name: str
    """The feature's name."""
    kind: str
    """ablation or swap"""
    predicted: float
    """The attention by the algebra."""
    observed: Outcome
    """The model with this edit."""
    controls: tuple[float, ...]
    """The attention with each random subspace instead."""
    percentile: float
    """Percent of them that leave more attention."""


def feature_tests(
    up: PromptWrites,
    cell: Cell,
    tests: Sequence[tuple[BankFeature, str, VectorEdit]],
    seen: Sequence[Outcome],
    rival: int | None,
    draws: int,
    seed: int,
) -> tuple[FeatureTest, ...]:
    made, least, most = [], *SUBSPACES
    draws = max(least, min(draws, most))
    for (feature, kind, edit), observed in zip(tests, seen, strict=False):
        predicted = _edited_cell(up, cell, edit)
        rank = feature.query.rank if kind == "ablation" else feature.key.rank
        generator = keyed(seed, "subspaces", feature.name, kind)
        bases = random_subspaces(up.stream.model.d_head, rank, draws, generator=generator)
        drawn = _edited_within(up, cell, bases, rival if kind == "swap" else None)
        percentile = _percentile(predicted, drawn)
        made.append(FeatureTest(feature.name, kind, predicted, observed, tuple(drawn), percentile))
    return tuple(made)


def feature_edits(cell: Cell, feature: BankFeature, rival: int | None) -> list[tuple[str, VectorEdit]]:
    """Remove the feature from the query; swap it between the key and the strongest rival."""
    removed = RemoveWithin(head=cell.head, side="query", subspace=feature.query, positions=cell.query)
    made: list[tuple[str, VectorEdit]] = [("ablation", removed)]
    if rival is not None:
        swapped = SwapWithin(
            head=cell.head, first=cell.key, second=rival, subspace=feature.key, seen_by=cell.query
        )
        made.append(("swap", swapped))
    return made


def _edited_cell(up: PromptWrites, cell: Cell, edit: VectorEdit) -> float:
    """The cell's attention after an edit of its query or of the keys its row sees, by the algebra alone."""
    q, k = edited_vectors(up, cell, [edit])
    return float(row_of(up, cell, q, k)[cell.key])


def _edited_within(up: PromptWrites, cell: Cell, bases: Tensor, rival: int | None) -> list[float]:
    """The same with each of some subspaces [n, d_head, rank] removed from the query, or swapped with a rival."""
    q, k = edited_vectors(up, cell, [])
    found: list[float] = []
    # Some at a time: a long prompt has long rows.
    for some in bases.to(q).split(max(1, CELLS // len(k))):
        if rival is None:
            rows = row_of(up, cell, q - _inside(some, q), k)
        else:
            moved = _inside(some, k[rival] - k[cell.key]) @ q
            logits = (k @ q).repeat(len(some), 1)
            logits[:, cell.key] += moved
            logits[:, rival] -= moved
            rows = _row(up, cell, logits)
        found += rows[:, cell.key].tolist()
    return found


def _inside(bases: Tensor, vector: Tensor) -> Tensor:
    """The part of a vector [d_head] inside each of some subspaces [n, d_head, rank]: [n, d_head]."""
    return (bases @ (vector @ bases)[..., None])[..., 0]


def edited_vectors(up: PromptWrites, cell: Cell, edits: Iterable[VectorEdit]) -> tuple[Tensor, Tensor]:
    """The cell's query [d_head] and the keys [T, d_head] that its row sees after some edits, in their order."""
    (head, d, _), layer = cell, cell.head.layer
    q: Tensor = up.q[layer, head.index].double()
    k: Tensor = up.k[layer, head.index // up.group].double()
    for edit in edits:
        if edit.side == "query":
            q = edit.apply(q)
        else:
            k = edit.apply(k)
    return q[d], k


def row_of(up: PromptWrites, cell: Cell, query: Tensor, keys: Tensor) -> Tensor:
    """The row of attention [..., T] of some queries [..., d_head] and keys [T, d_head] in the place of a cell's own."""
    return _row(up, cell, query @ keys.mT)


def _row(up: PromptWrites, cell: Cell, products: Tensor) -> Tensor:
    """The same from the products of queries and keys [..., T]."""
    layer, here = cell.head.layer, torch.tensor([cell.query], device=up.device)
    return softmax_row(products * float(up.scale[layer]), up.visible(layer, here)[0], up.cap)


def _percentile(value: float, controls: Sequence[float]) -> float:
    """Share of controls that left more attention, in percent."""
    return 100.0 * sum(control > value for control in controls) / len(controls)
