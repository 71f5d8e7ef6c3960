"""Are there families at all? How far families lie apart, against two nulls.

The statistic is the :func:`~headwise.families.cluster.separation` of the nearest two families of a cut. A silhouette
would not do: the halves of one elongated cloud have a good silhouette too. What tells families from a cloud is the gap
between them. For every number of families the separation is measured in standard deviations from the mean that null
data have with as many; of every null data set the largest of these excesses over all numbers is kept, so that a p-value
holds whichever number is chosen.

*Shuffled edges.* Features are exchanged between circuits at random; every circuit keeps its size and every feature its
frequency. It answers "do features occur together at all?". Nearly always they do, for signals into one head come
together: this p-value is reported, and not used.

*One family.* Circuits whose features depend on one another as strongly as observed, but continuously. Each feature is
the threshold of a hidden normal variable, set so that circuits keep their sizes and features their frequencies in
expectation; the hidden variables are tied by common factors, as many as stand out of shuffled data, with the observed
(biserial) correlations. So a cause that varies from prompt to prompt and moves hundreds of signals at once belongs to
this null, and only a gap speaks for families. The verdict needs this one, and where prompts have wordings the one of
:mod:`headwise.families.within` too.

Both work on the same sample of at most ``SAMPLE`` prompts, observed and null alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import torch
from scipy import sparse
from scipy.stats import norm

from headwise.claims import p_value
from headwise.families.cluster import average_linkage, cuts, separation, silhouettes
from headwise.families.distance import jaccard
from headwise.randomness import keyed

SAMPLE = 500
"""Prompts that the nulls work on, at most: their cost grows with the square."""
DRAWS = 99
"""Null data sets of each kind; with the observed one a hundred, so that a p-value can be 0.01."""
BURN_IN = 20
BETWEEN = 5
"""Rounds of exchanges before the first and between two shuffled data sets; a round tries every entry."""
ENOUGH = 0.25
"""Share of null data sets that must reach a number of families for their mean to be used."""
SHUFFLES = 3
"""Shuffled data sets that say which factors stand out."""
SIZED = 5
"""Factors that the size of a circuit may follow from."""
FEWEST = 3
"""A feature of fewer circuits is tied to no factor: its correlations cannot be told from chance."""
FITS = 4
"""Rounds in which loadings are fitted to the observed spread, for each number of factors tried."""
MOST_TIED = 0.99
"""Largest correlation of a hidden variable with the factors."""


@dataclass(frozen=True, eq=False)
class NullTest:
    """The observed separation for every number of families, and those of null data."""

    observed: dict[int, float]
    """Number of families → the observed separation."""
    null: list[dict[int, float]]
    """One per draw: the separation for every number of families that it can be cut into."""
    silhouette: dict[int, list[float]]
    """Mean silhouettes of the null's cuts by number of families."""
    prompts: int
    """Prompts that were compared, observed and null alike."""

    @cached_property
    def usual(self) -> dict[int, tuple[float, float]]:
        """Mean and standard deviation of null data, for each number of families that enough of them reach."""
        return self._spread(self.null)

    @cached_property
    def _measure(self) -> dict[int, tuple[float, float]]:
        """The same of null data and the observed together, which p-values are counted by.

        Measured by the others alone, the observed would lie further out than any of them does by their own measure, and
        of twenty data sets that are all alike several would each be called the furthest. How far out it lies cannot be
        read from this one: of n + 1 values none is more than √n of their standard deviations from their mean.
        """
        return self._spread([*self.null, self.observed])

    def _spread(self, every: Sequence[Mapping[int, float]]) -> dict[int, tuple[float, float]]:
        found: dict[int, tuple[float, float]] = {}
        for k in sorted({k for one in self.null for k in one}):
            values = [one[k] for one in every if k in one]
            if len(values) >= ENOUGH * len(every):
                found[k] = float(np.mean(values)), max(float(np.std(values)), 1e-6)
        return found

    def excess(self, separations: Mapping[int, float]) -> dict[int, float]:
        """Standard deviations above the mean of null data; a number of families that these do not reach is held
        against the nearest one."""
        return _beyond(separations, self.usual)

    @cached_property
    def largest(self) -> np.ndarray:
        """[draws] how far out each null data set lies at most, over all numbers of families, as p-values count it."""
        return np.array([max(_beyond(one, self._measure).values(), default=-np.inf) for one in self.null])

    @property
    def p_values(self) -> dict[int, float]:
        """One-sided, by number of families, all numbers allowed for; the observed is counted among the draws.

        >>> test = NullTest({2: 9.0, 3: 2.5}, [{2: 2.5}, {2: 2.7}, {2: 2.6}], {}, 100)
        >>> test.p_values
        {2: 0.25, 3: 1.0}
        """
        found = _beyond(self.observed, self._measure)
        return {k: p_value(value, self.largest.tolist()) for k, value in found.items()}


