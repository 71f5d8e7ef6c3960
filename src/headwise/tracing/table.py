"""One table of what × who: the log-odds of a cell over writers and channels, once for each side.

With g of :mod:`headwise.tracing.causes`, a the query's and b the keys' coordinates (docs/method/why.md),

    query side   v_ck = a_ck · (gᵀb)_k          key side   v_ck = a_k · (gᵀb_c)_k

Sums over writers (*what*) are the same on both sides, and both sides sum to the log-odds. Sums over channels (*who*)
need no basis: a writer's part is its own vector y_c times one vector for all. On the key side that is
y_c = Σ_t g_t · share_c(t), so nothing of the size writers × channels × keys is built, and cells only for the rows that
are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.model.attend import identity_tolerance
from headwise.model.reading import side_maps
from headwise.tracing.causes import log_odds, log_odds_gradient
from headwise.tracing.search import LayerChunk, LayerSearch, Rules
from headwise.tracing.sides import KeySide, QuerySide
from headwise.tracing.whole import over_tokens, whole_writers
from headwise.types import Cell, Component, Side

if TYPE_CHECKING:
    from pandas import DataFrame

    from headwise.bases.basis import Basis
    from headwise.tracing.writes import PromptWrites


@dataclass(frozen=True, eq=False)
class SideTable:
    """The log-odds of one cell by writer and channel, on one side. N writers, K channels, w = d_head, T tokens."""

    cell: Cell
    side: Side
    up: PromptWrites = field(repr=False)
    rows: Tensor = field(repr=False)
    """[N]: each writer's part of the log-odds, whatever the basis."""
    columns: Tensor = field(repr=False)
    """[K]: each channel's part, from the model's own query and keys; the same on both sides."""
    vectors: Tensor = field(repr=False)
    """[N, w]: what each writer brought, y_c."""
    reading: Tensor = field(repr=False)
    """[w, K]: cells are ``vectors @ reading``."""
    possible: Tensor = field(repr=False)
    """[N]: False where a head would have to have read a token after the query."""
    searched: QuerySide | KeySide = field(repr=False)
    """Gives whole writers' rows over keys."""

    def writer(self, row: int) -> Component:
        """Who a row is."""
        return self.up.component(self.cell.head.layer, row)

    def row_of(self, writer: Component) -> int:
        """The row of a writer."""
        return self.up.row_of(self.cell.head.layer, writer)

    def cells(self, rows: Sequence[int] | Tensor) -> Tensor:
        """[n, K]: some rows in full."""
        return self.vectors[rows].double() @ self.reading

    def logits(self, rows: Tensor) -> Tensor:
        """[n, T]: what some whole writers add to the row of logits before a soft-cap; 0 at keys it does not see."""
        return self.searched.whole_rows(rows)

    def written(self, rows: Tensor) -> Tensor:
        """[n, places, w]: what some whole writers are in head space: of the query [n, 1, w], or of every visible key
        [n, T, w]. Taking it away takes away :meth:`logits`."""
        return self.searched.whole_vectors(rows)

    def along(self, vector: Tensor) -> Tensor:
        """[N]: what each writer brought along a vector [w] that multiplies the query, or the sum of g_t times keys."""
        reading = self.searched.whole_reading(vector[None])[0]
        return (self.vectors @ reading.to(self.vectors.dtype)).double()

    def by_channel(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors as :meth:`written` gives them, split by channel: what each channel adds to the row of logits [K, T],
        and the products of the channels' vectors with one another [K, K]."""
        chunk = self.searched.chunk
        query_map, key_map = chunk.query_map[0], chunk.key_map[0]
        if self.side == "query":
            own = (vectors @ query_map)[0]
            return own[:, None] * chunk.scale * chunk.b[0].mT, own[:, None] * own * (key_map @ key_map.mT)
        own = vectors @ key_map.mT
        return (own * chunk.a[0]).mT, (own.mT @ own) * (query_map.mT @ query_map)

    def within(self, rows: Tensor, channels: Tensor) -> Tensor:
        """[places, w]: what some writers wrote into some channels, together; ``channels`` [n, K] is 1 where a writer's
        part counts. With every channel this is the sum of :meth:`written`."""
        chunk, own = self.searched.chunk, self.written(rows)
        query_map, key_map = chunk.query_map[0], chunk.key_map[0]
        into, out = (query_map, key_map) if self.side == "query" else (key_map.mT, query_map.mT)
        return ((own @ into) * channels[:, None]).sum(0) @ out

    @property
    def over_tokens(self) -> Tensor:
        """[M]: :attr:`rows` with each head's added up over the tokens that it read; :meth:`whole_writers` are who."""
        return over_tokens(self.up, self.cell.head.layer, self.rows)

    def whole_writers(self) -> list[Component]:
        """Who the rows of :attr:`over_tokens` are: heads whatever they read, then all others."""
        return whole_writers(self.up.stream.model, self.cell.head.layer)

    @cached_property
    def order(self) -> list[int]:
        """Writers by the size of their part, those that cannot have written left out: strongest first."""
        sizes = self.rows.abs().masked_fill(~self.possible, -1.0)
        return sizes.argsort(descending=True, stable=True)[: int(self.possible.sum())].tolist()

    @property
    def error(self) -> float:
        """How far the writers' sums by channel are from the channels' own."""
        return float((self.vectors.sum(0, dtype=torch.float64) @ self.reading - self.columns).abs().max())

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class LogOddsTable:
    """Both sides of one cell's table, and the row of logits it explains."""

    cell: Cell
    total: float
    """log(A / (1 − A)) + log(keys − 1)."""
    keys: int
    """How many keys the row sees."""
    attention: float
    logits: Tensor = field(repr=False)
    """[T] before a soft-cap; 0 where not visible."""
    visible: Tensor = field(repr=False)
    """[T]"""
    gradient: Tensor = field(repr=False)
    """[T]: g."""
    pattern: Tensor = field(repr=False)
    """[T]: the whole row of attention."""
    by_channel: Tensor = field(repr=False)
    """[T, K]: the logits by channel."""
    query: SideTable
    key: SideTable

    def side(self, side: Side) -> SideTable:
        return self.query if side == "query" else self.key

    @property
    def basis(self) -> Basis:
        """The head's channels."""
        return self.query.up.bases.head(self.cell.head)

    @property
    def what(self) -> Tensor:
        """[K]: the log-odds by channel."""
        return self.query.columns

    @property
    def error(self) -> float:
        """How far sums over channels and over writers are from the total, at most."""
        sums = [self.what, self.query.rows, self.key.rows]
        return max(abs(float(one.sum(dtype=torch.float64)) - self.total) for one in sums)

    @property
    def tolerance(self) -> float:
        """How far they may be, in the model's precision.

        A query or key that is off by its relative tolerance moves scale · Σ g_t q·k_t by no more than that times
        scale · Σ |g_t| ‖q‖ ‖k_t‖.
        """
        head, up = self.cell.head, self.query.up
        query = up.q[head.layer, head.index, self.cell.query].double()
        keys = up.k[head.layer, head.index // up.group].double()
        reach = (
            float(up.scale[head.layer]) * float(self.gradient.abs() @ keys.norm(dim=-1)) * float(query.norm())
        )
        return identity_tolerance(up.stream.model.rounds_to) * reach


def log_odds_table(up: PromptWrites, cell: Cell) -> LogOddsTable:
    """The table of one cell."""
    layer = cell.head.layer
    shared = LayerSearch(up.bases, layer, Rules(), up.dtype)
    chunk = LayerChunk(shared, up, [cell], log_odds_gradient)
    columns = (chunk.a * (chunk.g[:, None] @ chunk.b)[:, 0])[0]
    visible = chunk.visible[0]
    total = log_odds(chunk.logits, chunk.visible, chunk.s, cap=chunk.cap)
    return LogOddsTable(
        cell=cell,
        total=float(total),
        keys=int(visible.sum()),
        attention=float(chunk.attention[0]),
        logits=chunk.logits[0],
        visible=visible,
        gradient=chunk.g[0],
        pattern=chunk.pattern[0],
        by_channel=chunk.a[0] * chunk.b[0],
        query=_side(chunk, "query", columns),
        key=_side(chunk, "key", columns),
    )


def _side(chunk: LayerChunk, which: Side, columns: Tensor) -> SideTable:
    side = QuerySide(chunk) if which == "query" else KeySide(chunk)
    vectors, up = side.vectors(), chunk.up
    reading, weight = side.reading()
    possible = torch.ones(len(vectors), dtype=torch.bool, device=vectors.device)
    heads = possible[: up.n_carried(chunk.layer)].view(-1, up.tokens)
    heads[:] = torch.arange(up.tokens, device=vectors.device) <= chunk.firings[0].query
    return SideTable(
        cell=chunk.firings[0],
        side=which,
        up=up,
        rows=(vectors @ side.whole_reading(side.counterpart())[0].to(vectors.dtype)).double(),
        columns=columns,
        vectors=vectors,
        reading=(reading * weight[:, None])[0],
        possible=possible,
        searched=side,
    )


def stream_readings(table: LogOddsTable, side: Side) -> tuple[Tensor, Tensor]:
    """Positions [P] and vectors of the stream [P, d_model]: a write's part of the log-odds is its product with these,
    summed over positions. One position on the query side, every visible key on the other.
    """
    (head, d, _), up, layer = table.cell, table.side(side).up, table.cell.head.layer
    here = torch.tensor([d], device=up.device) if side == "query" else table.visible.nonzero()[:, 0]
    index = head.index if side == "query" else head.index // up.group
    scale, rotary = float(up.scale[layer]), up.stream.rotary(layer, up.prompt)
    if side == "query":
        keys = up.k[layer, head.index // up.group].double()
        vectors = scale * (table.gradient @ keys)[None]
    else:
        vectors = scale * table.gradient[here, None] * up.q[layer, head.index, d].double()
    if rotary is not None:
        vectors = rotary.at_positions(here).transposed(vectors[None, None])[0, 0]
    scalar = up.stream.scalars(layer, side).stream[up.prompt, up.span, index][here].double()
    maps = side_maps(up.stream.model, layer, side, torch.float64).matrix[index]
    return here, (vectors * scalar[:, None]) @ maps


# --- the table as a value --------------------------------------------------------------------------------------------

MOST = 512
"""Writers with a row of their own; the others, one by one next to nothing, are one row."""


@dataclass(frozen=True, eq=False)
class WriterTable:
    """Writers × channels of one side, in log-odds (nats)."""

    side: Side
    """The side that the writers wrote into."""
    attention: float
    """The cell's attention."""
    total: float
    """log(A / (1 − A)) + log(keys − 1): what all cells sum to."""
    writers: tuple[Component | None, ...]
    """The strongest first, whatever their sign; None, at the end, is all others together."""
    cells: Tensor
    """[writers, channels]"""

    @classmethod
    def of(cls, table: LogOddsTable, side: Side) -> WriterTable:
        one = table.side(side)
        chosen = one.order[:MOST]
        cells = one.cells(chosen)
        writers: list[Component | None] = [one.writer(row) for row in chosen]
        if len(one.order) > len(chosen):
            cells = torch.cat((cells, (table.what - cells.sum(0))[None]))
            writers.append(None)
        return cls(side, table.attention, table.total, tuple(writers), cells.cpu())

    @property
    def rows(self) -> Tensor:
        """[writers]: *who*, whatever the basis."""
        return self.cells.sum(1)

    @property
    def columns(self) -> Tensor:
        """[channels]: *what*, the same on both sides."""
        return self.cells.sum(0)

    def to_pandas(self) -> DataFrame:
        """One row per writer: its name, its sum, and a column per channel; needs the extra ``headwise[pandas]``."""
        from headwise.frames import frame

        numbers = zip(self.writers, self.rows.tolist(), self.cells.tolist(), strict=True)
        return frame(
            [
                {
                    "writer": "others" if one is None else str(one),
                    "log_odds": total,
                    **{str(channel): cell for channel, cell in enumerate(cells)},
                }
                for one, total, cells in numbers
            ]
        )

    def __repr__(self) -> str:
        return (
            f"WriterTable({self.side}, {self.cells.shape[0]} writers × {self.cells.shape[1]} channels, "
            f"{self.total:+.2f})"
        )
