"""One table of two prompts: the rows of both that stand for one another, and their differences.

A head that reads a token here stands for the same head reading the token that stands for it there; embedding, biases,
MLPs and the head's own bias stand for themselves. A head that reads a token which nothing stands for has a part in one
prompt alone. Every row of either table is in one pair, so that the differences sum to that of the log-odds, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.circuits.patching import Align, aligned
from headwise.errors import HeadwiseError
from headwise.strings import in_short
from headwise.tracing.mlps import read_mlp
from headwise.tracing.table import LogOddsTable, SideTable, stream_readings
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Side
from headwise.why.transfer import stands_for

POSITIONS = 16
"""Keys at which an MLP is followed on the key side, at most: those that count most."""
MISSING = -1


def alignment(here: Sequence[int], there: Sequence[int], align: Align = None) -> dict[int, int]:
    """For positions of a prompt, those of another that stand for them: each at most once.

    The same positions at equal lengths, else runs of equal tokens; the last tokens, where the next one is made, stand
    for each other unless they stand for something else. What is given as ``align`` takes the place of what it touches.

    >>> alignment([5, 6, 7], [8, 9, 5, 6, 7])
    {0: 2, 1: 3, 2: 4}
    >>> alignment([5, 6, 7], [5, 8, 7], {1: 2})
    {0: 0, 1: 2}
    """
    made = stands_for(here, there)
    last = len(here) - 1, len(there) - 1
    if last[0] not in made and last[1] not in made.values():
        made[last[0]] = last[1]
    if align is not None:
        given = aligned(len(here), len(there), align)
        if len(set(given.values())) < len(given):
            several = list(given.values())
            twice = next(position for i, position in enumerate(several) if position in several[:i])
            raise HeadwiseError(f"position {twice} of the other prompt is aligned twice: give it once")
        made = {a: b for a, b in made.items() if a not in given and b not in given.values()} | given
    return dict(sorted(made.items()))


def cell_there(cell: Cell, places: Mapping[int, int], there: PromptWrites, tokens: Sequence[str]) -> Cell:
    """The cell of the other prompt that stands for one of this; one line where there is none."""
    for what, position in (("query", cell.query), ("key", cell.key)):
        if position not in places:
            raise HeadwiseError(
                f"nothing in the other prompt {in_short(''.join(tokens))} stands for the {what} at position "
                f"{position}: say with align= which position does"
            )
    found = Cell(cell.head, places[cell.query], places[cell.key])
    rows = torch.tensor([found.query], device=there.device)
    if not bool(there.visible(cell.head.layer, rows)[0, found.key]):
        raise HeadwiseError(
            f"{cell.head} at position {found.query} of the other prompt {in_short(''.join(tokens))} cannot see "
            f"position {found.key}: say with align= which positions stand for query and key"
        )
    return found


def pairs_of(heads: int, here: int, there: int, static: int, places: Mapping[int, int]) -> Tensor:
    """Rows of two tables that stand for one another: [pairs, 2], −1 where there is none.

    Rows are ``heads`` by the token they read (of ``here`` and ``there`` tokens), then ``static`` others.

    >>> pairs_of(1, 2, 3, 1, {0: 0, 1: 2}).tolist()
    [[0, 0], [1, 2], [-1, 1], [2, 3]]
    """
    taken = set(places.values())
    both = [(position, places.get(position, MISSING)) for position in range(here)]
    both += [(MISSING, position) for position in range(there) if position not in taken]
    one = torch.tensor(both)
    start = torch.arange(heads)[:, None, None] * torch.tensor([here, there])
    carried = torch.where(one >= 0, one + start, MISSING).flatten(0, 1)
    others = torch.arange(static)[:, None] + torch.tensor([heads * here, heads * there])
    return torch.cat((carried, others))


def paired_values(pairs: Tensor, here: Tensor, there: Tensor) -> Tensor:
    """[pairs, 2]: the parts of both, 0 where a pair has none."""
    made = torch.zeros(pairs.shape, dtype=torch.float64)
    for column, values in enumerate((here, there)):
        known = pairs[:, column] >= 0
        made[known, column] = values.double().cpu()[pairs[known, column]]
    return made


@dataclass(frozen=True, eq=False)
class PairedSide:
    """One side of two cells' tables. N pairs of writers."""

    side: Side
    here: SideTable
    there: SideTable
    pairs: Tensor
    """[N, 2]: the row of each table; −1 where a writer is in one prompt alone."""
    values: Tensor
    """[N, 2]: each writer's part of the log-odds, here and there."""

    @classmethod
    def of(cls, here: LogOddsTable, there: LogOddsTable, side: Side, places: Mapping[int, int]) -> PairedSide:
        one, other = here.side(side), there.side(side)
        up, layer = one.up, here.cell.head.layer
        heads = layer * up.n_heads
        pairs = pairs_of(heads, up.tokens, other.up.tokens, len(one) - heads * up.tokens, places)
        return cls(side, one, other, pairs, paired_values(pairs, one.rows, other.rows))

    @property
    def differences(self) -> Tensor:
        """[N]: here less there; they sum to the difference of the log-odds."""
        return self.values[:, 0] - self.values[:, 1]

    @property
    def possible(self) -> Tensor:
        """[N]: whether either may have written."""
        made = torch.zeros(len(self.pairs), dtype=torch.bool)
        for column, one in enumerate((self.here, self.there)):
            known = self.pairs[:, column] >= 0
            made[known] |= one.possible.cpu()[self.pairs[known, column]]
        return made

    def writers(self, pair: int) -> tuple[Component | None, Component | None]:
        """Who a pair is, here and there."""
        a, b = self.pairs[pair].tolist()
        return (
            None if a < 0 else self.here.writer(a),
            None if b < 0 else self.there.writer(b),
        )

    def cells(self, chosen: Sequence[int], channels: Sequence[int]) -> Tensor:
        """[n, channels]: some rows' differences by channel."""
        made = torch.zeros(len(chosen), len(channels), dtype=torch.float64)
        for column, one, sign in ((0, self.here, 1.0), (1, self.there, -1.0)):
            rows = self.pairs[list(chosen), column]
            known = rows >= 0
            made[known] += sign * one.cells(rows[known])[:, list(channels)].cpu()
        return made


