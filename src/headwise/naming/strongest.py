"""The strongest cells of subjects over many texts: at most one per text, drawn as :mod:`headwise.naming.sample` draws
them, where nothing is to be named and no other cell is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from headwise.bases.singular import one_thread
from headwise.naming.cells import Cells
from headwise.naming.reservoir import Kept
from headwise.naming.sample import NumberedText, PassedTexts, Scored, strongest_of
from headwise.progress import Tick
from headwise.scale.stages import ValueJob
from headwise.scale.work import Chunk

if TYPE_CHECKING:
    from headwise.model.model import Model


@dataclass(frozen=True, eq=False)
class Strongest:
    """The strongest cell of each subject in each of some texts: [subjects, texts] each; −1 where none is positive."""

    text: np.ndarray
    destination: np.ndarray
    source: np.ndarray
    score: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Strongest]) -> Strongest:
        """Those of several batches of texts, one after another."""
        names = ("text", "destination", "source", "score")
        return cls(*(np.concatenate([getattr(part, name) for part in parts], 1) for name in names))

    def kept(self, subject: int, most: int) -> Kept:
        """A subject's strongest cells, strongest first; of equal ones the earlier."""
        there = np.flatnonzero(self.text[subject] >= 0)
        best = there[np.argsort(-self.score[subject, there], kind="stable")[:most]]
        cells = Cells(*(getattr(self, name)[subject, best] for name in ("text", "destination", "source")))
        return Kept(cells, self.score[subject, best])


@dataclass(frozen=True)
class StrongestJob(ValueJob):
    """The strongest cell of each subject in each text of a batch."""

    measured: Scored
    kind = Strongest

    @torch.no_grad()
    def make(self, model: Model, chunk: Chunk[NumberedText], _tick: Tick, /) -> Strongest:
        with one_thread():
            batch = PassedTexts(model, self.measured, chunk, 0)
            width, shape = batch.stream.batch.ids.shape[1], (len(self.measured.every), len(chunk))
            cell, score = torch.full(shape, -1), torch.zeros(shape)
            for numbers, scores, mask in batch.blocks():
                flat = scores.float().cpu().masked_fill(~mask.cpu(), -torch.inf).flatten(2)
                value, at = strongest_of(flat)
                cell[numbers] = torch.where(value > 0, at, -1)
                score[numbers] = value.clamp(min=0)
        there = cell >= 0
        return Strongest(
            torch.where(there, batch.numbers, -1).int().numpy(),
            torch.where(there, cell // width, -1).int().numpy(),
            torch.where(there, cell % width, -1).int().numpy(),
            score.numpy(),
        )
