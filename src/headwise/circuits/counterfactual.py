"""Take signals away and look: the attention the algebra predicts, and the attention of the really edited pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.model.edits import AddVectors, Edit
from headwise.tracing.integrate import attention
from headwise.tracing.signals import component_shares, signal_vectors
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Head, Side, Signal

if TYPE_CHECKING:
    from headwise.model.model import Model

Known = dict[tuple[Side, Component], Tensor]
"""Components' shares of one head's query and keys, as far as they were needed."""


@dataclass(frozen=True, eq=False)
class Removal:
    """What is taken from one cell: a vector from its query, vectors [T, d_head] from the keys its row sees."""

    cell: Cell
    query: Tensor | None = None
    key: Tensor | None = None

    def edits(self, prompt: int | None = None, *, factor: float = 1.0) -> list[Edit]:
        """The edits that make it, in prompt ``prompt`` of a batch; ``factor`` −1 adds the signals once more."""
        head, d, _ = self.cell
        made: list[Edit] = []
        if self.query is not None:
            made.append(
                AddVectors(head=head, side="query", positions=d, value=-factor * self.query, prompt=prompt)
            )
        if self.key is not None:
            seen = list(range(d + 1))
            value = -factor * self.key[: d + 1]
            made.append(AddVectors(head=head, positions=seen, value=value, seen_by=d, prompt=prompt))
        return made

    def predicted(self, up: PromptWrites) -> float:
        """The attention that is left, by the algebra alone."""
        return float(self.row(up)[self.cell.key])

    def row(self, up: PromptWrites) -> Tensor:
        """The whole row of attention that is left, by the algebra alone: [T]."""
        layer, index, d = self.cell.head.layer, self.cell.head.index, self.cell.query
        q, k = up.q[layer, index, d].double(), up.k[layer, index // up.group].double()
        q = q if self.query is None else q - self.query
        k = k if self.key is None else k - self.key
        return attention((k @ q) * float(up.scale[layer]), up.visible(layer)[d], up.cap)


def removal(up: PromptWrites, cell: Cell, signals: Iterable[Signal], known: Known | None = None) -> Removal:
    """Remove the given signals, of one side or of both, from a cell of the head that reads them.

    ``known`` remembers what each component has of the head's query and keys, for more removals from this head.
    """
    known = {} if known is None else known
    whole: dict[tuple[Side, Component], Signal] = {}
    for one in signals:
        place = one.side, one.writer
        before = whole.get(place)
        whole[place] = one if before is None else replace(one, channels=before.channels + one.channels)
    vectors: dict[Side, list[Tensor]] = {}
    for place, one in whole.items():
        if place not in known:
            known[place] = component_shares(up, cell.head, *place)
        vectors.setdefault(one.side, []).append(signal_vectors(up, one, cell.query, known[place]))
    total = {side: torch.stack(found).sum(0) for side, found in vectors.items()}
    return Removal(cell, total.get("query"), total.get("key"))


def unused(
    signals: Sequence[Signal], width: int, generator: torch.Generator, *, avoid: Collection[int] = ()
) -> list[Signal]:
    """The control for signals of one side: the same writers, each channel exchanged for one that none of them uses
    (nor ``avoid``)."""
    used = sorted({channel for one in signals for channel in one.channels})
    taken = {*used, *avoid}
    free = [channel for channel in range(width) if channel not in taken] or list(range(width))
    order = torch.randperm(len(free), generator=generator).tolist()
    instead = {channel: free[order[i % len(free)]] for i, channel in enumerate(used)}
    return [replace(one, channels=tuple(instead[channel] for channel in one.channels)) for one in signals]


def edited_attention(
    model: Model, token_ids: Sequence[int], removals: Sequence[Removal], *, batch_size: int = 32
) -> list[float]:
    """The attention each removal leaves, in forward passes that were really edited.

    Removals of one layer share a copy of the prompt where they touch different rows: a row's pattern depends on its
    own query and keys alone. Everything else gets a copy of its own.
    """
    result = [float("nan")] * len(removals)
    by_layer: dict[int, list[int]] = {}
    for i, one in enumerate(removals):
        by_layer.setdefault(one.cell.head.layer, []).append(i)
    for indices in by_layer.values():
        copies: dict[tuple[Head, int], int] = {}
        place: list[tuple[int, int]] = []
        for i in indices:
            row = removals[i].cell[:2]
            copy = copies.get(row, 0)
            copies[row] = copy + 1
            place.append((i, copy))
        n = max(copies.values())
        heads = sorted({removals[i].cell.head for i in indices})
        rows = sorted({removals[i].cell.query for i in indices})
        edits = [edit for i, copy in place for edit in removals[i].edits(copy)]
        got = model.edit(
            [list(token_ids)] * n, edits, heads=heads, queries=rows, logits="none", batch_size=batch_size
        )
        for i, copy in place:
            cell = removals[i].cell
            where = (copy, heads.index(cell.head), rows.index(cell.query), cell.key)
            result[i] = float(got.pattern[where])
    return result
