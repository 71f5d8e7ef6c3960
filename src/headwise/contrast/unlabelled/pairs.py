"""Features that seem to do the same thing: are they told apart by who writes them, by swaps, by where they disagree?

Two features of a head are *alike* if the cells that they carry most are the same ones more often than by chance. Then

* **swaps on disjoint inputs**: in cells that only one of them carries, swapping that one must move more attention than
  swapping the other, for both of them;
* **writers**: who wrote the keys' coordinate must differ more between the features than between cells of one;
* **where they disagree**: the cells that only one carries, to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.claims import LEVEL, claim, corrected, p_value, sign_flips
from headwise.contrast.unlabelled.cells import CellInText
from headwise.contrast.unlabelled.held_out import CellParts
from headwise.errors import HeadwiseError
from headwise.randomness import keyed
from headwise.types import Claim

TOP = 0.2
"""The share of the attended cells that a feature is said to carry: those with its largest parts."""
ALIKE = 2.0
"""Features are alike if they share this many times as many of those cells as by chance."""
DRAWS = 999
"""Exchanges of texts between two features, and flips of texts' signs."""
SWAP_NULL = "signs of texts flipped, for the weaker of both features"
WRITER_NULL = "texts exchanged between both features"
GROUP = "all tests of pairs of the run"
FEW = 4
"""Cells of one feature alone that are too few to test on."""


@dataclass(frozen=True)
class PairTest:
    """One test of whether two features differ."""

    difference: float
    """What is above zero if they do."""
    claim: Claim
    """That it is."""

    def to_json(self) -> dict[str, Any]:
        """The difference and its claim."""
        return {"difference": self.difference, **self.claim.to_json()}


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
    swaps: PairTest | None
    """By how much more a feature's swap moves the log-odds in its own cells than in those of the other; None: too few
    cells that only one carries."""
    writers: PairTest | None
    """By how much more two cells of one feature have their writers in common than a cell of each; None: too few."""
    only_first: tuple[CellInText, ...] = ()
    """Where they disagree: the strongest cells that the first alone carries."""
    only_second: tuple[CellInText, ...] = ()
    """The same of the second."""

    @property
    def by(self) -> tuple[str, ...]:
        """What tells them apart: ``swaps``, ``writers``; empty: they could not be told apart."""
        tests = {"swaps": self.swaps, "writers": self.writers}
        return tuple(name for name, test in tests.items() if test is not None and test.claim.supported)

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
            "writers": None if self.writers is None else self.writers.to_json(),
            "only_first": [asdict(cell) for cell in self.only_first],
            "only_second": [asdict(cell) for cell in self.only_second],
            "told_apart": self.told_apart,
            "by": list(self.by),
        }


def carried(parts: CellParts) -> Tensor:
    """[F, n]: the cells that each feature carries."""
    count = max(1, round(TOP * parts.contribution.shape[1]))
    least = parts.contribution.topk(count, dim=1).values[:, -1:]
    return (parts.contribution >= least) & (parts.contribution > 0)


def overlaps(parts: CellParts) -> list[tuple[int, int, float, float]]:
    """All pairs of features: their numbers, the share of cells that both carry, and that of chance."""
    held = carried(parts).double()
    size = held.sum(1).clamp_min(1)
    n = held.shape[1]
    found = []
    for a in range(len(held)):
        for b in range(a + 1, len(held)):
            smaller = min(size[a], size[b])
            found.append((a, b, float(held[a] @ held[b] / smaller), float(size[a] * size[b] / n / smaller)))
    return found


def alike(parts: CellParts) -> list[tuple[int, int, float, float]]:
    """Those of them that carry the same cells."""
    return [(a, b, overlap, chance) for a, b, overlap, chance in overlaps(parts) if overlap >= ALIKE * chance]


