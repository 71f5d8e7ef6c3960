"""Choose on one half of the prompts, test on the other.

What is chosen because a family holds it is nearly sure to matter in the prompts that it was chosen on. So prompts are
split before anything is chosen, and wordings, where there are enough of them, stay whole: a prompt of a wording that
the choice has seen is not new. Where a family has too few of them its prompts are parted, but wordings are still what
is counted: a family of one wording supports nothing, however many prompts it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headwise.randomness import keyed

LEAST = 2
"""Prompts that every family must have in both halves; otherwise wordings are parted."""


@dataclass(frozen=True, eq=False)
class HalvedPrompts:
    """Which prompts something is tested on, and what of them belongs together."""

    tested: np.ndarray
    """[prompts]: True for those of the half that tests, False for those that the choice is made on."""
    clusters: np.ndarray
    """[prompts]: what is resampled and exchanged as one, and was split as one where it is not ``parted``."""
    unit: str
    """What that is: ``wording``, ``template``, …, or ``prompt``."""
    parted: bool = False
    """Whether both halves have prompts of the same wordings."""


def halved(
    families: np.ndarray, needed: Sequence[int], clusters: np.ndarray, unit: str, *, seed: int = 0
) -> HalvedPrompts:
    """Split prompts by whole clusters; where that leaves a family of ``needed`` without a half, clusters are parted.

    >>> families = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> found = halved(families, [0, 1], np.array([0, 0, 1, 1, 2, 2, 3, 3]), "wording")
    >>> found.unit, [int(found.tested[families == f].sum()) for f in (0, 1)]
    ('wording', [2, 2])
    >>> found = halved(families, [0, 1], np.array([0, 0, 0, 0, 1, 1, 1, 1]), "wording")
    >>> found.parted, found.unit, [int(found.tested[families == f].sum()) for f in (0, 1)]
    (True, 'wording', [2, 2])
    """
    whole = _dealt(families, clusters, seed)
    counts = [int((whole[families == f] == half).sum()) for f in needed for half in (True, False)]
    if min(counts, default=0) >= LEAST:
        return HalvedPrompts(whole, clusters, unit)
    parted = len(np.unique(clusters)) < len(families)
    return HalvedPrompts(_dealt(families, np.arange(len(families)), seed), clusters, unit, parted)


def _dealt(families: np.ndarray, clusters: np.ndarray, seed: int) -> np.ndarray:
    """Clusters in random order, the large ones first, each into the half that has fewer prompts of its main family."""
    tested = np.zeros(len(families), dtype=bool)
    numbers = np.unique(clusters)
    order = numbers[torch.randperm(len(numbers), generator=keyed(seed, "halves")).numpy()]
    members = [np.flatnonzero(clusters == one) for one in order]
    done = np.zeros((2, int(families.max()) + 1), dtype=np.int64)
    for rows in sorted(members, key=len, reverse=True):
        counts = np.bincount(families[rows], minlength=done.shape[1])
        main = int(counts.argmax())
        half = int(done[1, main] < done[0, main])
        tested[rows] = bool(half)
        done[half] += counts
    return tested
