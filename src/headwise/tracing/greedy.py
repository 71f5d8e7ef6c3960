"""The greedy counterfactual search, many firings at a time.

Candidates leave in descending order of attribution until the attention falls below τ. Because the order is fixed
before the search, the search is a cumulative sum of their rows, one softmax, and the first index below τ; then a
backward pass puts back what turns out not to be needed (docs/method/tracing.md §3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.tracing.integrate import attention


@dataclass(frozen=True, eq=False)
class Rows:
    """Some firings' logit rows and the rows of their best candidates.

    f firings, m candidates each in descending attribution, t keys; all in float64.
    """

    logits: Tensor
    """[f, t] before the soft-cap; 0 where not visible."""
    visible: Tensor
    """[f, t]"""
    key: Tensor
    """[f]: the key whose attention is to fall."""
    tau: Tensor
    """[f]"""
    cap: float | None
    candidates: Tensor
    """[f, m, t]"""

    def chosen(self, firings: Tensor, width: int) -> Rows:
        """Some firings, each with its first ``width`` candidates."""
        return Rows(
            self.logits[firings],
            self.visible[firings],
            self.key[firings],
            self.tau[firings],
            self.cap,
            self.candidates[firings, :width],
        )

    def attention_of(self, logits: Tensor) -> Tensor:
        """Attention to each firing's key, from logits [f, n, t]: [f, n]."""
        p = attention(logits, self.visible[:, None], self.cap)
        return p.gather(2, self.key[:, None, None].expand(-1, logits.shape[1], 1))[..., 0]


def first_below(rows: Rows) -> Tensor:
    """How many candidates of each firing must leave until its attention is below τ; 0 where m do not suffice."""
    left = rows.logits[:, None] - rows.candidates.cumsum(1)
    below = rows.attention_of(left) < rows.tau[:, None]
    count = below.to(torch.uint8).argmax(1) + 1
    return torch.where(below.any(1), count, torch.zeros_like(count))


def put_back(rows: Rows, removed: Tensor) -> Tensor:
    """Make removed sets [f, m] (boolean) 1-minimal: no single member can return without the attention reaching τ.

    Of the members that can return, the one of least attribution does, until none can.
    """
    removed = removed.clone()
    last = rows.candidates.shape[1] - 1
    while True:
        left = rows.logits - (rows.candidates * removed[..., None]).sum(1)
        without = rows.attention_of(left[:, None] + rows.candidates)
        can_return = removed & (without < rows.tau[:, None])
        if not bool(can_return.any()):
            return removed
        least = last - can_return.flip(1).to(torch.uint8).argmax(1)
        some = can_return.any(1)
        removed[some, least[some]] = False


def drops(rows: Rows, removed: Tensor) -> Tensor:
    """The attention each removal took [f, m], in the order of removal; they sum to the whole drop."""
    left = rows.logits[:, None] - (rows.candidates * removed[..., None]).cumsum(1)
    after = rows.attention_of(torch.cat((rows.logits[:, None], left), 1))
    return (after[:, :-1] - after[:, 1:]) * removed
