"""Which cells a name is found and tested on: drawn in one pass, of every subject at once, and nothing else is kept.

A first look at some explore texts gives each subject its *levels*: quantiles of its scores over all cells. Then every
text gives each subject at most one cell of a kind:

    positive   a cell at or above θ (99 %), drawn at random among them
    own        its own-slot negative (A): the same destination and another source, or the same source and another
               destination for a subject of the query's side, below the median and idle
    random     a cell of another text, at any place (B), idle
    matched    the cell at the positive's own two positions in another text (C), idle
    near       a cell between the 80 % and 95 % levels (D)
    middle, upper, top     cells of the bands 95–99 %, 99–99.9 %, and above
    strongest  its largest score, if that is positive

A subject is *idle* below half of θ (a head: half of that attention) and below the 95 % level. A rule that is true of
more than one cell in twenty acts below that level too: cells where it acts at half its strength would speak against
it, and for whatever narrower rule happens to miss them.

Texts come in an order that their content gives, so the first ones that have a cell are a random sample. The first token
attracts attention whatever it is; cells that read it are left out, and are what a sink's own subject looks at alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from headwise.bases.basis import Bases
from headwise.basis_names import BasisName
from headwise.naming.activation import Activations
from headwise.naming.signals import Subject
from headwise.progress import Tick
from headwise.randomness import keyed
from headwise.scale.stages import ValueJob
from headwise.scale.work import Chunk

if TYPE_CHECKING:
    from headwise.contrast.bank import BankFeature
    from headwise.model.model import Model
    from headwise.types import Head

CellKind = Literal["positive", "own", "random", "matched", "near", "middle", "upper", "top", "strongest"]
KINDS: tuple[CellKind, ...] = (
    "positive",
    "own",
    "random",
    "matched",
    "near",
    "middle",
    "upper",
    "top",
    "strongest",
)
QUANTILES = (0.5, 0.8, 0.95, 0.99, 0.999)
LEAST_ATTENTION = 0.3
"""A head does not attend to a cell that gets less of its row, however rare more is."""
PILOT = 64
"""Explore texts that give the levels."""
PILOT_CELLS = 256
"""Cells of each of them, the same for all subjects."""
BATCH = 16
"""Texts that pass through the model together."""
PARTNERS = 8
"""Other texts that are tried for a negative."""

NumberedText = tuple[int, tuple[int, ...]]
"""A text's number and its token ids."""


@dataclass(frozen=True, eq=False)
class Levels:
    """Quantiles of every subject's scores on explore cells: [subjects] each."""

    median: np.ndarray
    low: np.ndarray
    """80 %."""
    high: np.ndarray
    """95 %."""
    theta: np.ndarray
    """99 %, and no less than nothing (a head: three tenths of the attention): the threshold of positives."""
    top: np.ndarray
    """99.9 %."""
    idle: np.ndarray
    """Half of θ (a head: of that attention), and no more than 95 %: a subject does not act below it."""

    @classmethod
    def of(cls, subjects: Sequence[Subject], scores: np.ndarray) -> Levels:
        """From scores [subjects, cells]; NaN where a cell does not exist."""
        median, low, high, upper, top = np.nanquantile(scores, QUANTILES, axis=1).astype(np.float32)
        heads = np.array([subject.level in ("head", "sink") for subject in subjects])
        least = np.where(heads, np.log(LEAST_ATTENTION / (1 - LEAST_ATTENTION)), np.finfo(np.float32).tiny)
        theta = np.maximum(upper, least.astype(np.float32))
        # in a head's log-odds half is half of the attention; elsewhere scores are parts, which have a zero
        attention = 0.5 / (1 + np.exp(-theta.astype(np.float64)))
        half = np.where(heads, np.log(attention / (1 - attention)), theta / 2).astype(np.float32)
        return cls(median, low, high, theta, np.maximum(top, theta), np.minimum(high, half))


