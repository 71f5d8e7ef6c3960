"""What a plan takes from the query or the keys of its cell, and as much of something else.

Writers, signals, whole channels, named features and swapped keys all end as edits of two things: the query of the cell,
and the keys that its row sees. So one rule foresees them all, and the controls follow from what is changed:

* writers, signals and channels of one side: the three controls of a proof, at the length of what is taken;
* named features: random subspaces of the same rank, as an explanation tests them;
* whatever else, and both sides at once: random directions of the same length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from headwise.app import wire_edits
from headwise.bases.relative import channels_needed
from headwise.circuits.counterfactual import Removal, removal
from headwise.contrast.bank import BankFeature
from headwise.contrast.subspaces import random_subspaces
from headwise.errors import HeadwiseError
from headwise.model.edits import Edit, RemoveWithin, SwapWithin, VectorEdit
from headwise.randomness import keyed
from headwise.tracing.causes import attention
from headwise.tracing.table import LogOddsTable
from headwise.tracing.vectors import component_shares, signal_vectors
from headwise.tracing.writers import WriterSet, attention_without
from headwise.types import Component, Side, Signal, Subspace
from headwise.why.controls import TEXTS, Control, Pool, Taken, controls, drawn_control, matched
from headwise.why.feature_tests import SUBSPACES, edited_vectors, row_of

OfCell = (
    wire_edits.RemoveWriters
    | wire_edits.RemoveSignals
    | wire_edits.RemoveChannels
    | wire_edits.RemoveFeature
    | wire_edits.SwapKeys
)
WRITTEN = ("remove", "signals", "channels")
RANDOM_SUBSPACES = "random subspaces of the same rank in the place of the features"


@dataclass(frozen=True, eq=False)
class Change:
    """One edit of the cell: what is asked for, and how it is made."""

    kind: str
    side: Side
    dose: float
    edits: tuple[VectorEdit, ...]
    signals: tuple[Signal, ...] = ()
    """The signals that leave; a whole writer's has no channels."""
    feature: BankFeature | None = None

    def within(self, subspace: Subspace) -> list[VectorEdit]:
        """The same in another subspace."""
        return [replace(edit, subspace=subspace) for edit in self.edits]  # pyright: ignore[reportCallIssue]


