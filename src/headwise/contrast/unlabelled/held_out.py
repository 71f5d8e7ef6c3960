"""What features do on texts that did not fit them: how much of the attention they explain, carry and move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.contrast.swaps import Edited, SwapRows, swap_keys
from headwise.contrast.unlabelled.attention_rows import AttendedCells, AttentionRows
from headwise.contrast.unlabelled.features import LabelFree
from headwise.model.attend import soft_cap
from headwise.randomness import keyed
from headwise.types import Subspace


def restricted(logits: Tensor, allowed: Tensor) -> Tensor:
    """log-softmax over the allowed keys alone; 0 elsewhere."""
    found = logits.double().masked_fill(~allowed, float("-inf")).log_softmax(-1)
    return found.masked_fill(~allowed, 0.0)


@dataclass(frozen=True, eq=False)
class ExplainedShare:
    """Sums for the share of the choice among allowed keys that some logits explain."""

    missing: float = 0.0
    """Σ mass · KL(attention ‖ softmax of those logits)."""
    total: float = 0.0
    """Σ mass · KL(attention ‖ all keys alike)."""

    @property
    def share(self) -> float:
        """1 where the logits are the head's own, 0 where they say nothing, below 0 where they mislead."""
        return 1 - self.missing / self.total if self.total > 0 else 0.0

    def plus(self, rows: AttentionRows, logits: Tensor) -> ExplainedShare:
        """With the rows of one more text."""
        used = rows.allowed.sum(1) > 1
        allowed, attention = rows.allowed[used], rows.attention[used].double() * rows.allowed[used]
        mass = attention.sum(1, keepdim=True)
        share = attention / mass.clamp_min(1e-30)
        own = torch.where(share > 0, share * share.clamp_min(1e-300).log(), 0.0).sum(1)
        missing = own - (share * restricted(logits[used], allowed)).sum(1)
        flat = own + allowed.sum(1).double().log()
        weight = mass[:, 0]
        return ExplainedShare(self.missing + float(weight @ missing), self.total + float(weight @ flat))


def span_logits(rows: AttentionRows, basis: Tensor, scale: float, cap: float | None = None) -> Tensor:
    """Logits of a head that sees keys inside one subspace alone [n, T]."""
    q, keys = rows.q.double() @ basis, rows.keys.double() @ basis
    return soft_cap(scale * torch.einsum("nr,ntr->nt", q, keys), cap)


@dataclass(frozen=True, eq=False)
class CellParts:
    """Attended cells of held-out texts, and what each feature does in them. n cells, F features."""

    cells: AttendedCells
    contribution: Tensor
    """[F, n]: a feature's part of the logit, less its mean over the row's allowed keys."""
    without: Tensor
    """[F, n]: the attention once that part is gone from the row."""

    @classmethod
    def of(cls, found: LabelFree, rows: AttentionRows, scale: float) -> CellParts:
        """The cells of one text; their row is the query's position."""
        cells = rows.cells()
        by_axis = found.parts(rows.q, rows.keys, scale)
        parts = torch.stack([by_axis[list(group)].sum(0) for group in found.groups])
        allowed = rows.allowed.double()
        mean = (parts * allowed).sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True).clamp_min(1)
        parts = (parts - mean) * allowed
        # Softmax without the part: A e^{−part} over its sum. Keys that do not count keep their logits.
        left = rows.attention.double() * (-parts).exp()
        left = left / left.sum(-1, keepdim=True).clamp_min(1e-300)
        return cls(cells, parts[:, cells.row, cells.key], left[:, cells.row, cells.key])

    @classmethod
    def cat(cls, parts: Sequence[CellParts]) -> CellParts:
        """Several texts."""
        return cls(
            AttendedCells.cat([part.cells for part in parts]),
            torch.cat([part.contribution for part in parts], 1),
            torch.cat([part.without for part in parts], 1),
        )

    def share(self) -> Tensor:
        """[F]: the share of the attention on these cells that goes with each feature."""
        whole = self.cells.attention.double().sum()
        return 1 - self.without.sum(1) / whole


def swap_effects(
    rows: AttentionRows,
    bases: Sequence[Subspace | Tensor],
    scale: float,
    seed: int,
    cap: float | None = None,
) -> tuple[AttendedCells, list[Edited], Edited] | None:
    """Swaps of one text: the strongest cell of each row exchanges subspaces with another allowed key at random.

    ``bases`` are subspaces, or stacks [S, d_head, r] of them; the last result is that of whole keys.
    """
    strongest = (rows.attention * rows.allowed).max(1)
    used = (strongest.values >= 0.2) & (rows.allowed.sum(1) > 1)
    if not bool(used.any()):
        return None
    some, original = rows.chosen(used), strongest.indices[used]
    text = int(some.unit[0])
    order = torch.rand(some.allowed.shape, generator=keyed(seed, "target", text))
    order = order.masked_fill(~some.allowed, -1.0).scatter(1, original[:, None], -1.0)
    target = order.argmax(1)
    seen = SwapRows.from_keys(some.q, some.keys, original, target, scale=scale, cap=cap, mask=_visible(some))
    edits = [swap_keys(seen, one.basis[None] if isinstance(one, Subspace) else one) for one in bases]
    number = torch.arange(len(some))
    cells = AttendedCells(
        some.q,
        some.keys[number, original],
        some.attention[number, original],
        some.unit,
        used.nonzero()[:, 0],
        original,
    )
    return cells, edits, swap_keys(seen, None)


def _visible(rows: AttentionRows) -> Tensor:
    """Keys that a row sees: those that count, and those with any attention."""
    return rows.allowed | (rows.attention > 0)
