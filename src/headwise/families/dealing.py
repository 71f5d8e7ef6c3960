"""Values dealt anew among prompts, in whole clusters: what a label, or a family, would be if it meant nothing.

Prompts of one wording are alike. Where a wording holds several values, they are dealt anew among its prompts; wordings
that hold one value each are dealt as a whole, for their prompts count once, however many they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, eq=False)
class Dealing:
    """Values [n] (numbers from 0), and what of them can be exchanged."""

    values: np.ndarray
    mixed: tuple[np.ndarray, ...]
    """Rows of each cluster that holds several values."""
    whole: np.ndarray
    """Rows of clusters that hold one value each."""
    which: np.ndarray
    """The number of the cluster of each of these, from 0."""
    held: np.ndarray
    """The value of each such cluster."""

    @classmethod
    def of(cls, values: np.ndarray, clusters: np.ndarray | None = None) -> Dealing:
        """Of values [n] whose clusters [n] are given; without them every prompt is its own."""
        each = np.arange(len(values)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
        low, high = np.full(each.max(initial=0) + 1, len(values)), np.zeros(each.max(initial=0) + 1, int)
        np.minimum.at(low, each, values)
        np.maximum.at(high, each, values)
        mixed = [np.flatnonzero(each == one) for one in np.flatnonzero(low < high)]
        whole = np.flatnonzero((low == high)[each])
        which = np.unique(each[whole], return_inverse=True)[1]
        return cls(values, tuple(mixed), whole, which, low[low == high])

    def __call__(self, generator: torch.Generator) -> np.ndarray:
        """The next deal: values [n].

        >>> deal = Dealing.of(np.array([0, 0, 1, 1, 2, 0]), np.array([0, 0, 1, 1, 2, 2]))
        >>> sorted({tuple(deal(torch.Generator().manual_seed(i)).tolist()) for i in range(40)})
        [(0, 0, 1, 1, 0, 2), (0, 0, 1, 1, 2, 0), (1, 1, 0, 0, 0, 2), (1, 1, 0, 0, 2, 0)]
        """
        given = self.values.copy()
        for rows in self.mixed:
            given[rows] = self.values[rows][_order(len(rows), generator)]
        if len(self.held):
            given[self.whole] = self.held[_order(len(self.held), generator)][self.which]
        return given

    @property
    def by_prompt(self) -> bool:
        """Whether prompts are dealt one by one."""
        return not self.mixed and len(self.held) == len(self.values)

    @property
    def changes(self) -> bool:
        """Whether a deal can be more than other names for the same groups: some value is held by two units."""
        return bool(self.mixed) or len(np.unique(self.held)) < len(self.held)


def dealt_by(unit: str) -> str:
    """How values are dealt where ``unit`` is what prompts share.

    >>> dealt_by("wording")
    'dealt anew within each wording, and between those of one value'
    """
    return (
        "dealt anew among prompts"
        if unit == "prompt"
        else f"dealt anew within each {unit}, and between those of one value"
    )


def _order(n: int, generator: torch.Generator) -> np.ndarray:
    return torch.randperm(n, generator=generator).numpy()
