"""Which candidates cause an attention: integrated gradients give their order, a greedy search the smallest set.

IG_i = ∫₀¹ Σ_t C_it ∂p_s/∂z_t(αz) dα = ⟨C_i, g⟩ with one vector g per firing, so nothing of the size candidates × keys
is ever built. With a soft-cap the logits are decomposed before the cap, and the cap's derivative sech² belongs to g.
Candidates leave in descending order of attribution until the attention falls below τ. Because the order is fixed before
the search, the search is a cumulative sum of their rows, one softmax, and the first index below τ; then a backward pass
puts back what turns out not to be needed (docs/method/tracing.md §3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from headwise.model.attend import soft_cap, visible_softmax

Rule = Literal["gauss", "trapezoid"]


@cache
def nodes(rule: Rule) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights on [0, 1]: Gauss–Legendre with 64 nodes, or the trapezoid rule with 64 intervals.

    >>> [round(float(sum(nodes(rule)[1])), 12) for rule in ("gauss", "trapezoid")]
    [1.0, 1.0]
    """
    if rule == "gauss":
        x, w = np.polynomial.legendre.leggauss(64)
        return tuple((x + 1) / 2), tuple(w / 2)
    w = np.full(65, 1 / 64)
    w[[0, -1]] /= 2
    return tuple(np.linspace(0, 1, 65)), tuple(w)


def default_threshold(attention: float, keys: int) -> float:
    """Below which attention a cause must take a cell: 2.5 / keys or a quarter of it, but at most half of it.

    >>> default_threshold(0.8, 14), default_threshold(0.8, 600), default_threshold(0.1, 14)
    (0.2, 0.2, 0.05)
    """
    return min(max(2.5 / keys, attention / 4), attention / 2)


def attention(logits: Tensor, visible: Tensor, cap: float | None = None) -> Tensor:
    """Attention over visible keys, from logits [..., keys] before the soft-cap."""
    return visible_softmax(soft_cap(logits, cap), visible)


def path_gradient(logits: Tensor, visible: Tensor, key: Tensor, *, cap: float | None, rule: Rule) -> Tensor:
    """g [firings, keys] of attention to ``key`` [firings], for pre-cap ``logits`` [firings, keys].

    ⟨logits, g⟩ is the attention less that of the uniform row (completeness).

    >>> z = torch.tensor([[1.0, 3.0, -2.0]], dtype=torch.float64)
    >>> g = path_gradient(z, torch.ones(1, 3, dtype=torch.bool), torch.tensor([1]), cap=None, rule="gauss")
    >>> abs(float((z * g).sum() - (z.softmax(-1)[0, 1] - 1 / 3))) < 1e-12
    True
    """
    at, weight = (torch.tensor(x, dtype=logits.dtype, device=logits.device) for x in nodes(rule))
    along = logits[:, None] * at[:, None]
    p = attention(along, visible[:, None], cap)
    chosen = p.gather(2, key[:, None, None].expand(-1, p.shape[1], 1))
    weighted = chosen * weight[:, None]
    slope = -weighted * p
    slope.scatter_add_(2, key[:, None, None].expand(-1, p.shape[1], 1), weighted)
    if cap is not None:
        slope = slope / torch.cosh(along / cap).square()
    return slope.sum(1)


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
