"""The number that an explanation splits: the log-odds of one key against all others, and its gradient along a path.

A head at a query gives the key s the attention A = softmax(z)_s. The log-odds log(A / (1 − A)) = z_s − log Σ e^{z_t},
the sum over the rivals t ≠ s, count from where the row knows nothing: at z = 0 they are −log(n − 1), n visible keys.
Integrated gradients from there give every key a weight g_t, and with r = softmax over the rivals (docs/method/why.md)

    g = ∫₀¹ (e_s − r(αz)) dα          Σ_t g_t z_t = log(A / (1 − A)) + log(n − 1)

so whatever splits the logits linearly splits the log-odds. Under a soft-cap z is taken before the cap, and the cap's
derivative sech²(αz_t/cap) belongs to g. Where a row sees one key alone, there is nothing to explain: g and total are 0.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from headwise.model.attend import soft_cap

NODES = 32
"""Gauss–Legendre nodes of each panel."""
CALM = 4.0
"""Logits that reach no further change so little that one panel is enough for them."""


def log_odds(logits: Tensor, visible: Tensor, key: Tensor, *, cap: float | None = None) -> Tensor:
    """log(A / (1 − A)) + log(n − 1) of ``key`` [f] in rows of pre-cap ``logits`` [f, keys]: [f].

    From logits, so that it stays exact where A is 1 or 0 to every digit.

    >>> z = torch.tensor([[800.0, 0.0, 0.0]], dtype=torch.float64)
    >>> float(log_odds(z, torch.ones(1, 3, dtype=torch.bool), torch.tensor([0])))
    800.0
    """
    rivals = _rivals(visible, key)
    z = soft_cap(logits, cap)
    number = rivals.sum(-1)
    own = z.gather(-1, key[:, None])[:, 0]
    # Where there are no rivals the sum is empty; the visible key takes its place, and the result is not used.
    against = z.masked_fill(~torch.where(number[:, None] > 0, rivals, visible), float("-inf")).logsumexp(-1)
    total = own - against + number.clamp(min=1).to(z.dtype).log()
    return torch.where(number > 0, total, torch.zeros_like(total))


def log_odds_gradient(logits: Tensor, visible: Tensor, key: Tensor, *, cap: float | None = None) -> Tensor:
    """g [f, keys] of :func:`log_odds`, for pre-cap ``logits`` [f, keys]; 0 at keys that a row does not see.

    >>> z = torch.tensor([[1.0, 3.0, -2.0]], dtype=torch.float64)
    >>> seen, key = torch.ones(1, 3, dtype=torch.bool), torch.tensor([1])
    >>> g = log_odds_gradient(z, seen, key)
    >>> abs(float((g * z).sum() - log_odds(z, seen, key)[0])) < 1e-12
    True
    """
    rivals = _rivals(visible, key)
    seen = logits.masked_fill(~visible, 0.0)
    reach = 2 * float(seen.abs().amax())
    at, weight = (torch.tensor(x, dtype=logits.dtype, device=logits.device) for x in panels(_halvings(reach)))
    along = seen[:, None] * at[:, None]  # [f, nodes, keys]
    against = torch.softmax(soft_cap(along, cap).masked_fill(~rivals[:, None], float("-inf")), -1)
    slope = -against.nan_to_num(0.0)  # a row without rivals
    slope.scatter_(2, key[:, None, None].expand(-1, len(at), 1), 1.0)
    if cap is not None:
        slope = slope / torch.cosh(along / cap).square()
    return (slope * weight[:, None]).sum(1) * rivals.any(-1, keepdim=True)


@cache
def panels(halvings: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and weights on [0, 1]: Gauss–Legendre on panels that halve towards 0.

    r(αz) changes where α is about one over a difference of logits, so large logits change it near 0; panels that halve
    see every scale alike, and the error falls geometrically with the nodes whatever the logits are.

    >>> round(sum(panels(0)[1]), 12), round(sum(panels(6)[1]), 12)
    (1.0, 1.0)
    """
    x, w = np.polynomial.legendre.leggauss(NODES)
    edges = [0.0, *(2.0**-k for k in range(halvings, -1, -1))]
    nodes, weights = [], []
    for low, high in pairwise(edges):
        nodes += (low + (high - low) * (x + 1) / 2).tolist()
        weights += ((high - low) * w / 2).tolist()
    return tuple(nodes), tuple(weights)


def _halvings(reach: float) -> int:
    """How often panels halve, until differences of logits are calm on the first one."""
    return int(np.ceil(np.log2(max(reach, CALM) / CALM)))


def _rivals(visible: Tensor, key: Tensor) -> Tensor:
    """[f, keys]: visible keys other than the one asked about."""
    return visible & ~torch.nn.functional.one_hot(key, visible.shape[-1]).bool()