@dataclass(frozen=True)
class Scored:
    """What a job needs to score cells: subjects, and the maps they are read through."""

    subjects: tuple[Subject, ...]
    turned: int | None
    """With the rotated control of every subject behind them, of this seed; None: without."""
    basis: BasisName
    features: tuple[tuple[tuple[Head, str], BankFeature], ...] = ()
    beside: tuple[Subject, ...] = ()
    """More subjects, behind all others: without a control, and to be looked at only."""
    _made: dict[int, list[Activations]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def activations(self, model: Model) -> list[Activations]:
        """The subjects' activations and their controls', made once per process."""
        if id(model) not in self._made:
            bases = Bases.of(model, self.basis.kind, frame=self.basis.frame)
            asked = [(self.subjects, None), (self.subjects, self.turned), (self.beside, None)]
            if self.turned is None:
                del asked[1]
            self._made[id(model)] = [
                Activations(model, some, bases=bases, features=dict(self.features), turned=turn)
                for some, turn in asked
                if some
            ]
        return self._made[id(model)]

    @property
    def every(self) -> tuple[Subject, ...]:
        """The subjects, once more those of the control, and what is beside them."""
        return (self.subjects if self.turned is None else self.subjects * 2) + self.beside

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class PassedTexts:
    """Texts that passed through the model together, and a random order of each text's cells."""

    def __init__(self, model: Model, measured: Scored, chunk: Chunk[NumberedText], seed: int) -> None:
        self.acts = measured.activations(model)
        self.numbers = torch.tensor([number for number, _ in chunk.items])
        self.stream = model.split(
            [list(ids) for _, ids in chunk.items], layers=max(one.layers for one in self.acts)
        )
        n, width = self.stream.batch.ids.shape
        self.order = torch.stack([order_of(seed, ids, width) for _, ids in chunk.items])
        """[n, T, T]: which cell comes first where one is to be drawn."""
        self.first = (torch.arange(width) == 0).expand(n, width, width)

    def blocks(self) -> Any:
        """(numbers among all subjects and controls, scores [s, n, T, T], which cells exist [n, T, T])."""
        shift = 0
        for acts in self.acts:
            for numbers, scores, exists in acts.blocks(self.stream):
                ordinary = [i for i, number in enumerate(numbers) if not acts.subjects[number].sink]
                sinks = [i for i, number in enumerate(numbers) if acts.subjects[number].sink]
                for some, mask in ((ordinary, exists & ~self.first), (sinks, exists & self.first)):
                    if some:
                        yield (
                            [numbers[i] + shift for i in some],
                            scores if len(some) == len(numbers) else scores[some],
                            mask,
                        )
            shift += len(acts.subjects)


def order_of(seed: int, ids: tuple[int, ...], width: int) -> Tensor:
    """[T, T]: a random number for each cell of a text, which follows from its content."""
    digest = hashlib.sha256(repr(ids).encode()).hexdigest()
    order = torch.zeros(width, width)
    order[: len(ids), : len(ids)] = torch.rand(len(ids), len(ids), generator=keyed(seed, "cells", digest))
    return order


# --- levels --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Looked:
    """Scores of some cells [subjects, cells]; NaN where a text has fewer."""

    scores: np.ndarray


@dataclass(frozen=True)
class LevelsJob(ValueJob):
    """Scores of random cells of some texts."""

    measured: Scored
    seed: int
    kind = Looked

    @torch.no_grad()
    def make(self, model: Model, chunk: Chunk[NumberedText], _tick: Tick) -> Looked:
        batch = PassedTexts(model, self.measured, chunk, self.seed)
        n, width = batch.stream.batch.ids.shape
        count = min(PILOT_CELLS, width * width)
        found = torch.full((len(self.measured.every), n, count), torch.nan)
        for numbers, scores, mask in batch.blocks():
            order = batch.order.masked_fill(~mask.cpu(), -1.0).flatten(1)
            chosen = order.topk(count)
            values = scores.flatten(2).cpu().gather(2, chosen.indices.expand(len(numbers), -1, -1))
            found[numbers] = values.float().masked_fill(chosen.values < 0, torch.nan)
        return Looked(found.flatten(1).numpy())


# --- cells ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drawn:
    """Cells of some texts: [kinds, subjects, texts] each; −1 where there is none."""

    text: np.ndarray
    destination: np.ndarray
    source: np.ndarray
    score: np.ndarray

    @classmethod
    def of(cls, cell: Tensor, text: Tensor, score: Tensor, width: int) -> Drawn:
        """From flat cells of texts of some width, −1 where there is none."""
        there = cell >= 0
        return cls(
            torch.where(there, text, -1).int().numpy(),
            torch.where(there, cell // width, -1).short().numpy(),
            torch.where(there, cell % width, -1).short().numpy(),
            torch.where(there, score, 0.0).numpy(),
        )


@dataclass(frozen=True)
class CellsJob(ValueJob):
    """One cell of each kind per subject and text."""

    measured: Scored
    levels: Levels
    seed: int
    kind = Drawn

    @torch.no_grad()
    def make(self, model: Model, chunk: Chunk[NumberedText], _tick: Tick) -> Drawn:
        batch = PassedTexts(model, self.measured, chunk, self.seed)
        n = len(chunk)
        shape = (len(KINDS), len(self.measured.every), n)
        cell, text = torch.full(shape, -1), torch.full(shape, -1)
        score = torch.zeros(shape)
        for numbers, scores, mask in batch.blocks():
            one = CellDraw(
                batch.numbers, batch.order, scores, mask, self.levels, numbers, self._query_sided(numbers)
            )
            cell[:, numbers], text[:, numbers], score[:, numbers] = one.all()
        return Drawn.of(cell, text, score, batch.stream.batch.ids.shape[1])

    def _query_sided(self, numbers: list[int]) -> Tensor:
        every = self.measured.every
        return torch.tensor([every[number].own_slot == "query" for number in numbers])[:, None]


def strongest_of(flat: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score of each text and its cell, [s, n] each; scores [s, n, T·T] are −inf where there is no cell."""
    found = flat.max(-1)
    return found.values, found.indices


class CellDraw:
    """The cells of one block of subjects: s subjects, n texts, T columns."""

    def __init__(
        self,
        texts: Tensor,
        order: Tensor,
        scores: Tensor,
        mask: Tensor,
        levels: Levels,
        subjects: Sequence[int],
        query_sided: Tensor,
    ) -> None:
        """``texts`` [n] are their numbers, ``order`` [n, T, T] a random order of their cells, ``mask`` [n, T, T] which
        cells there are; ``subjects`` [s] are numbers among the levels."""
        self.texts, self.width = texts, scores.shape[-1]
        self.mask, self.query_sided = mask.cpu(), query_sided
        self.flat = scores.float().cpu().masked_fill(~self.mask, -torch.inf).flatten(2)
        """[s, n, T·T]"""
        self.order = order.masked_fill(~self.mask, -1.0)
        self.median, self.low, self.high, self.theta, self.top, self.idle = (
            torch.from_numpy(level[list(subjects)])[:, None]
            for level in (levels.median, levels.low, levels.high, levels.theta, levels.top, levels.idle)
        )

    def all(self) -> tuple[Tensor, Tensor, Tensor]:
        """Cells, their texts and scores, [kinds, s, n] each, in the order of ``KINDS``."""
        above = torch.full_like(self.top, torch.inf)
        near, middle, upper, top = (
            self._inside(low, high)
            for low, high in (
                (self.low, self.high),
                (self.high, self.theta),
                (self.theta, self.top),
                (self.top, above),
            )
        )
        # bands are drawn by one order, so the draw of both is the earlier of their draws
        positive = torch.where(self._place(upper) >= self._place(top), upper, top)
        strongest, at = strongest_of(self.flat)
        largest = torch.where(strongest >= self.theta, at, -1)
        own = self._own(positive)
        positive = torch.where(own >= 0, positive, -1)
        random, random_text = self._random(positive)
        matched, matched_text = self._matched(positive)
        here = self.texts.expand_as(positive)
        cells = torch.stack((positive, own, random, matched, near, middle, upper, top, largest))
        texts = torch.stack((here, here, random_text, matched_text, here, here, here, here, here))
        values = [self._score(kind) for kind in (positive, own)]
        values += [self._score_at(random, random_text), self._score_at(matched, matched_text)]
        values += [self._score(kind) for kind in (near, middle, upper, top, largest)]
        return cells, texts, torch.stack(values)

    def _inside(self, low: Tensor, high: Tensor) -> Tensor:
        """[s, n]: a random cell of each text whose score is in a band; −1 where there is none."""
        inside = (self.flat >= low[..., None]) & (self.flat < high[..., None])
        drawn = torch.where(inside, self.order.flatten(1), -1.0).max(-1)
        return torch.where(drawn.values >= 0, drawn.indices, -1)

    def _place(self, cell: Tensor) -> Tensor:
        """[s, n]: where cells are in the random order; −1 for none."""
        found = (
            self.order.flatten(1).expand(len(cell), -1, -1).gather(2, cell.clamp(min=0)[..., None])[..., 0]
        )
        return torch.where(cell >= 0, found, -1.0)

    def _score(self, cell: Tensor) -> Tensor:
        return self.flat.gather(2, cell.clamp(min=0)[..., None])[..., 0]

    def _score_at(self, cell: Tensor, text: Tensor) -> Tensor:
        """Scores of cells of other texts of the batch."""
        where = torch.zeros(int(self.texts.max()) + 1, dtype=torch.long)
        where[self.texts] = torch.arange(len(self.texts))
        at = where[text.clamp(min=0)]
        rows = torch.arange(len(cell))[:, None].expand_as(cell)
        return self.flat[rows, at, cell.clamp(min=0)]

    def _own(self, positive: Tensor) -> Tensor:
        """[s, n]: the own-slot negative of each positive."""
        s, n = positive.shape
        cube = self.flat.view(s, n, self.width, self.width)
        d, at = positive.clamp(min=0) // self.width, positive.clamp(min=0) % self.width
        row = cube.gather(2, d[..., None, None].expand(-1, -1, 1, self.width))[:, :, 0]
        column = cube.gather(3, at[..., None, None].expand(-1, -1, self.width, 1))[..., 0]
        values = torch.where(self.query_sided[..., None], column, row)
        texts = torch.arange(n)[None].expand(s, -1)
        order = torch.where(
            self.query_sided[..., None],
            self.order[texts[..., None], torch.arange(self.width), at[..., None]],
            self.order[texts, d],
        )
        fits = (values < torch.minimum(self.median, self.idle)[..., None]) & values.isfinite()
        drawn = torch.where(fits, order, -1.0).max(-1)
        cell = torch.where(self.query_sided, drawn.indices * self.width + at, d * self.width + drawn.indices)
        return torch.where((drawn.values >= 0) & (positive >= 0), cell, -1)

    def _random(self, positive: Tensor) -> tuple[Tensor, Tensor]:
        """[s, n]: a random cell of the next text, of the first few in its order."""
        n = positive.shape[1]
        some = self.order.flatten(1).topk(PARTNERS)
        values = self.flat.gather(2, some.indices.expand(len(positive), -1, -1))
        fits = (values < self.idle[..., None]) & (some.values >= 0) & values.isfinite()
        first = fits.float().argmax(-1)
        cell = some.indices.expand(len(positive), -1, -1).gather(2, first[..., None])[..., 0]
        cell = torch.where(fits.any(-1), cell, -1)
        other = torch.arange(n).roll(-1)
        found = torch.where(positive >= 0, cell[:, other], -1)
        return found if n > 1 else torch.full_like(found, -1), self.texts[other].expand_as(found)

    def _matched(self, positive: Tensor) -> tuple[Tensor, Tensor]:
        """[s, n]: the same two positions in the first of the next texts where the subject does not act."""
        n = positive.shape[1]
        found, text = torch.full_like(positive, -1), torch.full_like(positive, -1)
        rows = torch.arange(len(positive))[:, None].expand_as(positive)
        for step in range(1, min(PARTNERS, n - 1) + 1):
            other = torch.arange(n).roll(-step)
            values = self.flat[rows, other.expand_as(positive), positive.clamp(min=0)]
            fits = (found < 0) & (positive >= 0) & values.isfinite() & (values < self.idle)
            found = torch.where(fits, positive, found)
            text = torch.where(fits, self.texts[other].expand_as(text), text)
        return found, text
