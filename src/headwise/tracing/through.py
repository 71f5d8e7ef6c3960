"""Going on through MLPs: what an MLP wrote for a circuit, shared among what it read (docs/method/tracing.md §4).

Shares are linear in the reading, so all that read one MLP at one position are one reading: the sum of their vectors,
each scaled so that its product with what the MLP wrote is the attention (or the part of the answer) that this took.
What comes out is an account, not a cause: nothing was taken away to find it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from headwise.arguments import count, share
from headwise.tracing.mlps import read_mlp
from headwise.types import Component, Side

if TYPE_CHECKING:
    from headwise.tracing.writes import PromptWrites

Unit = Literal["attention", "answer"]
"""What the weight of an edge is a part of."""


@dataclass(frozen=True)
class MLPRules:
    """How far MLPs are followed."""

    cover: float = 0.8
    """Writers are taken, strongest first, until they hold this part of what all helping writers bring."""
    least: float = 0.05
    """A writer with a smaller part of it is left out."""
    floor: float = 0.02
    """So is one that accounts for less than this, in attention or in the answer's logits: there are many, and they hold
    next to nothing."""
    depth: int = 3
    """MLPs one behind the other."""

    @classmethod
    def checked(cls, cover: float, least: float, floor: float, depth: int) -> MLPRules | None:
        """The rules as a user gives them; None where MLPs are leaves."""
        rules = cls(
            share(cover, "mlp_cover", "a share"),
            share(least, "mlp_least", "a share"),
            share(floor, "mlp_floor", "a weight"),
            count(depth, "mlp_depth", "is no depth", least=0),
        )
        return None if rules.depth == 0 else rules


@dataclass(frozen=True, slots=True)
class MLPPart:
    """What an MLP's write owes to one of the writers that it read."""

    mlp: Component
    position: int
    side: Side
    """The side of the heads above for which the MLP wrote it; query for the answer."""
    unit: Unit
    writer: Component
    weight: float
    """The attention (or the part of the answer) that it accounts for."""
    helping: float
    """What all writers that help bring together, of which this is a part: they bring more than there is in the end,
    because others hinder."""
    influence: float
    """The part of the answer that passes through it."""


class _Reader(NamedTuple):
    """Everything that reads an MLP at a position for one purpose is one reader."""

    position: int
    side: Side
    unit: Unit


class _Reading(NamedTuple):
    vector: Tensor
    """[d_model]"""
    influence: float
    """The part of the answer that passes through it."""
    depth: int = 1
    """MLPs that were passed with it."""


class Follower:
    """The MLPs of one prompt that a circuit has met, from the top down: every reader of an MLP lies above it."""

    def __init__(self, up: PromptWrites, rules: MLPRules, influence: float = 0.0) -> None:
        """``influence`` is the part of the answer that must pass through an MLP for it to be followed."""
        self.up, self.rules, self.influence = up, rules, influence
        self._waiting: dict[int, dict[_Reader, _Reading]] = {}

    def read(
        self, layer: int, position: int, side: Side, unit: Unit, vector: Tensor, influence: float = 1.0
    ) -> None:
        """The MLP of a layer was read along a ``vector`` [d_model] of the stream, and so much of the answer with it."""
        self._meet(layer, _Reader(position, side, unit), _Reading(vector, influence))

    def _meet(self, layer: int, reader: _Reader, reading: _Reading) -> None:
        if reading.depth > self.rules.depth:
            return
        readers = self._waiting.setdefault(layer, {})
        if before := readers.get(reader):
            reading = _Reading(
                before.vector + reading.vector,
                before.influence + reading.influence,
                min(before.depth, reading.depth),
            )
        readers[reader] = reading

    def follow(self, layer: int, positions: Collection[int] | None = None) -> Iterator[MLPPart]:
        """What the readers of a layer's MLP owe to which writers; lower MLPs among these wait for their layer.

        With ``positions``, only what was read at these.
        """
        waiting = self._waiting.pop(layer, {})
        strong = (reader for reader, read in waiting.items() if read.influence >= self.influence)
        readers = sorted(one for one in strong if positions is None or one.position in positions)
        if not readers:
            return
        vectors = torch.stack([waiting[reader].vector for reader in readers])
        found = read_mlp(self.up, layer, [reader.position for reader in readers], vectors)
        for places, shares in found.chunks(range(len(readers))):
            helping = shares.clamp(min=0).sum(1, dtype=torch.float64).tolist()
            for place, index, weight in self._strongest(shares):
                reader, writer = readers[places[place]], found.writer(index)
                influence = waiting[reader].influence * weight / helping[place]
                if writer.kind == "mlp":
                    vector = found.read.pulled[places[place]]
                    self._meet(writer.layer, reader, _Reading(vector, influence, waiting[reader].depth + 1))
                yield MLPPart(Component("mlp", layer), *reader, writer, weight, helping[place], influence)

    def _strongest(self, shares: Tensor) -> list[tuple[int, int, float]]:
        """The strongest helping writers of some readings [m, writers]: reading, writer and share of each."""
        helping = shares.clamp(min=0)
        whole = helping.sum(1, dtype=torch.float64)[:, None]
        # No more than this many can each have the least share.
        most = min(shares.shape[1], int(1 / self.rules.least) + 1)
        values, writers = helping.topk(most, 1)
        before = values.cumsum(1, dtype=torch.float64) - values
        least = (self.rules.least * whole).clamp(min=self.rules.floor)
        taken = (before < self.rules.cover * whole) & (values >= least) & (values > 0)
        rows = taken.nonzero()[:, 0]
        return list(zip(rows.tolist(), writers[taken].tolist(), values[taken].tolist(), strict=True))