def swap_difference(
    own: Tensor, other: Tensor, moved: Tensor, unit: Tensor, seed: int, *labels: object
) -> PairTest | None:
    """Own cells against the other's, for the weaker of two features: both must hold.

    ``own`` and ``other`` [n] are the cells that only the first or only the second carries, ``moved`` [2, n] by how much
    the swap of each moves the log-odds. The signs of whole texts are flipped.
    """
    if min(int(own.sum()), int(other.sum())) < FEW:
        return None
    # Of either feature: what its swap does more than the other's, in cells of its own.
    sides = [(moved[0] - moved[1])[own], (moved[1] - moved[0])[other]]
    units = [unit[own], unit[other]]
    if min(len(one.unique()) for one in units) < 2:
        return None
    generator = keyed(seed, "pair", *labels)
    found = [
        (sign_flips(side, one, draws=DRAWS, generator=generator), float(side.double().mean()))
        for side, one in zip(sides, units, strict=True)
    ]
    (p, draws), difference = max(found, key=lambda one: one[0][0])
    return PairTest(difference, claim(p, null=SWAP_NULL, draws=draws))


def writer_test(first: Tensor, second: Tensor, unit: Tensor, seed: int, *labels: object) -> PairTest | None:
    """Correlations of writers' profiles within two features' cells less those between them.

    Profiles [n, writers] are each writer's share of the coordinate, in one cell of a text at most for each feature;
    ``unit`` [both] are the texts, the first feature's before the second's. Cells of one text share its words: they are
    not compared with one another, and under the null it is texts that are exchanged.
    """
    a, b = len(first), len(second)
    if min(a, b) < FEW:
        return None
    both = torch.cat([first, second]).double()
    both = both - both.mean(1, keepdim=True)
    profiles = both / both.norm(dim=1, keepdim=True).clamp_min(1e-30)
    compared = (unit[:, None] != unit).double()
    alike = profiles @ profiles.mT * compared

    def split(mine: Tensor) -> Tensor:
        """Mean within less mean between, for memberships [draws, n]."""
        theirs = 1 - mine
        within, pairs_within = (
            torch.einsum("di,ij,dj->d", mine, x, mine) + torch.einsum("di,ij,dj->d", theirs, x, theirs)
            for x in (alike, compared)
        )
        between, pairs_between = (torch.einsum("di,ij,dj->d", mine, x, theirs) for x in (alike, compared))
        return within / pairs_within - between / pairs_between

    observed = float(split((torch.arange(a + b) < a).double()[None]))
    null = split(_exchanged(unit[:a], unit[a:], keyed(seed, "writers", *labels)))
    return PairTest(observed, claim(p_value(observed, null), null=WRITER_NULL, draws=DRAWS))


def _exchanged(first: Tensor, second: Tensor, generator: torch.Generator) -> Tensor:
    """Memberships [draws, n] with texts exchanged between two features; ``first`` and ``second`` are cells' texts.

    A text with a cell of each has them turned round or not; the features of the others are dealt anew.
    """
    if max(len(one) - len(one.unique()) for one in (first, second)):
        raise HeadwiseError("a text has several cells of one feature: give one, for they are not independent")
    here, there = (first[:, None] == second).nonzero().T
    there = there + len(first)
    count = len(first) + len(second)
    alone = torch.ones(count, dtype=torch.bool)
    alone[here], alone[there] = False, False
    places = alone.nonzero()[:, 0]
    mine = torch.zeros(DRAWS, count, dtype=torch.float64)
    dealt = torch.rand(DRAWS, len(places), generator=generator).argsort(1)
    mine[:, places] = (dealt < len(first) - len(here)).double()
    mine[:, here] = torch.randint(2, (DRAWS, len(here)), generator=generator).double()
    mine[:, there] = 1 - mine[:, here]
    return mine


def judged(pairs: Sequence[FeaturePair]) -> tuple[FeaturePair, ...]:
    """The pairs of a run with their tests corrected together."""
    tests = [test for pair in pairs for test in (pair.swaps, pair.writers) if test is not None]
    q = iter(corrected([test.claim.p for test in tests]))

    def again(test: PairTest | None) -> PairTest | None:
        if test is None:
            return None
        value = next(q)
        return replace(test, claim=replace(test.claim, q=value, group=GROUP, supported=value <= LEVEL))

    return tuple(replace(pair, swaps=again(pair.swaps), writers=again(pair.writers)) for pair in pairs)
