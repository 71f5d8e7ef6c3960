"""Intervals over clusters: resample what belongs together as one, never the cells of one prompt, which are correlated.

A cluster is what was drawn as one: a prompt, and where prompts share a wording, an entity or a scene, all that share
it. Below twelve clusters a bootstrap is too narrow (coverage .86 with six), and the interval is Student's t.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from headwise.randomness import keyed
from headwise.types import Estimate

DRAWS = 1000
"""Resamples per interval: each 95 % bound rests on 25 of them."""
FEW = 12
"""Below so many clusters an interval is Student's t."""


def picked(n: int, draws: int, generator: torch.Generator) -> Tensor:
    """Which of ``n`` clusters each resample consists of: indices [draws, n]."""
    return torch.randint(n, (draws, n), generator=generator)


def counted(picks: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """How often each resample holds each cluster [draws, n].

    >>> counted(torch.tensor([[0, 2, 2]])).tolist()
    [[1.0, 0.0, 2.0]]
    """
    return torch.zeros(picks.shape, dtype=dtype).scatter_add_(1, picks, torch.ones(picks.shape, dtype=dtype))


def resampled(n: int, seed: int, *labels: object, draws: int = DRAWS) -> Tensor:
    """How often each of ``n`` clusters is drawn in each resample: counts [draws, n] in float64.

    >>> resampled(5, 0, "heads", draws=2).sum(1).tolist()
    [5.0, 5.0]
    """
    return counted(picked(n, draws, keyed(seed, "bootstrap", *labels)))


def numbered(clusters: Tensor | None, n: int) -> tuple[Tensor, int]:
    """The cluster of each of ``n`` values as numbers from 0, and how many there are; without any, each its own.

    >>> numbered(torch.tensor([7, 3, 7]), 3)
    (tensor([1, 0, 1]), 2)
    """
    if clusters is None:
        return torch.arange(n), n
    which = clusters.unique(return_inverse=True)[1].cpu()
    return which, int(which.max()) + 1 if n else 0


def weights_of(clusters: Tensor | None, n: int, draws: int, generator: torch.Generator) -> Tensor:
    """The weight of each of ``n`` prompts in each resample of whole clusters [draws, n]; rows sum to one."""
    which, count = numbered(clusters, n)
    counts = counted(picked(count, draws, generator))[:, which]
    return counts / counts.sum(1, keepdim=True)


def bounds(values: Tensor, interpolation: str = "linear") -> tuple[Tensor, Tensor]:
    """The middle 95 % of resampled values [draws, ...]; draws that are not numbers are left out."""
    low, high = (values.nanquantile(q, 0, interpolation=interpolation) for q in (0.025, 0.975))
    return low, high


def estimated(mean: Tensor | float, drawn: Tensor, n: int, clusters: int | None = None) -> Estimate:
    """A number of ``n`` values and what resamples of their clusters made of it [draws], as an estimate."""
    count = n if clusters is None else clusters
    if count < 2:
        return Estimate(float(mean), float(mean), float(mean), n=n, clusters=count)
    if count < FEW:
        known = drawn[~drawn.isnan()].double()
        # A resample of k clusters varies by (k − 1) / k of what a new sample does.
        half = student(count) * float(known.std(correction=0)) * math.sqrt(count / (count - 1))
        return Estimate(float(mean), float(mean) - half, float(mean) + half, n=n, clusters=count)
    low, high = bounds(drawn)
    return Estimate(float(mean), float(low), float(high), n=n, clusters=count)


def mean_interval(
    values: Tensor, seed: int, *labels: object, clusters: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean over prompts with its 95 % interval, of values [prompts, ...]; NaN where a prompt has none.

    ``clusters`` [prompts] says which belong together, as for :func:`estimate`.

    >>> mean, low, high = mean_interval(torch.tensor([1.0, 2.0, 3.0, float("nan")]), 0, "example")
    >>> float(mean), round(float(low), 2), round(float(high), 2)
    (2.0, -0.48, 4.48)
    """
    flat = values.double().reshape(len(values), -1)
    which, number = numbered(clusters, len(flat))
    sums, sizes = (
        torch.zeros(number, flat.shape[1], dtype=torch.float64).index_add_(0, which, x)
        for x in (flat.nan_to_num(0.0), (~flat.isnan()).double())
    )
    count, total = (sizes > 0).sum(0), sizes.sum(0)
    weights = resampled(number, seed, *labels)
    low, high = bounds((weights @ sums) / (weights @ sizes))
    mean = sums.sum(0) / total
    off = (sums - mean * sizes).square().sum(0)
    error = (off * count / (count - 1).clamp_min(1)).sqrt() / total
    half = error * torch.tensor([student(int(c)) for c in count], dtype=torch.float64)
    few = count < FEW
    low, high = torch.where(few, mean - half, low), torch.where(few, mean + half, high)
    shape = values.shape[1:]
    return mean.reshape(shape), low.reshape(shape), high.reshape(shape)


def estimate(values: Tensor, seed: int, *labels: object, clusters: Tensor | None = None) -> Estimate:
    """The mean of values [n] with its 95 % interval; NaN where there is none.

    ``clusters`` [n] says which values belong together (those of one prompt, of one template): clusters are resampled
    whole. Without it every value is a cluster of its own.

    >>> found = estimate(torch.tensor([1.0, 2.0, 3.0, 4.0]), 0, "example", clusters=torch.tensor([0, 0, 1, 1]))
    >>> found.mean, round(found.low, 1), round(found.high, 1), found.n, found.clusters
    (2.5, -10.2, 15.2, 4, 2)
    """
    known = ~values.isnan()
    kept = values[known].double()
    which, count = numbered(None if clusters is None else clusters[known], len(kept))
    if count < 2:
        return Estimate(
            float(kept.mean()), float(kept.mean()), float(kept.mean()), n=len(kept), clusters=count
        )
    sums, sizes = (
        torch.zeros(count, dtype=torch.float64).index_add_(0, which, x) for x in (kept, torch.ones_like(kept))
    )
    mean = float(kept.mean())
    if count < FEW:
        off = float((sums - mean * sizes).square().sum())
        half = student(count) * math.sqrt(off * count / (count - 1)) / len(kept)
        return Estimate(mean, mean - half, mean + half, n=len(kept), clusters=count)
    weights = resampled(count, seed, *labels)
    low, high = bounds((weights @ sums) / (weights @ sizes))
    return Estimate(mean, float(low), float(high), n=len(kept), clusters=count)


def as_share(found: Estimate) -> Estimate:
    """The same of values from 0 to 1, beyond which no interval need reach.

    >>> as_share(Estimate(0.9, 0.7, 1.1, n=4, clusters=4)).high
    1.0
    """
    return replace(found, low=max(0.0, found.low), high=min(max(1.0, found.mean), found.high))


def student(clusters: int) -> float:
    """Student's 97.5 % quantile for a mean of so many clusters; 0 where there is no spread to tell."""
    if clusters < 2:
        return 0.0
    from scipy.special import stdtrit

    return float(stdtrit(clusters - 1, 0.975))


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a rate, by Wilson's score: it stays within 0 and 1 and holds for few cases.

    >>> [round(x, 3) for x in wilson(0, 20)], [round(x, 3) for x in wilson(10, 20)]
    ([0.0, 0.161], [0.299, 0.701])
    """
    z, rate = 1.959964, successes / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
