"""Who wrote it: the writers' rows of the table on both sides, and the whole writers that cause the attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from headwise.contrast.attribution import query_split
from headwise.contrast.bank import BankFeature
from headwise.tracing.mlps import MLPAccount, SignedTotals, read_mlp
from headwise.tracing.search import LayerSearch, Rules, SideSignals
from headwise.tracing.table import LogOddsTable, stream_readings
from headwise.tracing.writers import WriterSet, headline, writer_set
from headwise.tracing.writes import PromptWrites
from headwise.types import Component, Side
from headwise.why.what import What

SIDES: tuple[Side, ...] = ("query", "key")
ROWS = 12
"""Writers of each side that have a row of their own, beside those of the cause."""
THROUGH = 3
"""MLPs of each side whose writes are followed to what they read."""
POSITIONS = 16
"""Keys at which an MLP is followed on the key side, at most: those that count most."""


@dataclass(frozen=True)
class WriterRow:
    """One writer's part of the log-odds on one side: a row of the table.

    On the query side a writer wrote at the query, on the key side at every key. ``writer`` None is all others together.
    """

    side: Side
    """The side that it wrote into."""
    writer: Component | None
    """Who wrote; None is all others together."""
    log_odds: float
    """Its part of the log-odds, over all channels."""
    channels: tuple[float, ...]
    """Its part in each channel of :attr:`What.shown`; what is left of ``log_odds`` is in all other channels."""
    count: int = 1
    """How many writers the row stands for."""
    cause: bool = False
    """Whether it belongs to the set of whole writers that causes the attention."""
    mlp: MLPAccount | None = None
    """For an MLP of the strongest: what it read, and its neurons."""


@dataclass(frozen=True)
class FeatureWriter:
    """What one component wrote into a feature's subspace, as its part of the feature's log-odds."""

    component: Component
    """Who wrote."""
    side: Side
    """The side that it wrote into."""
    position: int
    """Where: the query, or the key."""
    log_odds: float
    """Its part of the feature's log-odds."""


@dataclass(frozen=True)
class FeatureWriters:
    """The writers of one feature on both sides; each side sums to ``log_odds``."""

    name: str
    """The feature's name."""
    log_odds: float
    """The feature's part of the log-odds."""
    writers: tuple[FeatureWriter, ...]
    """Both sides, the largest part first."""
    error: float
    """How far a side's parts are from summing to it, at most."""


@dataclass(frozen=True)
class Who:
    """The writers of both sides, and what of them causes the attention.

    ``threshold`` is the attention that a cause has to take the cell below.
    """

    threshold: float
    """The attention that a cause has to take the cell below."""
    rows: tuple[WriterRow, ...]
    """Each side's strongest writers and its cause, by the size of their part, then all others together."""
    totals: dict[Side, SignedTotals]
    """What all writers of a side that help bring, and what all that hinder take."""
    sets: dict[Side, WriterSet]
    """Of each side, the whole writers that cause the attention."""
    signals: dict[Side, SideSignals]
    """The same question asked of single channels of writers."""
    features: tuple[FeatureWriters, ...] = field(default=())
    """The writers of named features, if a bank was given."""

    def of(self, side: Side) -> tuple[WriterRow, ...]:
        """The rows of one side."""
        return tuple(row for row in self.rows if row.side == side)

    @property
    def pairs(self) -> list[tuple[Side, Component]]:
        """The side and the writer of every row that is one writer's."""
        return [(row.side, row.writer) for row in self.rows if row.writer is not None]

    @property
    def headline(self) -> WriterSet | None:
        """The set whose removal is the proof."""
        return headline([self.sets[side] for side in SIDES])


