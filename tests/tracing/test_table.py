"""The table of a cell: both sides sum to its log-odds, by channel and by writer, against the writers' own vectors."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import prompts_of, tiny

from headwise.model.model import Model
from headwise.tracing.table import LogOddsTable, log_odds_table, stream_readings
from headwise.tracing.vectors import component_shares, component_writes
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Head, Side

SIDES: tuple[Side, ...] = ("query", "key")
CELLS = (Cell(Head(3, 1), 8, 6), Cell(Head(2, 3), 7, 7), Cell(Head(1, 0), 2, 1), Cell(Head(0, 2), 5, 4))


def _up(model: Model) -> PromptWrites:
    """The second of two prompts of unequal length, so that padding would be seen."""
    return PromptWrites(model.split(prompts_of(11, 9)), 1)


def _scale(up: PromptWrites, cell: Cell) -> tuple[torch.Tensor, torch.Tensor, float]:
    layer, index = cell.head.layer, cell.head.index
    return (
        up.q[layer, index, cell.query].double(),
        up.k[layer, index // up.group].double(),
        float(up.scale[layer]),
    )


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_both_sides_sum_to_the_log_odds(variant: str, cell: Cell) -> None:
    model = tiny(variant, torch.float64)
    up = _up(model)
    table = log_odds_table(up, cell)
    a, n = up.attention_at([cell])[0], int(up.visible(cell.head.layer)[cell.query].sum())
    assert table.keys == n
    assert table.attention == pytest.approx(a, abs=1e-12)
    assert table.total == pytest.approx(math.log(a / (1 - a)) + math.log(n - 1), abs=1e-9)
    assert float(table.what.sum()) == pytest.approx(table.total, abs=1e-9)
    for side in SIDES:
        one = table.side(side)
        cells = one.cells(list(range(len(one))))
        assert float(one.rows.sum()) == pytest.approx(table.total, abs=1e-9)
        assert torch.allclose(cells.sum(0), table.what, atol=1e-9)
        assert torch.allclose(cells.sum(1), one.rows, atol=1e-9)
        assert not one.rows[~one.possible].any()
        assert one.error < 1e-9
    assert table.error < 1e-9


@pytest.mark.parametrize("cell", CELLS[:2], ids=str)
def test_rows_are_what_the_writers_wrote(variant: str, cell: Cell) -> None:
    model = tiny(variant, torch.float64)
    up = _up(model)
    table = log_odds_table(up, cell)
    q, keys, scale = _scale(up, cell)
    for side in SIDES:
        one = table.side(side)
        at, reading = stream_readings(table, side)
        offset = up.n_carried(cell.head.layer) + up.n_static(cell.head.layer)
        for row in [*range(0, len(one), 17), *range(offset - 3, len(one))]:
            writer = one.writer(row)
            assert one.row_of(writer) == row
            shares = component_shares(up, cell.head, side, writer)
            product = keys @ shares[cell.query] if side == "query" else shares @ q
            logits = scale * product * table.visible
            assert float(logits @ table.gradient) == pytest.approx(float(one.rows[row]), abs=1e-9)
            assert torch.allclose(one.logits(torch.tensor([row]))[0], logits, atol=1e-9)
            seen = shares[cell.query, None] if side == "query" else shares * table.visible[:, None]
            assert torch.allclose(one.written(torch.tensor([row]))[0], seen, atol=1e-9)
            if writer.kind != "offset":
                along = (component_writes(up, writer)[at] * reading).sum()
                assert float(along) == pytest.approx(float(one.rows[row]), abs=1e-9)


def test_one_visible_key_leaves_an_empty_account() -> None:
    table = log_odds_table(_up(tiny("llama", torch.float64)), Cell(Head(2, 1), 0, 0))
    assert (table.total, table.keys, table.attention) == (0.0, 1, 1.0)
    assert not table.what.any()
    assert not table.query.rows.any() and not table.key.rows.any()


def test_writers_come_by_the_size_of_their_part() -> None:
    table = log_odds_table(_up(tiny("llama")), CELLS[1])
    for side in SIDES:
        one = table.side(side)
        sizes = one.rows.abs()[one.order]
        assert bool((sizes[:-1] >= sizes[1:]).all())
        assert len(one.order) == int(one.possible.sum()) < len(one)


@pytest.mark.real
def test_sums_hold_on_the_default_model(smollm2: Model) -> None:
    up = PromptWrites(smollm2.split("When John and Mary went to the store, John gave a drink to"), 0)
    found: LogOddsTable = log_odds_table(up, Cell(Head(23, 3), 13, 9))
    assert found.error < 1e-4
    for side in SIDES:
        assert found.side(side).error < 1e-4