class CellChanges:
    """All edits of one cell, in the order in which they were asked for."""

    def __init__(
        self, table: LogOddsTable, asked: Sequence[OfCell], features: Sequence[BankFeature], dose: float
    ) -> None:
        """``features`` are the head's own, as they are for this query; ``dose`` multiplies that of every edit."""
        self.table, self.cell, self.up = table, table.cell, table.query.up
        self.features = {one.name: one for one in features}
        self.changes = [self._change(one, dose * one.dose) for one in asked]
        self._q, self._k = edited_vectors(self.up, self.cell, [])
        self._query, self._keys = edited_vectors(self.up, self.cell, self._edits)

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def _edits(self) -> list[VectorEdit]:
        return [edit for change in self.changes for edit in change.edits]

    @property
    def edits(self) -> list[Edit]:
        """As the model makes them."""
        return list(self._edits)

    @cached_property
    def predicted(self) -> float:
        """The attention that is left, by the algebra alone."""
        if self._whole:  # as an explanation foresees it, to the last digit
            return attention_without(self.table, self.changes[0].side, self._whole)
        return float(row_of(self.up, self.cell, self._query, self._keys)[self.cell.key])

    # --- one edit ------------------------------------------------------------------------------------------------

    def _change(self, asked: OfCell, dose: float) -> Change:
        if isinstance(asked, wire_edits.RemoveWriters):
            signals = [self.signal(one, asked.side) for one in asked.writers]
            return self._written("remove", asked.side, dose, signals)
        if isinstance(asked, wire_edits.RemoveSignals):
            signals = [self.signal(one, asked.side, one.channels) for one in asked.signals]
            return self._written("signals", asked.side, dose, signals)
        if isinstance(asked, wire_edits.RemoveChannels):
            return self._channels(asked.side, dose, asked.channels)
        if isinstance(asked, wire_edits.RemoveFeature):
            return self._feature(asked.side, dose, self._named(asked.feature))
        return self._swap(asked, dose)

    def _written(self, kind: str, side: Side, dose: float, signals: Sequence[Signal]) -> Change:
        signals = list(dict.fromkeys(signals))
        whole = [one for one in signals if not one.channels]
        total = removal(self.up, self.cell, [one for one in signals if one.channels])
        vectors = [total.query if side == "query" else total.key] if len(whole) < len(signals) else []
        for one in whole:
            share = component_shares(self.up, self.cell.head, side, one.writer)
            vectors.append(share[self.cell.query] if side == "query" else share)
        added = torch.stack([one for one in vectors if one is not None]).sum(0)
        return Change(kind, side, dose, self._taken(side, added, dose), tuple(signals))

    def _channels(self, side: Side, dose: float, channels: Sequence[int]) -> Change:
        """All that anybody wrote into some channels: of the query, or of every key."""
        chosen = self.numbers(channels)
        layer, head = self.cell.head.layer, self.cell.head
        held = (
            self.up.q[layer, head.index] if side == "query" else self.up.k[layer, head.index // self.up.group]
        )
        everyone = Signal(head, side, Component("embedding"), chosen)
        vectors = signal_vectors(self.up, everyone, self.cell.query, held.double())
        return Change("channels", side, dose, self._taken(side, vectors, dose), (everyone,))

    def _feature(self, side: Side, dose: float, feature: BankFeature) -> Change:
        head, d = self.cell.head, self.cell.query
        if side == "query":
            edit = RemoveWithin(head=head, side="query", subspace=feature.query, positions=d, dose=dose)
        else:
            seen = list(range(d + 1))
            edit = RemoveWithin(head=head, subspace=feature.key, positions=seen, seen_by=d, dose=dose)
        return Change("feature", side, dose, (edit,), feature=feature)

    def _swap(self, asked: wire_edits.SwapKeys, dose: float) -> Change:
        head, d, s = self.cell
        if asked.other > d or asked.other == s or not bool(self.table.visible[asked.other]):
            raise HeadwiseError(
                f"position {asked.other} is not another token that {head} sees from {d}: swap {s} with one of those"
            )
        feature = None if asked.feature is None else self._named(asked.feature)
        within = None if feature is None else feature.key
        edit = SwapWithin(head=head, first=s, second=asked.other, subspace=within, dose=dose, seen_by=d)
        return Change("swap", "key", dose, (edit,), feature=feature)

    def _taken(self, side: Side, vectors: Tensor, dose: float) -> tuple[VectorEdit, ...]:
        one = Removal(self.cell, query=vectors) if side == "query" else Removal(self.cell, key=vectors)
        return tuple(edit for edit in one.edits(factor=dose) if isinstance(edit, VectorEdit))

    def _named(self, name: str) -> BankFeature:
        if name not in self.features:
            known = ", ".join(self.features) or "none: choose a run of features"
            raise HeadwiseError(f"{self.cell.head} has no feature {name!r}; it has {known}")
        return self.features[name]

    def signal(self, named: wire_edits.AnyWriter, side: Side, channels: Iterable[int] = ()) -> Signal:
        """A writer of one side, whole or in some channels; what is none is refused."""
        model, writer = self.up.stream.model, Component.parse(named.writer)
        if writer.kind == "head":
            if named.reads is None or named.reads >= self.up.tokens:
                raise HeadwiseError(f"writer {named.writer} is a head: say which token of the prompt it read")
            writer = replace(writer, source=named.reads)
        one = self.table.side(side)
        below = writer.layer < self.cell.head.layer
        row = one.row_of(writer) if below and writer.index < model.n_heads else len(one)
        if row >= len(one) or not bool(one.possible[row]):
            raise HeadwiseError(f"writer {named.writer} wrote nothing that {self.cell.head} could read")
        return Signal(self.cell.head, side, writer, self.numbers(channels))

    def numbers(self, channels: Iterable[int]) -> tuple[int, ...]:
        """Channels of the head, each once."""
        found, width = tuple(dict.fromkeys(channels)), self.up.stream.model.d_head
        strange = [one for one in found if one >= width]
        if strange:
            raise HeadwiseError(f"channel {strange[0]} is not there: {self.cell.head} has {width} channels")
        return found

    # --- as much of something else -------------------------------------------------------------------------------

    def controls(self, seed: int, draws: int) -> list[Control]:
        """Every control that fits what is changed."""
        sides = {one.side for one in self.changes}
        kinds = {one.kind for one in self.changes}
        if all(one.feature is not None for one in self.changes):
            return [self._subspaces(seed, draws)]
        if len(sides) > 1 or not kinds.issubset(WRITTEN):
            return [self._directions(seed, draws)]
        side, before = self.changes[0].side, self.table.attention
        if self._whole and self.predicted <= before:
            whole = WriterSet(side, before, 0.0, self.predicted, self._whole, (), "fixed")
            return controls(self.table, whole, seed, draws)
        labels = (str(self.cell), side, "signals" if kinds == {"signals"} else "bench")
        one, rises = self.table.side(side), self.predicted > self.table.attention
        taken, pool = self._all_taken(side), Pool.of(one)
        return matched(self.table, one, taken, pool, labels, seed=seed, draws=draws, whole=False, rises=rises)

    @cached_property
    def _whole(self) -> tuple[Component, ...]:
        """The writers, where nothing but whole writers of one side leaves: what an explanation takes away."""
        if any(one.kind != "remove" or one.dose != 1.0 for one in self.changes):
            return ()
        if len({one.side for one in self.changes}) != 1:
            return ()
        return tuple(dict.fromkeys(one.writer for one in self._signals))

    @property
    def _signals(self) -> list[Signal]:
        return [signal for change in self.changes for signal in change.signals]

    def _all_taken(self, side: Side) -> Taken:
        one, scale = self.table.side(side), float(self.up.scale[self.cell.head.layer])
        whole, used = [], set[int]()
        every = any(change.kind == "channels" for change in self.changes)
        for signal in self._signals:
            whole += [] if signal.channels else [one.row_of(signal.writer)]
            used |= set(signal.channels)
        rows = [] if every else list(dict.fromkeys(one.row_of(signal.writer) for signal in self._signals))
        device = self.table.logits.device
        members = torch.tensor(rows, dtype=torch.long, device=device)
        if whole:
            parts = one.cells(torch.tensor(whole, device=device)).sum(0)
            used |= set(parts.abs().argsort(descending=True)[: int(channels_needed(parts))].tolist())
        width = self.up.stream.model.d_head
        unused = torch.tensor([i for i in range(width) if i not in used], dtype=torch.long, device=device)
        seen = self.table.visible[:, None]
        if side == "query":
            vectors, held = (self._q - self._query)[None], self._q[None]
            logits = scale * (self._k @ vectors[0])
        else:
            vectors, held = (self._k - self._keys) * seen, self._k * seen
            logits = scale * (vectors @ self._q)
        written = held if every else one.written(members).sum(0)
        return Taken(members, unused, len(used), vectors, logits * self.table.visible, written)

    def _directions(self, seed: int, draws: int) -> Control:
        """Random directions: the query moves as far, and what the keys lost is turned by one rotation for all."""
        labels = (str(self.cell), *sorted({one.side for one in self.changes}), "bench")
        first, second = (
            self._random(keyed(seed, "directions", *labels, place), draws) for place in ("query", "key")
        )
        moved = self._q - (self._q - self._query).norm() * first
        lost = (self._k - self._keys) * self.table.visible[:, None]
        logits = moved @ self._k.mT - moved.norm(dim=1, keepdim=True) * (second @ lost.mT)
        scale = float(self.up.scale[self.cell.head.layer])
        rows = attention(logits * scale, self.table.visible, self.up.cap)
        return self._drawn("directions", TEXTS["directions"], rows)

    def _random(self, generator: torch.Generator, draws: int) -> Tensor:
        """Directions [draws, d_head] of length 1."""
        made = torch.randn(draws, len(self._q), generator=generator, dtype=torch.float64)
        return (made / made.norm(dim=1, keepdim=True)).to(self._q.device)

    def _subspaces(self, seed: int, draws: int) -> Control:
        """Every feature exchanged for random subspaces of its rank."""
        least, most = SUBSPACES
        draws, width = max(least, min(draws, most)), self.up.stream.model.d_head
        drawn = []
        for change in self.changes:
            assert change.feature is not None
            kind = "swap" if change.kind == "swap" else "ablation" if change.side == "query" else "key"
            rank = change.feature.query.rank if change.side == "query" else change.feature.key.rank
            generator = keyed(seed, "subspaces", change.feature.name, kind)
            drawn.append(random_subspaces(width, rank, draws, generator=generator))
        rows = []
        for draw in range(draws):
            pairs = zip(self.changes, drawn, strict=True)
            edits = [edit for change, bases in pairs for edit in change.within(Subspace(bases[draw]))]
            rows.append(row_of(self.up, self.cell, *edited_vectors(self.up, self.cell, edits)))
        return self._drawn("subspaces", RANDOM_SUBSPACES, torch.stack(rows))

    def _drawn(self, name: str, text: str, rows: Tensor) -> Control:
        rises = self.predicted > self.table.attention
        return drawn_control(name, text, rows, self.cell.key, self.predicted, rises=rises)
