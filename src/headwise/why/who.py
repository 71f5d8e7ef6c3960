"""Who wrote it: the smallest set of signals that causes the attention, and the writers of each named feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headwise.contrast.attribution import query_split
from headwise.contrast.bank import BankFeature
from headwise.tracing.search import LayerSearch, Rules, SideSignals
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Side


@dataclass(frozen=True)
class Writer:
    """One component that wrote part of the cause, at one token, into some channels of one side.

    ``share`` is the part of the drop in attention that its removal made; shares of a side sum to one.
    """

    component: Component
    side: Side
    position: int
    channels: tuple[int, ...]
    drop: float
    share: float


@dataclass(frozen=True)
class FeatureWriter:
    """What one component wrote into a feature's subspace, as its part of the feature's logit."""

    component: Component
    side: Side
    position: int
    logit: float


@dataclass(frozen=True)
class FeatureWriters:
    """The writers of one feature on both sides; each side sums to ``logit`` (Eq. W2)."""

    name: str
    logit: float
    writers: tuple[FeatureWriter, ...]
    error: float


@dataclass(frozen=True)
class Who:
    """The minimal causal set of both sides. ``threshold`` is the attention that its removal has to fall below."""

    threshold: float
    writers: tuple[Writer, ...]
    signals: dict[Side, SideSignals]
    features: tuple[FeatureWriters, ...]
    error: float
    """How far the parts of the query and key are from the model's own vectors."""

    def of(self, side: Side) -> tuple[Writer, ...]:
        return tuple(writer for writer in self.writers if writer.side == side)

    @property
    def unresolved(self) -> tuple[Side, ...]:
        """Sides on which no set of allowed size takes the attention below the threshold."""
        return tuple(side for side, found in self.signals.items() if not found.resolved)


def who(
    up: PromptWrites,
    cell: Cell,
    attention: float,
    features: Sequence[BankFeature] = (),
    tau: float | None = None,
) -> Who:
    """Search both sides of the cell for the smallest cause, and name who wrote it."""
    head, d, s = cell
    rules = Rules(tau=tau)
    threshold = rules.threshold(int(up.visible(head.layer)[d].sum()), attention)
    found = LayerSearch(up.bases, head.layer, rules, up.dtype).run(up, [cell])[0]
    writers = [writer for signals in found.values() for writer in _writers(signals)]
    stream = up.stream
    places: dict[Side, int] = {"query": d, "key": s}
    shares = {side: stream.shares(head, side, place, up.prompt) for side, place in places.items()}
    written = ()
    if features:
        split = query_split({f.name: f.query for f in features}, "shapley")
        q, k = shares["query"].whole.double(), shares["key"].whole.double()
        scale = float(up.scale[head.layer])
        written = []
        for feature, matrix in zip(features, split.to(q), strict=True):
            logit = scale * float(k @ matrix @ q)
            through = {"query": matrix.mT @ k, "key": matrix @ q}
            listed: list[FeatureWriter] = []
            for side, place in places.items():
                values = (scale * shares[side].vectors.double() @ through[side]).tolist()
                pairs = zip(shares[side].components, values, strict=True)
                listed += [FeatureWriter(component, side, place, value) for component, value in pairs]
            off = max(abs(sum(w.logit for w in listed if w.side == side) - logit) for side in shares)
            ordered = tuple(sorted(listed, key=lambda writer: -abs(writer.logit)))
            written.append(FeatureWriters(feature.name, logit, ordered, off))
        written = tuple(written)
    error = max(parts.error for parts in shares.values())
    return Who(threshold, tuple(writers), found, written, error)


def _writers(found: SideSignals) -> list[Writer]:
    total, position = found.attention - found.after, found.cell.at(found.side)
    made = [
        Writer(
            component=one.signal.writer,
            side=found.side,
            position=position,
            channels=one.signal.channels,
            drop=one.drop,
            share=one.drop / total if total else 0.0,
        )
        for one in found.by_writer()
    ]
    return sorted(made, key=lambda writer: -writer.drop)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation.

    >>> mean_and_spread([1.0, 3.0])
    (2.0, 1.0)
    """
    numbers = torch.tensor(values, dtype=torch.float64)
    return float(numbers.mean()), float(numbers.std(correction=0))
