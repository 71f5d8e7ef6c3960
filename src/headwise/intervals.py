"""Bootstrap intervals over prompts: resample prompts, never the cells of one prompt, which are correlated."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headwise.randomness import keyed
from headwise.types import Estimate

DRAWS = 1000
"""Resamples per interval: each 95 % bound rests on 25 of them."""


def picked(n: int, draws: int, generator: torch.Generator) -> Tensor:
    """Which of ``n`` prompts each resample consists of: indices [draws, n]."""
    return torch.randint(n, (draws, n), generator=generator)


def counted(picks: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """How often each resample holds each prompt [draws, n].

    >>> counted(torch.tensor([[0, 2, 2]])).tolist()
    [[1.0, 0.0, 2.0]]
    """
    return torch.zeros(picks.shape, dtype=dtype).scatter_add_(1, picks, torch.ones(picks.shape, dtype=dtype))


def resampled(n: int, seed: int, *labels: object, draws: int = DRAWS) -> Tensor:
    """How often each of ``n`` prompts is drawn in each resample: counts [draws, n] in float64.

    >>> resampled(5, 0, "heads", draws=2).sum(1).tolist()
    [5.0, 5.0]
    """
    return counted(picked(n, draws, keyed(seed, "bootstrap", *labels)))


def bounds(values: Tensor, interpolation: str = "linear") -> tuple[Tensor, Tensor]:
    """The middle 95 % of resampled values [draws, ...]; draws that are not numbers are left out."""
    low, high = (values.nanquantile(q, 0, interpolation=interpolation) for q in (0.025, 0.975))
    return low, high


def estimated(mean: Tensor | float, drawn: Tensor, n: int) -> Estimate:
    """A number of ``n`` prompts and what resamples of them made of it [draws], as an estimate."""
    low, high = bounds(drawn)
    return Estimate(float(mean), float(low), float(high), n=n, clusters=n)


def mean_interval(values: Tensor, seed: int, *labels: object) -> tuple[Tensor, Tensor, Tensor]:
    """Mean over prompts with its 95 % interval, of values [prompts, ...]; NaN where a prompt has none.

    >>> mean, low, high = mean_interval(torch.tensor([1.0, 2.0, 3.0, float("nan")]), 0, "example")
    >>> float(mean), bool(low >= 1), bool(high <= 3)
    (2.0, True, True)
    """
    flat = values.double().reshape(len(values), -1)
    known = ~flat.isnan()
    filled = flat.nan_to_num(0.0)
    weights = resampled(len(flat), seed, *labels)
    drawn = (weights @ filled) / (weights @ known.double())
    low, high = bounds(drawn)
    mean = filled.sum(0) / known.sum(0)
    shape = values.shape[1:]
    return mean.reshape(shape), low.reshape(shape), high.reshape(shape)


def estimate(values: Tensor, seed: int, *labels: object, clusters: Tensor | None = None) -> Estimate:
    """The mean of values [n] with its 95 % interval; NaN where there is none.

    ``clusters`` [n] says which values belong together (those of one prompt, of one template): clusters are resampled
    whole. Without it every value is a cluster of its own.

    >>> found = estimate(torch.tensor([1.0, 2.0, 3.0, 4.0]), 0, "example", clusters=torch.tensor([0, 0, 1, 1]))
    >>> found.mean, found.low, found.high, found.n, found.clusters
    (2.5, 1.5, 3.5, 4, 2)
    """
    known = ~values.isnan()
    if clusters is None:
        mean, low, high = (float(x) for x in mean_interval(values, seed, *labels))
        return Estimate(mean, low, high, n=int(known.sum()), clusters=int(known.sum()))
    kept = values[known].double()
    names, which = clusters[known].unique(return_inverse=True)
    sums, sizes = (
        torch.zeros(len(names), dtype=torch.float64).index_add_(0, which, x)
        for x in (kept, torch.ones_like(kept))
    )
    weights = resampled(len(names), seed, *labels)
    low, high = bounds((weights @ sums) / (weights @ sizes))
    return Estimate(float(kept.mean()), float(low), float(high), n=len(kept), clusters=len(names))


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a rate, by Wilson's score: it stays within 0 and 1 and holds for few cases.

    >>> [round(x, 3) for x in wilson(0, 20)], [round(x, 3) for x in wilson(10, 20)]
    ([0.0, 0.161], [0.299, 0.701])
    """
    z, rate = 1.959964, successes / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
