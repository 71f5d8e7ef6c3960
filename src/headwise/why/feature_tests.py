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
from headwise.types import Cell, Subspace

SUBSPACES = (100, 1000)
"""Random subspaces against which a named feature is tested, at least and at most."""


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
        drawn = [
            _edited_cell(up, cell, dict(feature_edits(cell, feature, rival, within=Subspace(basis)))[kind])
            for basis in random_subspaces(up.stream.model.d_head, rank, draws, generator=generator)
        ]
        percentile = _percentile(predicted, drawn)
        made.append(FeatureTest(feature.name, kind, predicted, observed, tuple(drawn), percentile))
    return tuple(made)


def feature_edits(
    cell: Cell, feature: BankFeature, rival: int | None, within: Subspace | None = None
) -> list[tuple[str, VectorEdit]]:
    """Remove the feature from the query; swap it between the key and the strongest rival."""
    query, key = within or feature.query, within or feature.key
    made: list[tuple[str, VectorEdit]] = [
        ("ablation", RemoveWithin(head=cell.head, side="query", subspace=query, positions=cell.query))
    ]
    if rival is not None:
        made.append(
            (
                "swap",
                SwapWithin(head=cell.head, first=cell.key, second=rival, subspace=key, seen_by=cell.query),
            )
        )
    return made


def _edited_cell(up: PromptWrites, cell: Cell, edit: VectorEdit) -> float:
    """The cell's attention after an edit of its query or of the keys its row sees, by the algebra alone."""
    q, k = edited_vectors(up, cell, [edit])
    return float(row_of(up, cell, q, k)[cell.key])


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
    layer, here = cell.head.layer, torch.tensor([cell.query], device=up.device)
    return softmax_row((query @ keys.mT) * float(up.scale[layer]), up.visible(layer, here)[0], up.cap)


def _percentile(value: float, controls: Sequence[float]) -> float:
    """Share of controls that left more attention, in percent."""
    return 100.0 * sum(control > value for control in controls) / len(controls)
