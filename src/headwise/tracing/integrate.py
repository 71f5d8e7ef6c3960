"""Integrated gradients of one attention weight, shared by every candidate.

IG_i = ∫₀¹ Σ_t C_it ∂p_s/∂z_t(αz) dα = ⟨C_i, g⟩ with one vector g per firing, so nothing of the size candidates × keys
is ever built (docs/method/tracing.md §3). With a soft-cap the logits are decomposed before the cap, and the cap's
derivative sech² belongs to g.
"""

from __future__ import annotations

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
