"""Cells of many texts as three columns: what signals are sampled at and what rules are asked about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headwise.errors import HeadwiseError


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells in a fixed order: number of the text, position that attends, position it attends to.

    >>> cells = Cells.of([(0, 5, 2), (3, 7, 7)])
    >>> len(cells), cells[1:].rows(), cells[cells.source < 5].rows()
    (2, [(3, 7, 7)], [(0, 5, 2)])
    >>> Cells.joined([cells, cells[:1]]).text.tolist()
    [0, 3, 0]
    """

    text: np.ndarray
    """[cells] int64: the number of each cell's text."""
    destination: np.ndarray
    """[cells] int64: the position that attends (the query)."""
    source: np.ndarray
    """[cells] int64: the position it attends to (the key)."""

    def __post_init__(self) -> None:
        for name in ("text", "destination", "source"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.int64))
        if not self.text.shape == self.destination.shape == self.source.shape or self.text.ndim != 1:
            shapes = ", ".join(str(list(x.shape)) for x in (self.text, self.destination, self.source))
            raise HeadwiseError(f"cells have three columns of one length, not {shapes}")

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int]]) -> Cells:
        """Cells from triples of text, destination and source."""
        table = np.array(list(rows), dtype=np.int64).reshape(-1, 3)
        return cls(table[:, 0], table[:, 1], table[:, 2])

    @classmethod
    def joined(cls, parts: Sequence[Cells]) -> Cells:
        """Several lists of cells, one after another."""
        if not parts:
            return cls.of([])
        return cls(
            np.concatenate([part.text for part in parts]),
            np.concatenate([part.destination for part in parts]),
            np.concatenate([part.source for part in parts]),
        )

    def rows(self) -> list[tuple[int, int, int]]:
        """The cells as triples."""
        return list(zip(self.text.tolist(), self.destination.tolist(), self.source.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.text)

    def __getitem__(self, chosen: slice | np.ndarray) -> Cells:
        """The chosen cells: by a slice, by a mask or by their numbers."""
        return Cells(self.text[chosen], self.destination[chosen], self.source[chosen])

    def __repr__(self) -> str:
        return f"Cells({len(self)} of {len(np.unique(self.text))} texts)"
