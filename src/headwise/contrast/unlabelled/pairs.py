"""Features that seem to do the same thing: are they told apart by who writes them, by swaps, by where they disagree?

Two features of a head are *alike* if the cells that they carry most are the same ones more often than by chance. Then

* **swaps on disjoint inputs**: in cells that only one of them carries, swapping that one must move more attention than
  swapping the other, for both of them;
* **writers**: who wrote the keys' coordinate must differ more between the features than between cells of one;
* **where they disagree**: the cells that only one carries, to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.contrast.unlabelled.held_out import CellParts
from headwise.intervals import estimate
from headwise.randomness import keyed
from headwise.types import Estimate

TOP = 0.2
"""The share of the attended cells that a feature is said to carry: those with its largest parts."""
ALIKE = 2.0
"""Features are alike if they share this many times as many of those cells as by chance."""
LEVEL = 0.05
"""Level of the test on writers."""
DRAWS = 999
"""Exchanges of cells between two features for the test on writers."""
FEW = 4
"""Cells of one feature alone that are too few to test on."""


@dataclass(frozen=True, kw_only=True)
class FeaturePair:
    """Two features of one head that carry the same cells more often than by chance."""

    head: str
    """The head, such as ``L18H6``."""
    first: str
    """One feature."""
    second: str
    """The other."""
    overlap: float
    """The share of the cells that one carries which the other carries too."""
    chance: float
    """The same for features that have nothing to do with one another."""
    swaps: Estimate | None
    """By how much more a feature's swap moves the log-odds in its own cells than in those of the other; None: too few
    cells that only one carries."""
    writers_within: float | None
    """Mean correlation of the writers of two cells of one feature."""
    writers_between: float | None
    """The same of a cell of each."""
    writers_p: float | None
    """How often cells exchanged at random differ as much."""
    by: tuple[str, ...]
    """What tells them apart: ``swaps``, ``writers``; empty: they could not be told apart."""

    @property
    def told_apart(self) -> bool:
        """Whether anything does."""
        return bool(self.by)

    @property
    def sentence(self) -> str:
        """What tells them apart, in a line."""
        said = f"told apart by {' and '.join(self.by)}" if self.by else "could not be told apart"
        return (
            f"{self.head} {self.first} and {self.second} share {self.overlap:.0%} of their cells "
            f"(chance {self.chance:.0%}): {said}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "head": self.head,
            "first": self.first,
            "second": self.second,
            "overlap": self.overlap,
            "chance": self.chance,
            "swaps": None if self.swaps is None else self.swaps.to_json(),
            "writers": None
            if self.writers_p is None
            else {"within": self.writers_within, "between": self.writers_between, "p": self.writers_p},
            "told_apart": self.told_apart,
            "by": list(self.by),
        }


def carried(parts: CellParts) -> Tensor:
    """[F, n]: the cells that each feature carries."""
    count = max(1, round(TOP * parts.contribution.shape[1]))
    least = parts.contribution.topk(count, dim=1).values[:, -1:]
    return (parts.contribution >= least) & (parts.contribution > 0)


def alike(parts: CellParts) -> list[tuple[int, int, float, float]]:
    """Pairs of features that carry the same cells: their numbers, the overlap, and that of chance."""
    held = carried(parts).double()
    size = held.sum(1).clamp_min(1)
    n = held.shape[1]
    found = []
    for a in range(len(held)):
        for b in range(a + 1, len(held)):
            smaller = min(size[a], size[b])
            overlap, chance = float(held[a] @ held[b] / smaller), float(size[a] * size[b] / n / smaller)
            if overlap >= ALIKE * chance:
                found.append((a, b, overlap, chance))
    return found


def swap_difference(
    own: Tensor, other: Tensor, moved: Tensor, unit: Tensor, seed: int, *labels: object
) -> Estimate | None:
    """Own cells against the other's, for the weaker of two features.

    ``own`` and ``other`` [n] are the cells that only the first or only the second carries, ``moved`` [2, n] by how much
    the swap of each moves the log-odds.
    """
    if min(int(own.sum()), int(other.sum())) < FEW:
        return None
    # Of either feature: what its swap does more than the other's, in cells of its own.
    sides = [(moved[0] - moved[1])[own], (moved[1] - moved[0])[other]]
    units = [unit[own], unit[other]]
    if min(len(one.unique()) for one in units) < 2:
        return None
    found = [
        estimate(_by_unit(side, one), seed, "pair", place, *labels)
        for place, (side, one) in enumerate(zip(sides, units, strict=True))
    ]
    return min(found, key=lambda one: one.low)


def _by_unit(values: Tensor, unit: Tensor) -> Tensor:
    """Mean over the cells of each text."""
    unique, place = unit.unique(return_inverse=True)
    total = torch.zeros(len(unique), dtype=torch.float64).index_add_(0, place, values.double())
    return total / torch.bincount(place)


def writer_test(
    first: Tensor, second: Tensor, seed: int, *labels: object
) -> tuple[float, float, float] | None:
    """Correlations of writers' profiles within and between two features' cells, and a p-value.

    Profiles [n, writers] are each writer's share of the coordinate. Under the null the cells are exchangeable.
    """
    a, b = len(first), len(second)
    if min(a, b) < FEW:
        return None
    both = torch.cat([first, second]).double()
    both = both - both.mean(1, keepdim=True)
    unit = both / both.norm(dim=1, keepdim=True).clamp_min(1e-30)
    alike = unit @ unit.mT
    alike.fill_diagonal_(0.0)

    def split(mine: Tensor) -> tuple[Tensor, Tensor]:
        """Mean within and between, for memberships [draws, n]."""
        theirs = 1 - mine
        within = torch.einsum("di,ij,dj->d", mine, alike, mine) + torch.einsum(
            "di,ij,dj->d", theirs, alike, theirs
        )
        between = torch.einsum("di,ij,dj->d", mine, alike, theirs)
        return within / (a * (a - 1) + b * (b - 1)), between / (a * b)

    generator = keyed(seed, "writers", *labels)
    order = torch.rand(DRAWS, a + b, generator=generator).argsort(1)
    drawn = torch.zeros(DRAWS, a + b, dtype=torch.float64).scatter_(1, order[:, :a], 1.0)
    real = (torch.arange(a + b) < a).double()[None]
    within, between = split(real)
    null = torch.sub(*split(drawn))
    observed = float(within - between)
    p = (1 + int((null >= observed - 1e-12).sum())) / (1 + DRAWS)
    return float(within), float(between), p


def judged(
    *,
    head: str,
    names: Sequence[str],
    overlap: float,
    chance: float,
    swaps: Estimate | None,
    writers: tuple[float, float, float] | None,
) -> FeaturePair:
    """A pair with what tells it apart."""
    by = []
    if swaps is not None and swaps.low > 0:
        by.append("swaps")
    if writers is not None and writers[2] <= LEVEL:
        by.append("writers")
    within, between, p = writers or (None, None, None)
    return FeaturePair(
        head=head,
        first=names[0],
        second=names[1],
        overlap=overlap,
        chance=chance,
        swaps=swaps,
        writers_within=within,
        writers_between=between,
        writers_p=p,
        by=tuple(by),
    )
