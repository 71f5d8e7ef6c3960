"""Rows of one head's attention: which of the keys it may choose from a query chose, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from headwise.errors import HeadwiseError

ATTENDED = 0.2
"""Attention from which a cell counts as attended."""


@dataclass(frozen=True, eq=False)
class AttentionRows:
    """n rows of one head, T keys each.

    >>> rows = AttentionRows(
    ...     q=torch.tensor([[1.0, 0.0]]),
    ...     keys=torch.tensor([[[4.0, 0.0], [0.0, 0.0], [9.0, 9.0]]]),
    ...     attention=torch.tensor([[0.5, 0.25, 0.25]]),
    ...     allowed=torch.tensor([[True, True, False]]),
    ...     unit=torch.tensor([0]),
    ... )
    >>> rows.contrast().tolist()                    # 0.5 · 4 − 0.75 · mean(4, 0)
    [[0.5, 0.0]]
    """

    q: Tensor
    """[n, d_head]: queries."""
    keys: Tensor
    """[n, T, d_head]: keys as the row's query sees them."""
    attention: Tensor
    """[n, T]: the head's attention."""
    allowed: Tensor
    """[n, T]: keys that count. The first token and sinks do not: heads rest on them whatever is asked."""
    unit: Tensor
    """[n]: which text a row is of."""

    def __len__(self) -> int:
        return len(self.q)

    def contrast(self, weights: Tensor | None = None) -> Tensor:
        """d_i = Σ A_t k_t − ΣA · mean k over the allowed keys [n, d_head]: what was attended against what could be.

        ``weights`` [n, T] take the place of the attention.
        """
        weights = (self.attention if weights is None else weights) * self.allowed
        count = self.allowed.sum(1, keepdim=True).clamp_min(1)
        weights = weights - weights.sum(1, keepdim=True) / count * self.allowed
        return torch.einsum("nt,ntd->nd", weights.to(self.keys), self.keys)

    def shuffled(self, generator: torch.Generator) -> Tensor:
        """The attention dealt anew among the allowed keys of each row [n, T]: a placebo that keeps its sizes."""
        place = (~self.allowed).to(torch.int8).argsort(dim=1, stable=True)
        drawn = torch.rand(self.allowed.shape, generator=generator) + 2.0 * ~self.allowed
        order = drawn.argsort(dim=1, stable=True)
        return torch.zeros_like(self.attention).scatter(1, place, self.attention.gather(1, order))

    def some_keys(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Allowed keys drawn at random, ``count`` of each row that has as many [m, d_head], and their texts [m]."""
        order = torch.rand(self.allowed.shape, generator=generator).masked_fill(~self.allowed, -1.0)
        drawn = order.topk(min(count, order.shape[1]), 1)
        row, place = (drawn.values >= 0).nonzero().T
        return self.keys[row, drawn.indices[row, place]], self.unit[row]

    def cells(self, least: float = ATTENDED) -> AttendedCells:
        """The allowed cells with at least so much attention."""
        row, key = ((self.attention >= least) & self.allowed).nonzero().T
        return AttendedCells(
            q=self.q[row],
            k=self.keys[row, key],
            attention=self.attention[row, key],
            unit=self.unit[row],
            row=row,
            key=key,
        )

    def chosen(self, rows: Tensor) -> AttentionRows:
        """Some of the rows: a mask or numbers."""
        return AttentionRows(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class AttendedCells:
    """Cells that a head attends to: n queries, each with one key."""

    q: Tensor
    """[n, d_head]"""
    k: Tensor
    """[n, d_head]"""
    attention: Tensor
    """[n]"""
    unit: Tensor
    """[n]: which text a cell is of."""
    row: Tensor
    """[n]: the number of its row."""
    key: Tensor
    """[n]: the number of its key in the row."""

    def __len__(self) -> int:
        return len(self.q)

    @classmethod
    def cat(cls, parts: Sequence[AttendedCells]) -> AttendedCells:
        """Several parts, one after another."""
        if not parts:
            raise HeadwiseError("there are no attended cells to join: give at least one part")
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def chosen(self, cells: Tensor) -> AttendedCells:
        """Some of the cells: a mask or numbers."""
        return AttendedCells(*(getattr(self, field.name)[cells] for field in fields(self)))