def who(
    up: PromptWrites,
    table: LogOddsTable,
    what: What,
    features: Sequence[BankFeature] = (),
    tau: float | None = None,
) -> Who:
    """The table's rows, the causes of both sides, and the writers of named features."""
    rules = Rules(tau=tau)
    threshold = rules.threshold(table.keys, table.attention)
    if table.attention <= threshold:
        # A weak attention is a firing too if somebody asks about it: explain half of it.
        threshold = table.attention / 2
    sets: dict[Side, WriterSet] = {side: writer_set(table, side, threshold) for side in SIDES}
    search = LayerSearch(up.bases, table.cell.head.layer, replace(rules, tau=threshold), up.dtype)
    rows: list[WriterRow] = []
    for side in SIDES:
        rows += _rows(up, table, side, what, sets[side])
    return Who(
        threshold=threshold,
        rows=tuple(rows),
        totals={side: SignedTotals.of(table.side(side).rows) for side in SIDES},
        sets=sets,
        signals=search.run(up, [table.cell])[0],
        features=tuple(_feature_writers(up, table, features)),
    )


def _rows(up: PromptWrites, table: LogOddsTable, side: Side, what: What, cause: WriterSet) -> list[WriterRow]:
    one = table.side(side)
    members = [one.row_of(member) for member in cause.members]
    chosen = sorted({*one.order[:ROWS], *members}, key=lambda row: -abs(float(one.rows[row])))
    columns = [part.channel for part in what.shown]
    cells = one.cells(chosen)[:, columns]
    values = one.rows[chosen]
    mlps = [row for row in chosen if one.writer(row).kind == "mlp"][:THROUGH]
    accounts = _accounts(up, table, side, [one.writer(row) for row in mlps])
    made = [
        WriterRow(
            side=side,
            writer=one.writer(row),
            log_odds=float(values[i]),
            channels=tuple(cells[i].tolist()),
            cause=row in members,
            mlp=accounts.get(one.writer(row)),
        )
        for i, row in enumerate(chosen)
    ]
    rest = len(one.order) - len(chosen)
    if rest:
        others = table.what[columns] - cells.sum(0)
        made.append(WriterRow(side, None, table.total - float(values.sum()), tuple(others.tolist()), rest))
    return made


def _accounts(
    up: PromptWrites, table: LogOddsTable, side: Side, mlps: Sequence[Component]
) -> dict[Component, MLPAccount]:
    """What the strongest MLPs read: on the key side at the keys that count most for each."""
    if not mlps:
        return {}
    one, layer = table.side(side), table.cell.head.layer
    positions, readings = stream_readings(table, side)
    made = {}
    for mlp in mlps:
        at = torch.arange(len(positions))
        if len(positions) > POSITIONS:
            written = up.static[one.row_of(mlp) - up.n_carried(layer), positions].double()
            at = (written * readings).sum(-1).abs().topk(POSITIONS).indices.sort().values
        made[mlp] = read_mlp(up, mlp.layer, positions[at].tolist(), readings[at]).account()
    return made


def _feature_writers(
    up: PromptWrites, table: LogOddsTable, features: Sequence[BankFeature]
) -> list[FeatureWriters]:
    """Who wrote into each feature: the feature's matrix instead of a channel."""
    if not features:
        return []
    (head, d, s), layer = table.cell, table.cell.head.layer
    scale = float(up.scale[layer])
    q = up.q[layer, head.index, d].double()
    weighted = table.gradient @ up.k[layer, head.index // up.group].double()
    split = query_split({feature.name: feature.query for feature in features}, "shapley").to(q)
    places: dict[Side, int] = {"query": d, "key": s}
    made = []
    for feature, matrix in zip(features, split, strict=True):
        total = scale * float(weighted @ matrix @ q)
        along: dict[Side, Tensor] = {"query": scale * matrix.mT @ weighted, "key": scale * matrix @ q}
        listed: list[FeatureWriter] = []
        off = 0.0
        for side, place in places.items():
            one = table.side(side)
            values = one.along(along[side])
            off = max(off, abs(float(values.sum()) - total))
            found = values.tolist()
            listed += [FeatureWriter(one.writer(row), side, place, found[row]) for row in one.order]
        ordered = tuple(sorted(listed, key=lambda writer: -abs(writer.log_odds)))
        made.append(FeatureWriters(feature.name, total, ordered, off))
    return made
