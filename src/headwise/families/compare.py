"""Do two families ask for the same thing? The signals that enter a head, compared family by family.

The signal that enters a head on one side is the sum of what its circuit's edges wrote along the head's channels: a
vector in the orthonormal basis of the head's singular directions, so that cosines are cosines in the residual stream.
Firings of one head at several tokens are summed. Strengths are taken after RoPE, as the head reads them: on the query
side they hold the token's position, and two prompts that ask for the same thing at different distances differ a little.

Each prompt's vector is made a unit vector. A pair of families is compared by the cosine of their mean unit vectors,
with a bootstrap interval over prompts inside each family; beside it stand the cosine of the two representatives, and
how much two prompts of one family agree (the yardstick: families cannot agree better than each does with itself).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headwise.families.incidence import coded, spread, where
from headwise.intervals import estimated, resampled
from headwise.types import Estimate, Head

if TYPE_CHECKING:
    import pyarrow as pa

SAME = 0.8
"""A head does *the same* in two families if the whole interval of the cosine lies above this,"""
OPPOSITE = -0.2
"""*the opposite* if it lies below this, and *something else* if it lies between the two; else it is *unclear*."""
FEWEST_PROMPTS = 8
"""Prompts of each family that must use a head on a side for the two to be compared there."""
BOOTSTRAPS = 400
"""Resamples of prompts per interval: enough for a 95 % bound that is compared with two thresholds, for every head."""


@dataclass(frozen=True, eq=False)
class Incoming:
    """Unit vectors of the signals into one head on one side, for the prompts (rows of the analysis) that have any."""

    head: str
    side: str
    rows: np.ndarray
    units: np.ndarray
    """[rows, channels]."""


@dataclass(frozen=True, kw_only=True)
class HeadComparison:
    """One head and side in two families."""

    head: str
    """The head, such as ``L18H6``."""
    side: str
    """``query`` or ``key``."""
    first: int
    """One family, by number."""
    second: int
    """The other."""
    cosine: Estimate
    """Of the two families' mean unit vectors."""
    verdict: str
    """``the same``, ``something else``, ``the opposite`` or ``unclear``."""
    medoids: float | None
    """Cosine of the two representatives; None where one of them does not use the head on this side."""
    within_first: float
    """Mean cosine of two prompts of the first family."""
    within_second: float
    """The same of the second."""
    n_first: int
    """Prompts of the first family whose circuits use the head on this side."""
    n_second: int
    """Those of the second."""

    def to_row(self) -> dict[str, Any]:
        """One row of a table."""
        cosine = {"cosine": self.cosine.mean, "low": self.cosine.low, "high": self.cosine.high}
        rest = ("verdict", "medoids", "within_first", "within_second", "n_first", "n_second")
        return {
            "head": self.head,
            "side": self.side,
            "first": self.first,
            "second": self.second,
            **cosine,
            **{name: getattr(self, name) for name in rest},
        }

    def to_json(self) -> dict[str, Any]:
        """The same with what belongs to the two families as pairs, and the interval as ``ci``."""
        return {
            "head": self.head,
            "side": self.side,
            "cosine": self.cosine.mean,
            "verdict": self.verdict,
            "medoids": self.medoids,
            "ci": [self.cosine.low, self.cosine.high],
            "families": [self.first, self.second],
            "within": [self.within_first, self.within_second],
            "prompts": [self.n_first, self.n_second],
        }


def incoming(edges: pa.Table, prompts: Sequence[int] | np.ndarray) -> list[Incoming]:
    """The signals into every head and side, from a run's table of edges (all sources, embeddings too)."""
    kept = where(edges, edges["target_head"].is_valid().to_numpy())
    numbers = np.asarray(prompts, dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    counts, channel = spread(kept["channels"])
    strength = spread(kept["strengths"])[1].astype(np.float64)
    prompt = np.repeat(kept["prompt"].to_numpy().astype(np.int64), counts)
    at = np.minimum(np.searchsorted(numbers[order], prompt), len(numbers) - 1)
    known = numbers[order][at] == prompt
    row = order[at]
    target, targets = coded(kept["target"])
    side, sides = coded(kept["side"])
    place = np.repeat(target * len(sides) + side, counts)
    channel = channel.astype(np.int64)
    place, row, channel, strength = (x[known] for x in (place, row, channel, strength))
    width = int(channel.max(initial=0)) + 1
    by_place = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[by_place], np.arange(len(targets) * len(sides) + 1))
    found = []
    for code in range(len(targets) * len(sides)):
        mine = by_place[starts[code] : starts[code + 1]]
        if not len(mine):
            continue
        rows, which = np.unique(row[mine], return_inverse=True)
        vectors = np.bincount(which * width + channel[mine], strength[mine], minlength=len(rows) * width)
        vectors = vectors.reshape(len(rows), width)
        length = np.linalg.norm(vectors, axis=1)
        some = length > 0
        units = vectors[some] / length[some, None]
        found.append(Incoming(targets[code // len(sides)], sides[code % len(sides)], rows[some], units))
    return sorted(found, key=lambda one: (Head.parse(one.head), one.side))


def verdict(low: float, high: float) -> str:
    """What an interval of cosines says.

    >>> verdict(0.9, 0.95), verdict(0.1, 0.4), verdict(-0.9, -0.5), verdict(0.7, 0.9)
    ('the same', 'something else', 'the opposite', 'unclear')
    """
    if low > SAME:
        return "the same"
    if high < OPPOSITE:
        return "the opposite"
    return "something else" if low > OPPOSITE and high < SAME else "unclear"


def compare(
    signals: Sequence[Incoming],
    families: np.ndarray,
    representatives: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    *,
    seed: int = 0,
) -> list[HeadComparison]:
    """Every head and side that enough prompts of both families of a pair use, in the order of heads."""
    wanted = sorted({number for pair in pairs for number in pair})
    result = []
    for one in signals:
        mine = families[one.rows]
        members = {f: np.flatnonzero(mine == f) for f in wanted}
        drawn = {
            f: _resampled_means(one.units[m], seed, one, f)
            for f, m in members.items()
            if len(m) >= FEWEST_PROMPTS
        }
        for a, b in pairs:
            if a not in drawn or b not in drawn:
                continue
            first, second = (one.units[members[f]] for f in (a, b))
            cosine = estimated(
                float(_cosine(first.mean(0), second.mean(0))),
                torch.from_numpy(_cosine(drawn[a], drawn[b])),
                len(first) + len(second),
            )
            found = HeadComparison(
                head=one.head,
                side=one.side,
                first=a,
                second=b,
                cosine=cosine,
                verdict=verdict(cosine.low, cosine.high),
                medoids=_of_representatives(one, representatives[a], representatives[b]),
                within_first=_within(first),
                within_second=_within(second),
                n_first=len(first),
                n_second=len(second),
            )
            result.append(found)
    return result


def _resampled_means(units: np.ndarray, seed: int, one: Incoming, family: int) -> np.ndarray:
    weights = resampled(len(units), seed, one.head, one.side, family, draws=BOOTSTRAPS)
    return weights.numpy() @ units / len(units)


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    size = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return (a * b).sum(-1) / np.maximum(size, 1e-12)


def _within(units: np.ndarray) -> float:
    n = len(units)
    return float((np.square(units.sum(0)).sum() - n) / (n * (n - 1)))


def _of_representatives(one: Incoming, a: int, b: int) -> float | None:
    at = [np.flatnonzero(one.rows == row) for row in (a, b)]
    if not (len(at[0]) and len(at[1])):
        return None
    return float(one.units[at[0][0]] @ one.units[at[1][0]])
