"""What is kept of the cells that texts give: as much of ten thousand texts as of a few hundred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headwise.naming.cells import Cells
from headwise.naming.sample import KINDS, CellKind, Drawn

if TYPE_CHECKING:
    from headwise.naming.halves import Half

KEPT: dict[Half, int] = {"explore": 200, "test": 80}
"""Texts of each half whose cells are kept."""
STRONGEST = 200
"""The strongest cells that are kept, at most one per text."""


@dataclass(frozen=True, eq=False)
class Kept:
    """Cells of one kind and one subject, in the order they came in, with their scores."""

    cells: Cells
    score: np.ndarray

    def __len__(self) -> int:
        return len(self.cells)


class Reservoir:
    """What is kept of one half, whatever the number of texts: the first cells of each kind, and the strongest."""

    def __init__(self, half: Half, subjects: int) -> None:
        self.most = KEPT[half]
        shape = (len(KINDS), subjects, max(self.most, STRONGEST))
        self.text, self.destination, self.source = (np.full(shape, -1, dtype=np.int32) for _ in range(3))
        self.score = np.full(shape, -np.inf, dtype=np.float32)
        self.count = np.zeros((len(KINDS), subjects), dtype=np.int64)
        self.seen = np.zeros((len(KINDS), subjects), dtype=np.int64)
        """Texts that had a cell of the kind, also after enough were kept."""

    def add(self, drawn: Drawn) -> None:
        """Keep what is wanted of a chunk's cells."""
        for number, kind in enumerate(KINDS):
            # the pairs of a positive stay together: all four kinds are kept where there is a positive
            leading = 0 if kind in ("own", "random", "matched") else number
            there = drawn.text[leading] >= 0
            self.seen[number] += there.sum(1)
            if kind == "strongest":
                self._keep_strongest(number, drawn)
                continue
            place = self.count[number][:, None] + there.cumsum(1) - 1
            subject, text = np.nonzero(there & (place < self.most))
            at = place[subject, text]
            for name in ("text", "destination", "source", "score"):
                getattr(self, name)[number, subject, at] = getattr(drawn, name)[number, subject, text]
            self.count[number] = np.minimum(self.count[number] + there.sum(1), self.most)

    def _keep_strongest(self, number: int, drawn: Drawn) -> None:
        score = np.where(drawn.text[number] >= 0, drawn.score[number], -np.inf).astype(np.float32)
        score = np.concatenate([self.score[number], score], 1)
        # stable: of equal scores the earlier text stays
        best = np.argsort(-score, axis=1, kind="stable")[:, :STRONGEST]
        for name in ("text", "destination", "source"):
            both = np.concatenate([getattr(self, name)[number], getattr(drawn, name)[number]], 1)
            getattr(self, name)[number, :, :STRONGEST] = np.take_along_axis(both, best, 1)
        self.score[number, :, :STRONGEST] = np.take_along_axis(score, best, 1)
        self.count[number] = np.isfinite(self.score[number]).sum(1)

    def kept(self, kind: CellKind, subject: int) -> Kept:
        """A subject's cells of one kind. Own, random and matched cells are in the order of the positives they belong
        to; where one has none, its text is −1."""
        number = KINDS.index(kind)
        rows = slice(0, int(self.count[number, subject]))
        text, destination, source = (
            getattr(self, name)[number, subject, rows] for name in ("text", "destination", "source")
        )
        return Kept(Cells(text, destination, source), self.score[number, subject, rows].copy())