def _beyond(separations: Mapping[int, float], measure: Mapping[int, tuple[float, float]]) -> dict[int, float]:
    """Standard deviations above the mean, by number of families; those of the nearest number where it has none."""
    if not measure:
        return {k: float("inf") for k in separations}
    result = {}
    for k, value in separations.items():
        mean, deviation = measure[min(measure, key=lambda known: abs(known - k))]
        result[k] = (value - mean) / deviation
    return result


class ShuffledEdges:
    """Circuits between which features are exchanged; sizes and frequencies stay exactly.

    A chain: :meth:`fit` begins it at the observed circuits, and every :meth:`sample` goes on from the last one, with
    the generator that was given.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def fit(self, matrix: sparse.csr_matrix) -> Self:
        """Begin at the circuits of ``matrix`` [circuits, features], and leave them behind."""
        held = matrix.tocoo()
        used, column = np.unique(held.col, return_inverse=True)
        self.row, self.column = held.row.astype(np.int64), column.astype(np.int64)
        self.present = np.zeros((len(matrix.indptr) - 1, len(used)), dtype=bool)
        self.present[self.row, self.column] = True
        for _ in range(BURN_IN):
            self._exchange()
        return self

    def _exchange(self) -> None:
        """Pair all entries at random; a pair (r, c), (s, d) becomes (r, d), (s, c) where neither is there yet.

        Every set of circuits has to be as likely as any other, so the way back must be as likely as the way there: a
        pair stays where it is if one of its four corners belongs to a pair before it, whether or not that one moves.
        The first pair moves by a coin, or circuits of one feature each would come back every other round.
        """
        half = len(self.row) // 2
        order = torch.randperm(len(self.row), generator=self.generator).numpy()
        a, b = order[:half], order[half : 2 * half]
        r, c, s, d = self.row[a], self.column[a], self.row[b], self.column[b]
        width = self.present.shape[1]
        corners = np.stack((r * width + c, s * width + d, r * width + d, s * width + c), 1)
        _, first, which = np.unique(corners, return_index=True, return_inverse=True)
        alone = (first[which].reshape(-1, 4) // 4 == np.arange(half)[:, None]).all(1)
        alone[:1] &= bool(torch.randint(2, (), generator=self.generator))
        go = np.flatnonzero(alone & ~self.present[r, d] & ~self.present[s, c])
        r, c, s, d = (x[go] for x in (r, c, s, d))
        self.present[r, c] = self.present[s, d] = False
        self.present[r, d] = self.present[s, c] = True
        self.column[a[go]], self.column[b[go]] = d, c

    def sample(self) -> sparse.csr_matrix:
        """The next shuffled circuits."""
        for _ in range(BETWEEN):
            self._exchange()
        ones = np.ones(len(self.row), dtype=bool)
        return sparse.csr_matrix((ones, (self.row, self.column)), shape=self.present.shape)


class OneFamily:
    """Circuits from one continuous cloud; n circuits, m features that occur in at least one.

    Learned by :meth:`fit`: ``cut_`` [n, m], what a hidden variable must exceed; ``factors_``, how many common factors
    tie the hidden variables; ``loading_`` [m, factors], how much; ``own_`` [m], what is left to each alone.
    """

    def fit(self, matrix: sparse.csr_matrix, shuffled: ShuffledEdges) -> Self:
        """Fit the cloud to the circuits of ``matrix``; factors that ``shuffled`` circuits have too are chance."""
        held = matrix.toarray().astype(np.float32)
        held = held[:, held.any(0)]
        count = held.sum(0)
        chance = expected(held.sum(1), count)
        self.cut_ = norm.isf(chance).astype(np.float32)
        # Circuits differ in size a hundredfold: let each weigh the same.
        weight = 1 / np.sqrt(np.maximum((chance * (1 - chance)).sum(1, keepdims=True), 1e-9))
        axes, self._spread = _axes((held - chance) * weight)
        self._weigh = lambda drawn: _axes((drawn.toarray() - chance) * weight)[1]
        limit = max(self._weigh(shuffled.sample())[0] for _ in range(SHUFFLES))
        most = int((self._spread > limit).sum())
        # As normal variables: where a cause is strong, features are saturated and scores pile up at both ends.
        ranks = axes[:, :most].argsort(0, kind="stable").argsort(0, kind="stable")
        scores = norm.ppf((ranks + 0.5) / len(held))
        # E[(x − p) z] = φ(cut) · loading for a threshold of a normal variable tied to z.
        steep = norm.pdf(self.cut_).sum(0)
        self._relate(scores[:, :SIZED], np.log(np.maximum(held.sum(1), 1)))
        loading = ((held - chance).T @ scores) / np.maximum(steep, 1e-9)[:, None]
        loading[count < FEWEST] = 0
        self._fit_loadings(loading, most)
        return self

    def _relate(self, scores: np.ndarray, size: np.ndarray) -> None:
        """How the size of a circuit follows from its scores: a cause that is far from its mean adds signals, say."""
        terms = np.column_stack((np.ones(len(size)), scores, scores**2))
        self._by_score = np.linalg.lstsq(terms, size, rcond=None)[0]
        self._rest = size - terms @ self._by_score
        self._rows = np.argsort(size, kind="stable")

    def _hidden(self, generator: torch.Generator) -> np.ndarray:
        """Normal factors for every circuit, given out such that size follows from them as observed: [n, factors]."""
        n = len(self.cut_)
        drawn = torch.randn(n, max(self.factors_, SIZED), generator=generator).numpy()
        some = drawn[:, : (len(self._by_score) - 1) // 2]
        order = torch.randperm(n, generator=generator).numpy()
        size = np.column_stack((np.ones(n), some, some**2)) @ self._by_score + self._rest[order]
        given = np.empty_like(drawn)
        given[self._rows] = drawn[np.argsort(size, kind="stable")]
        return given[:, : self.factors_]

    def _fit_loadings(self, loading: np.ndarray, most: int) -> None:
        """Take factors, the strongest first, until drawn circuits spread along as many axes as the observed ones.

        One strong cause bends the cloud and so shows on several axes: as long as fewer factors explain them, more
        would blur what one does. Loadings are raised, and never lowered, until drawn circuits spread as far as the
        observed: where chance decides, the null varies a little too much, not too little.
        """
        scale = np.ones(most)
        self.factors_ = min(1, most)
        while True:
            k = self.factors_
            beyond = []
            for number in range(FITS):
                self._tie(loading[:, :k] * scale[:k])
                again = self._weigh(self.sample(keyed(0, "fit", k, number)))
                scale[:k] *= np.clip(np.sqrt(self._spread[:k] / np.maximum(again[:k], 1e-9)), 1.0, 1.4)
                beyond.append(again[k] if k < len(again) else np.inf)
            self._tie(loading[:, :k] * scale[:k])
            if k >= most or self._spread[k] <= max(beyond[1:]):
                return
            self.factors_ = min(most, max(k + 1, round(1.4 * k)))

    def _tie(self, loading: np.ndarray) -> None:
        length = np.sqrt((loading**2).sum(1, keepdims=True))
        self.loading_ = (loading * np.minimum(1, MOST_TIED / np.maximum(length, 1e-12))).astype(np.float32)
        self.own_ = np.sqrt(1 - (self.loading_**2).sum(1))

    def sample(self, generator: torch.Generator) -> sparse.csr_matrix:
        """Circuits of one family."""
        n, m = len(self.cut_), len(self.own_)
        hidden = torch.randn(n, m, generator=generator).numpy() * self.own_
        hidden += self._hidden(generator) @ self.loading_.T
        return sparse.csr_matrix(hidden > self.cut_)


def expected(sizes: np.ndarray, counts: np.ndarray, rounds: int = 100) -> np.ndarray:
    """The chance of every feature in every circuit that follows from sizes and frequencies alone: [circuits, features].

    p = 1 / (1 + exp(−a_i − b_j)): the flattest chances with these row and column sums.

    >>> p = expected(np.array([1.0, 2.0, 1.0]), np.array([2.0, 1.0, 1.0]))
    >>> p.sum(0).round(2).tolist(), p.sum(1).round(2).tolist()
    ([2.0, 1.0, 1.0], [1.0, 2.0, 1.0])
    """
    # Features of the same frequency have the same chances: few columns stand for all.
    kinds, which, many = np.unique(counts, return_inverse=True, return_counts=True)
    rows = np.clip(sizes, 0.5, len(counts) - 0.5).astype(np.float64)
    columns = np.clip(kinds, 0.25, len(sizes) - 0.25).astype(np.float64)
    x, y = rows / np.sqrt(rows.sum()), columns / np.sqrt(rows.sum())
    for _ in range(rounds):
        x = rows / (many * y / (1 + x[:, None] * y)).sum(1)
        y = columns / (x[:, None] / (1 + x[:, None] * y)).sum(0)
    odds = x[:, None] * y
    return (odds / (1 + odds)).astype(np.float32)[:, which]


def _axes(residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Principal axes of the circuits [circuits, axes], the largest first, with their weight."""
    residual = residual.astype(np.float32, copy=False)
    spread, axes = np.linalg.eigh((residual @ residual.T).astype(np.float64))
    return axes[:, ::-1], spread[::-1]


