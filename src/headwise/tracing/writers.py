"""Whole writers that cause an attention: sets that are 1-minimal, on one side, without any basis.

A whole writer leaves with everything it wrote, so the set needs no channels and is the same in every basis. Two greedy
orders are tried and the smaller set is kept: writers by their part of the log-odds, fixed before the first one leaves,
and writers chosen anew each time, the one whose leaving takes most. Either way every member is needed: put back alone,
the attention reaches the threshold again. *1-minimal* says that and no more; a smaller set may exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from headwise.tracing.causes import Rows, attention, first_below, put_back
from headwise.tracing.table import LogOddsTable
from headwise.types import Component, Side

DIFFUSE = 12
"""A set of more members than this is diffuse: no few writers cause the attention."""
FIRST = 32
"""Writers tried first; four times as many each time until they suffice."""
MOST = 1024
"""Writers tried at most."""
Order = Literal["fixed", "rescored"]


@dataclass(frozen=True, eq=False)
class WriterSet:
    """Whole writers of one side, in the order of their removal."""

    side: Side
    """The side that they wrote into."""
    attention: float
    """Of the cell, untouched."""
    threshold: float
    """What the attention had to fall below."""
    after: float
    """The attention without them, by the algebra; with no members, what it was."""
    members: tuple[Component, ...]
    """The writers; none where no set does."""
    drops: tuple[float, ...]
    """The attention that each removal took; they sum to the whole fall."""
    order: Order
    """Which of the two greedy orders gave it."""

    @property
    def resolved(self) -> bool:
        """False where all writers that help do not take the attention below the threshold."""
        return bool(self.members)

    @property
    def diffuse(self) -> bool:
        return len(self.members) > DIFFUSE

    def __len__(self) -> int:
        return len(self.members)


def writer_set(table: LogOddsTable, side: Side, threshold: float) -> WriterSet:
    """The smaller set of two greedy orders; the fixed order's where they are equal."""
    one = table.side(side)
    nobody = WriterSet(side, table.attention, threshold, table.attention, (), (), "fixed")
    helps = one.rows.masked_fill(~one.possible, 0.0)
    ranked = helps.argsort(descending=True, stable=True)[: min(MOST, int((helps > 0).sum()))]
    if table.keys < 2 or not len(ranked):
        return nobody
    width = FIRST
    while True:
        chosen = ranked[:width]
        rows = rows_to_take(table, one.logits(chosen), threshold)
        found = fewest(rows)
        if found is not None or width >= len(ranked):
            break
        width *= 4
    if found is None:
        return nobody
    return WriterSet(
        side=side,
        attention=table.attention,
        threshold=threshold,
        after=table.attention - sum(found.drops),
        members=tuple(one.writer(int(chosen[i])) for i in found.kept),
        drops=found.drops,
        order=found.order,
    )


class Fewest(NamedTuple):
    """Which of some candidates are taken, in the order of their removal."""

    kept: list[int]
    drops: tuple[float, ...]
    """The attention that each removal took."""
    order: Order


def fewest(rows: Rows) -> Fewest | None:
    """The smaller 1-minimal set of two greedy orders, the given one's where they are equal; None where all candidates
    together do not take the attention below the threshold."""
    count = int(first_below(rows)[0])
    if not count:
        return None
    order: Order = "fixed"
    kept = _minimal(rows, list(range(count)))
    again = _rescored(rows, count)
    smaller = kept if again is None else _minimal(rows, again)
    if len(smaller) < len(kept):
        order, kept = "rescored", smaller
    return Fewest(kept, _drops(rows, kept), order)


def headline(sets: Sequence[WriterSet]) -> WriterSet | None:
    """The one set whose removal is the proof: that of the side with fewer members, then of less attention left.

    Both sides are accounts of the same number: a logit is a product of query and key, and either factor takes all of it
    away. Removing both would show no more than removing one, and the smaller set is the one a person can check.
    """
    resolved = [one for one in sets if one.resolved]
    return min(resolved, key=lambda one: (len(one), one.after), default=None)


def next_best(table: LogOddsTable, found: WriterSet) -> tuple[tuple[Component, ...], float]:
    """As many other writers of the side, those of the largest part, and the attention without *them*: redundancy."""
    one = table.side(found.side)
    rows = one.rows.masked_fill(~one.possible, 0.0).clone()
    rows[[one.row_of(member) for member in found.members]] = 0.0
    best = rows.argsort(descending=True, stable=True)[: min(len(found), int((rows > 0).sum()))]
    members = tuple(one.writer(int(i)) for i in best)
    return members, attention_without(table, found.side, members) if members else table.attention


def rows_to_take(table: LogOddsTable, candidates: Tensor, threshold: float) -> Rows:
    """The cell's row of logits and rows [m, T] to take from it."""
    device = table.logits.device
    return Rows(
        logits=table.logits[None],
        visible=table.visible[None],
        key=torch.tensor([table.cell.key], device=device),
        tau=torch.tensor([threshold], dtype=torch.float64, device=device),
        cap=table.query.up.cap,
        candidates=candidates[None],
    )


def _rescored(rows: Rows, most: int) -> list[int] | None:
    """Candidates one after the other, each time the one that leaves least attention; None where ``most`` do not do."""
    left, candidates = rows.logits, rows.candidates
    taken: list[int] = []
    for _ in range(most):
        after = rows.attention_of(left[:, None] - candidates)[0]
        after[taken] = torch.inf
        best = int(after.argmin())
        taken.append(best)
        left = left - candidates[:, best]
        if float(after[best]) < float(rows.tau[0]):
            return taken
    return None


def _minimal(rows: Rows, taken: list[int]) -> list[int]:
    """What of some candidates, in the order of their removal, is needed."""
    cut = Rows(rows.logits, rows.visible, rows.key, rows.tau, rows.cap, rows.candidates[:, taken])
    kept = put_back(cut, torch.ones(1, len(taken), dtype=torch.bool, device=rows.logits.device))[0]
    return [one for one, stays in zip(taken, kept.tolist(), strict=True) if stays]


def _drops(rows: Rows, kept: list[int]) -> tuple[float, ...]:
    left = rows.logits[:, None] - rows.candidates[:, kept].cumsum(1)
    after = rows.attention_of(torch.cat((rows.logits[:, None], left), 1))[0]
    return tuple((after[:-1] - after[1:]).tolist())


def writers_row(table: LogOddsTable, side: Side, members: Sequence[Component]) -> Tensor:
    """The row of attention [T] without some whole writers of one side, by the algebra."""
    one = table.side(side)
    rows = torch.tensor([one.row_of(member) for member in members], device=table.logits.device)
    return attention(table.logits - one.logits(rows).sum(0), table.visible, one.up.cap)


def attention_without(table: LogOddsTable, side: Side, members: Sequence[Component]) -> float:
    """The cell's attention in that row."""
    return float(writers_row(table, side, members)[table.cell.key])