def through(
    here: LogOddsTable, there: LogOddsTable, side: Side, mlp: Component, places: Mapping[int, int]
) -> list[tuple[Component | None, Component | None, float, float]]:
    """What an MLP read in both prompts, paired as the writers of the cell are: (here, there, and both shares)."""
    shares, readers = [], []
    for table in (here, there):
        up = table.side(side).up
        positions, readings = stream_readings(table, side)
        if len(positions) > POSITIONS:
            row = table.side(side).row_of(mlp) - up.n_carried(table.cell.head.layer)
            written = up.static[row, positions].double()
            at = (written * readings).sum(-1).abs().topk(POSITIONS).indices.sort().values
            positions, readings = positions[at], readings[at]
        read = read_mlp(up, mlp.layer, positions.tolist(), readings)
        made = [found.double().sum(0) for _, found in read.chunks(range(len(positions)))]
        shares.append(torch.stack(made).sum(0))
        readers.append(read)
    one, other = readers
    heads = one.depth * one.up.n_heads
    static = len(shares[0]) - heads * one.up.tokens
    pairs = pairs_of(heads, one.up.tokens, other.up.tokens, static, places)
    values = paired_values(pairs, *shares)
    order = (values[:, 0] - values[:, 1]).abs().argsort(descending=True, stable=True)
    found = []
    for pair in order.tolist():
        a, b = pairs[pair].tolist()
        left, right = (None if row < 0 else read.writer(row) for row, read in ((a, one), (b, other)))
        found.append((left, right, *values[pair].tolist()))
    return found
