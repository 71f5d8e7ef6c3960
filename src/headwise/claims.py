"""From draws of a null to claims: p-values, corrected together, and one word for what holds.

A p-value counts the observed among the draws, so it is never 0, and what differs by rounding alone does as much. The
tests of one run are corrected together (Benjamini–Hochberg), and every claim names the group it was corrected in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.types import Claim

LEVEL = Claim.LEVEL
"""The share of false claims among those called supported that is put up with (false discovery rate)."""
_ROUNDING = 1e-9


def p_value(observed: float, drawn: Tensor | Sequence[float]) -> float:
    """One-sided: (1 + draws that are at least as large) / (1 + draws).

    >>> p_value(3.0, [1.0, 2.0, 3.0, 4.0])
    0.6
    """
    values = torch.as_tensor(drawn, dtype=torch.float64)
    if not values.numel():
        raise HeadwiseError("a p-value needs at least one draw of the null")
    margin = _ROUNDING * max(1.0, abs(observed)) if math.isfinite(observed) else 0.0
    return (1 + int((values >= observed - margin).sum())) / (1 + values.numel())


def corrected(p: Sequence[float]) -> list[float]:
    """q-values of tests that are judged together (Benjamini–Hochberg).

    >>> [round(q, 3) for q in corrected([0.01, 0.04, 0.03, 0.8])]
    [0.04, 0.053, 0.053, 0.8]
    >>> corrected([])
    []
    """
    if not len(p):
        return []
    from scipy.stats import false_discovery_control

    return [float(q) for q in false_discovery_control(np.asarray(p, dtype=np.float64))]


def claims(
    p: Sequence[float],
    *,
    null: str,
    draws: int,
    group: str,
    fit: Sequence[bool] | None = None,
    level: float = LEVEL,
) -> list[Claim]:
    """One claim per p-value, all corrected together; ``fit`` says which of them meet what else is asked for.

    >>> [one.supported for one in claims([0.01, 0.02, 0.9], null="signs", draws=99, group="three tests")]
    [True, True, False]
    """
    held = [True] * len(p) if fit is None else list(fit)
    return [
        Claim(null, draws, float(one), q, group, bool(q <= level and also))
        for one, q, also in zip(p, corrected(p), held, strict=True)
    ]


def claim(p: float, *, null: str, draws: int, group: str = "this test alone", fit: bool = True) -> Claim:
    """The claim of a single test, which needs no correction."""
    return Claim.alone(p, null=null, draws=draws, group=group, fit=fit)


def sign_flips(
    values: Tensor, clusters: Tensor, *, draws: int, generator: torch.Generator
) -> tuple[float, int]:
    """Is the mean of values [n] above zero? The sign of whole clusters is flipped; p, and the draws behind it.

    Up to twelve clusters all flips are gone through, so that p is exact: of two equal clusters one flip in four does as
    much, whatever the number of values.

    >>> sign_flips(torch.ones(8), torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), draws=99, generator=torch.Generator())
    (0.25, 4)
    """
    _, which = clusters.unique(return_inverse=True)
    count = int(which.max()) + 1
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, which, values.double())
    if count <= 12:
        signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=torch.float64)] * count).reshape(
            -1, count
        )
        done = signs @ sums
        margin = _ROUNDING * max(1.0, abs(float(sums.sum())))
        return float((done >= sums.sum() - margin).double().mean()), len(signs)
    signs = torch.randint(2, (draws, count), generator=generator).double() * 2 - 1
    return p_value(float(sums.sum()), signs @ sums), draws


ALL_FLIPS = 16
"""Up to so many values every turn of their signs is gone through where many means are asked at once."""
DRAWS = 9999


def flipped(values: Tensor, *, generator: torch.Generator, draws: int = DRAWS) -> tuple[Tensor, int]:
    """Is each mean of values [n, ...] over n clusters above zero? p [...] by sign flips, and the flips behind it.

    >>> p, flips = flipped(torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 0.0]]), generator=torch.Generator())
    >>> p.tolist(), flips
    ([0.125, 0.75], 8)
    """
    n, tests = len(values), values.double().flatten(1)
    exact = n <= ALL_FLIPS
    if exact:
        turns = torch.arange(2**n)[:, None] >> torch.arange(n) & 1
    else:
        turns = torch.randint(2, (draws, n), generator=generator)
    signs = 1.0 - 2.0 * turns.double()
    found = torch.empty(tests.shape[1], dtype=torch.float64)
    for start in range(0, len(found), 64):  # a few at a time: flips × tests may be large
        some = tests[:, start : start + 64]
        real = some.sum(0)
        as_much = (signs @ some >= real - _ROUNDING * real.abs().clamp(min=1.0)).sum(0)
        found[start : start + 64] = as_much / len(signs) if exact else (1 + as_much) / (1 + draws)
    return found.reshape(values.shape[1:]), len(signs)
