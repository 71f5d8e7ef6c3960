"""Do two families differ by more than their wordings do? Families exchanged in whole clusters of prompts.

Prompts of one wording are alike, so a wording counts once, however many prompts it has. One that holds both families
gives the difference of their means, and under the null its sign could be the other; those that hold one family give a
mean each, and under the null it does not matter which of them are whose. Both are exchanged together. With few clusters
all ways are gone through, and the smallest p that they leave may be above any level.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import torch

ALL_WAYS = 1 << 16
"""Up to so many ways to exchange clusters, all are gone through."""
DRAWS = 49_999
"""Ways that are drawn where there are more."""
AT_ONCE = 64
"""Values that are tested at a time: ways × values may be large."""
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ClusterExchange:
    """The clusters of two families, and what of them can be exchanged."""

    both: np.ndarray
    """Clusters that hold both families, by number."""
    first: np.ndarray
    """Clusters that hold the first family alone."""
    second: np.ndarray
    """Those that hold the second alone; both are left out where there is nothing to exchange one kind with."""
    rows: tuple[np.ndarray, np.ndarray]
    """[prompts] each: which of them are of the first family, and of the second."""
    clusters: np.ndarray
    """[prompts]: the cluster of each, by number."""

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, clusters: np.ndarray) -> ClusterExchange:
        """Of prompts that are of the first family [n] or of the second [n]."""
        mine, theirs = np.unique(clusters[first]), np.unique(clusters[second])
        alone, other = np.setdiff1d(mine, theirs), np.setdiff1d(theirs, mine)
        none = mine[:0]
        kept = (alone, other) if len(alone) and len(other) else (none, none)
        return cls(np.intersect1d(mine, theirs), *kept, (first, second), clusters)

    def __len__(self) -> int:
        return len(self.both) + len(self.first) + len(self.second)

    @property
    def ways(self) -> int:
        """How many ways there are to exchange them, the observed one among them."""
        return 2 ** len(self.both) * comb(len(self.first) + len(self.second), len(self.first))

    @property
    def least(self) -> float:
        """The smallest p there can be: where families can be exchanged as a whole, their mirror image does as much.

        >>> half = np.arange(12) < 6
        >>> ClusterExchange.of(half, ~half, np.arange(12) // 2).least
        0.1
        """
        return min(1.0, (2 if len(self.first) == len(self.second) else 1) / self.ways)

    def p_values(
        self, values: np.ndarray, generator: torch.Generator, *, larger: bool = False
    ) -> tuple[np.ndarray, int]:
        """Two-sided p of each of values [tests, prompts], and the ways behind it; with ``larger`` p that the first
        family's are the larger ones.

        >>> half, wording = np.arange(16) < 8, np.arange(16) // 2
        >>> found = ClusterExchange.of(half, ~half, wording).p_values(half[None], torch.Generator())
        >>> float(found[0][0]) == 2 / 70, found[1]
        (True, 70)
        """
        if not len(self):
            return np.ones(len(values)), 0
        exact = self.ways <= ALL_WAYS
        weights = self._all_ways() if exact else self._drawn_ways(generator)
        found, units = np.empty(len(values)), self._units(values.astype(np.float64))
        for start in range(0, len(values), AT_ONCE):
            some = weights @ units[:, start : start + AT_ONCE]
            some = some if larger else np.abs(some)
            as_much = (some >= some[0] - _ROUNDING * np.maximum(1.0, np.abs(some[0]))).sum(0)
            found[start : start + AT_ONCE] = as_much / len(weights)
        return found, len(weights) if exact else len(weights) - 1

    def _units(self, values: np.ndarray) -> np.ndarray:
        """[clusters, tests]: the difference of both families' means, or the mean of the one that is there."""
        first, second = self.rows
        made = [
            values[:, first & (self.clusters == one)].mean(1)
            - values[:, second & (self.clusters == one)].mean(1)
            for one in self.both
        ]
        made += [values[:, first & (self.clusters == one)].mean(1) for one in self.first]
        made += [values[:, second & (self.clusters == one)].mean(1) for one in self.second]
        return np.array(made)

    def _weights(self, signs: np.ndarray, own: np.ndarray) -> np.ndarray:
        """[ways, clusters]: a mean over clusters of what the first family has more, from signs [ways, both] and from
        which of the others are the first family's [ways, others]."""
        k, others = len(self.first), own.shape[1]
        dealt = np.where(own, others / max(k, 1), -others / max(others - k, 1))
        return np.concatenate((signs, dealt), 1) / len(self)

    def _all_ways(self) -> np.ndarray:
        others, k = len(self.first) + len(self.second), len(self.first)
        turns = 1.0 - 2.0 * (np.arange(2 ** len(self.both))[:, None] >> np.arange(len(self.both)) & 1)
        deals = np.zeros((comb(others, k), others), dtype=bool)
        for row, chosen in zip(deals, combinations(range(others), k), strict=True):
            row[list(chosen)] = True
        return self._weights(np.repeat(turns, len(deals), 0), np.tile(deals, (len(turns), 1)))

    def _drawn_ways(self, generator: torch.Generator) -> np.ndarray:
        """The observed way, and as many drawn ones."""
        others, k = len(self.first) + len(self.second), len(self.first)
        signs = 1.0 - 2.0 * torch.randint(2, (DRAWS, len(self.both)), generator=generator).numpy()
        order = torch.rand(DRAWS, others, generator=generator).argsort(1).numpy()
        observed = self._weights(np.ones((1, len(self.both))), (np.arange(others) < k)[None])
        return np.concatenate((observed, self._weights(signs, order < k)))
