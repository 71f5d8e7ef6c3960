"""Choose on one half of the prompts, test on the other; and what stands for chance when two families are compared.

What is chosen because a family holds it is nearly sure to matter in the prompts that it was chosen on. So prompts are
split before anything is chosen, and wordings, where there are enough of them, stay whole: a prompt of a wording that
the choice has seen is not new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headwise.claims import p_value
from headwise.randomness import keyed

LEAST = 2
"""Prompts that every family must have in both halves; otherwise wordings are parted, and prompts are the units."""


@dataclass(frozen=True, eq=False)
class HalvedPrompts:
    """Which prompts something is tested on, and what of them belongs together."""

    tested: np.ndarray
    """[prompts]: True for those of the half that tests, False for those that the choice is made on."""
    clusters: np.ndarray
    """[prompts]: what was split, resampled and exchanged as one."""
    unit: str
    """What that is: ``wording``, ``template``, …, or ``prompt``."""


def halved(
    families: np.ndarray, needed: Sequence[int], clusters: np.ndarray, unit: str, *, seed: int = 0
) -> HalvedPrompts:
    """Split prompts by whole clusters, or by prompts where that leaves a family of ``needed`` without a half.

    >>> families = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> found = halved(families, [0, 1], np.array([0, 0, 1, 1, 2, 2, 3, 3]), "wording")
    >>> found.unit, [int(found.tested[families == f].sum()) for f in (0, 1)]
    ('wording', [2, 2])
    >>> halved(families, [0, 1], np.array([0, 0, 0, 0, 1, 1, 1, 1]), "wording").unit
    'prompt'
    """
    whole = _dealt(families, clusters, seed)
    counts = [int((whole[families == f] == half).sum()) for f in needed for half in (True, False)]
    if min(counts, default=0) >= LEAST:
        return HalvedPrompts(whole, clusters, unit)
    each = np.arange(len(families))
    return HalvedPrompts(_dealt(families, each, seed), each, "prompt")


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


def exchanged(
    values: Tensor, own: Tensor, clusters: Tensor, *, draws: int, generator: torch.Generator
) -> float:
    """p that values [n] are larger where ``own`` [n]: membership is exchanged within clusters that hold both families,
    and between whole clusters that hold one.

    >>> values, own = torch.tensor([3.0, 1.0, 4.0, 2.0]), torch.tensor([True, False, True, False])
    >>> p = exchanged(values, own, torch.tensor([0, 0, 1, 1]), draws=4999, generator=torch.Generator().manual_seed(0))
    >>> abs(p - 1 / 4) < 0.03
    True
    """
    kept = ~values.isnan()
    values, own, which = values[kept].double(), own[kept], clusters[kept].unique(return_inverse=True)[1]
    parts = [(which == one).nonzero()[:, 0] for one in range(int(which.max()) + 1)]
    pure = [part for part in parts if len(own[part].unique()) == 1]
    mixed = [part for part in parts if len(own[part].unique()) == 2]
    given = own.expand(draws, -1).clone()
    for part in mixed:
        order = torch.rand(draws, len(part), generator=generator).argsort(1)
        given[:, part] = own[part][order]
    if pure:
        of = torch.stack([own[part[0]] for part in pure])
        dealt = of[torch.rand(draws, len(pure), generator=generator).argsort(1)]
        for number, part in enumerate(pure):
            given[:, part] = dealt[:, number : number + 1]
    return p_value(float(_apart(values, own[None])), _apart(values, given))


def _apart(values: Tensor, own: Tensor) -> Tensor:
    """Mean of own values less that of the others, for each assignment [draws, n]."""
    mine, theirs = own.double(), (~own).double()
    return mine @ values / mine.sum(1) - theirs @ values / theirs.sum(1)
