"""Do two families ask for the same thing? The signals that enter a head, compared family by family.

The signal that enters a head on one side is the sum of what its circuit's edges wrote along the head's channels: a
vector in the orthonormal basis of the head's singular directions, so that cosines are cosines in the residual stream.
Firings of one head at several tokens are summed. Strengths are taken after RoPE, as the head reads them: on the query
side they hold the token's position, and two prompts that ask for the same thing at different distances differ a little.

Each prompt's vector is made a unit vector. A pair of families is compared by the cosine of their mean unit vectors,
with a bootstrap interval over wordings inside each family (over prompts where a family has one wording); beside it are
the cosine of the two representatives, and how much two prompts of one family agree (the yardstick: families cannot
agree better than each does with itself). What a head does is a claim about the side of a threshold that its cosine lies
on, by Welch's t: each family's spread is that of its resamples, and since the data choose the side, both tails count.
All heads, sides and pairs are corrected together. Where a family uses a head in one wording alone, nothing says how far
another would move the signal: the interval is that of its prompts, and nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headwise.claims import LEVEL, claim, corrected
from headwise.families.incidence import coded, spread, where
from headwise.intervals import estimated, weights_of
from headwise.randomness import keyed
from headwise.types import Claim, Estimate, Head

if TYPE_CHECKING:
    import pyarrow as pa

SAME = 0.8
"""A head does *the same* in two families if the cosine is above this,"""
OPPOSITE = -0.2
"""*the opposite* if it is below this, and *something else* if it is between the two; *unclear* where that is not
supported."""
GROUP = "all heads, sides and pairs of families of this run"
ALONE = "{null}; untested, as a family has one {unit} here"
FEWEST_PROMPTS = 8
"""Prompts of each family that must use a head on a side for the two to be compared there."""
BOOTSTRAPS = 400
"""Resamples of prompts per interval: enough for a 95 % bound that is compared with two thresholds, for every head."""


@dataclass(frozen=True, eq=False)
class _Resampled:
    """Means of resamples of one family's unit vectors into a head."""

    means: np.ndarray
    """[resamples, channels]."""
    count: int
    """How many clusters, or prompts, were resampled."""
    alone: bool
    """Whether prompts were, because all are of one cluster."""


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
    claim: Claim
    """That it does what it most looks like; ``unclear`` is where this is not supported."""
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
            "p": self.claim.p,
            "q": self.claim.q,
            "supported": self.claim.supported,
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
            "claim": self.claim.to_json(),
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


def looks_like(cosine: float) -> tuple[str, str, float]:
    """What a cosine says, the threshold that it has to be told from, and how far it lies from that.

    >>> [looks_like(x)[0] for x in (0.9, 0.3, -0.5)]
    ['the same', 'something else', 'the opposite']
    """
    if cosine > SAME:
        return "the same", f"a cosine of {SAME}", cosine - SAME
    if cosine < OPPOSITE:
        return "the opposite", f"a cosine of {OPPOSITE}", OPPOSITE - cosine
    return (
        "something else",
        f"a cosine of {OPPOSITE} or {SAME}, the nearer",
        min(cosine - OPPOSITE, SAME - cosine),
    )


def compare(
    signals: Sequence[Incoming],
    families: np.ndarray,
    representatives: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    *,
    clusters: np.ndarray | None = None,
    unit: str = "wording",
    seed: int = 0,
) -> list[HeadComparison]:
    """Every head and side that enough prompts of both families of a pair use, in the order of heads; ``clusters`` are
    the rows' wordings, or what else the prompts share: ``unit``."""
    wanted = sorted({number for pair in pairs for number in pair})
    each = np.arange(len(families)) if clusters is None else clusters
    result = []
    for one in signals:
        mine = families[one.rows]
        members = {f: np.flatnonzero(mine == f) for f in wanted}
        drawn = {
            f: _resampled_means(one.units[m], each[one.rows[m]], seed, one, f)
            for f, m in members.items()
            if len(m) >= FEWEST_PROMPTS
        }
        for a, b in pairs:
            if a not in drawn or b not in drawn:
                continue
            first, second = (one.units[members[f]] for f in (a, b))
            mine, theirs = drawn[a], drawn[b]
            cosine = estimated(
                float(_cosine(first.mean(0), second.mean(0))),
                torch.from_numpy(_cosine(mine.means, theirs.means)),
                len(first) + len(second),
                mine.count + theirs.count,
            )
            spreads = (
                (float(_cosine(mine.means, second.mean(0)).std()), mine.count),
                (float(_cosine(first.mean(0), theirs.means).std()), theirs.count),
            )
            does, null, off = looks_like(cosine.mean)
            if mine.alone or theirs.alone:
                alone = claim(1.0, null=ALONE.format(null=null, unit=unit), draws=0, group=GROUP)
            else:
                alone = claim(_beyond(off, spreads), null=null, draws=BOOTSTRAPS, group=GROUP)
            found = HeadComparison(
                head=one.head,
                side=one.side,
                first=a,
                second=b,
                cosine=cosine,
                verdict=does,
                claim=alone,
                medoids=_of_representatives(one, representatives[a], representatives[b]),
                within_first=_within(first),
                within_second=_within(second),
                n_first=len(first),
                n_second=len(second),
            )
            result.append(found)
    return _judged(result)


def _judged(found: Sequence[HeadComparison]) -> list[HeadComparison]:
    """The same, corrected together; what is not supported is unclear."""
    q = corrected([one.claim.p for one in found])
    return [
        replace(
            one,
            verdict=one.verdict if value <= LEVEL else "unclear",
            claim=replace(one.claim, q=value, supported=value <= LEVEL),
        )
        for one, value in zip(found, q, strict=True)
    ]


def _beyond(off: float, spreads: Sequence[tuple[float, int]]) -> float:
    """p that a number which lies ``off`` beyond a threshold does so by chance: Welch's t, two-sided, from the spread of
    each family's resamples and the number of its clusters.

    >>> round(_beyond(2.0, [(1e-9, 9), (0.9 ** 0.5, 10)]), 3)  # Student's t with nine degrees of freedom
    0.077
    """
    from scipy.special import stdtr

    # A resample of k clusters varies by (k − 1) / k of what a new sample does.
    parts = [(max(spread, 1e-12) ** 2 * k / (k - 1), k - 1) for spread, k in spreads]
    whole = sum(square for square, _ in parts)
    freedom = whole**2 / sum(square**2 / free for square, free in parts)
    return min(1.0, 2 * float(stdtr(freedom, -off / whole**0.5)))


def _resampled_means(
    units: np.ndarray, clusters: np.ndarray, seed: int, one: Incoming, family: int
) -> _Resampled:
    """Means of resamples of whole clusters, of prompts where there is one cluster."""
    count = len(np.unique(clusters))
    which, resampled = (None, len(units)) if count < 2 else (torch.from_numpy(clusters), count)
    generator = keyed(seed, "bootstrap", one.head, one.side, family)
    means = weights_of(which, len(units), BOOTSTRAPS, generator).numpy() @ units
    return _Resampled(means, resampled, count < 2)


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