def sampled(n: int, seed: int, most: int = SAMPLE) -> np.ndarray:
    """The prompts that the nulls work on, in order: all of them where there are few."""
    if n <= most:
        return np.arange(n)
    return np.sort(torch.randperm(n, generator=keyed(seed, "null sample")).numpy()[:most])


def null_tests(
    matrix: sparse.csr_matrix,
    labels: Mapping[int, np.ndarray],
    *,
    seed: int = 0,
    draws: int = DRAWS,
    tick: Callable[[int, int], None] | None = None,
) -> tuple[NullTest, NullTest]:
    """Test the cuts ``labels`` (by number of families) of circuits [prompts, features]: one family, shuffled edges."""
    distances = jaccard(matrix)
    observed = {k: separation(distances, np.unique(one, return_inverse=True)[1]) for k, one in labels.items()}
    shuffled = ShuffledEdges(keyed(seed, "shuffled edges")).fit(matrix)
    cloud = OneFamily().fit(matrix, shuffled)
    done = tick or (lambda done, total: None)
    one = drawn_test(
        observed,
        lambda draw: cloud.sample(keyed(seed, "one family", draw)),
        len(distances),
        draws,
        lambda n: done(n, 2 * draws),
    )
    two = drawn_test(
        observed, lambda draw: shuffled.sample(), len(distances), draws, lambda n: done(draws + n, 2 * draws)
    )
    return one, two


def largest_p(*tests: NullTest | None) -> dict[int, float]:
    """By number of families the largest p of some tests; empty without any."""
    known = [one.p_values for one in tests if one is not None]
    return {k: max(p[k] for p in known) for k in known[0]} if known else {}


def drawn_test(
    observed: dict[int, float],
    sample: Callable[[int], sparse.csr_matrix],
    prompts: int,
    draws: int,
    tick: Callable[[int], None] | None = None,
    apart: Callable[[np.ndarray, np.ndarray], float] = separation,
) -> NullTest:
    """The test of observed separations against those of data sets drawn one after another, taken in the same way."""
    null: list[dict[int, float]] = []
    silhouette: dict[int, list[float]] = {}
    for draw in range(draws):
        drawn = jaccard(sample(draw))
        found = {k: cut.labels for k, cut in cuts(average_linkage(drawn), drawn).items()}
        null.append({k: apart(drawn, one) for k, one in found.items()})
        for k, values in silhouettes(drawn, found).items():
            silhouette.setdefault(k, []).append(float(values.mean()))
        if tick is not None:
            tick(draw + 1)
    return NullTest(observed, null, silhouette, prompts)
