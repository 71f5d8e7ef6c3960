"""Sets of whole writers that cause an attention: below the threshold, every member needed, exact in an edited pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny import prompts_of, tiny

from headwise.circuits.counterfactual import Removal, edited_attention
from headwise.model.model import Model
from headwise.tracing import writers as module
from headwise.tracing.causes import default_threshold
from headwise.tracing.table import log_odds_table
from headwise.tracing.vectors import component_shares
from headwise.tracing.writers import (
    WriterSet,
    attention_without,
    headline,
    next_best,
    writer_set,
)
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Head, Side

SIDES: tuple[Side, ...] = ("query", "key")


def _strong(model: Model) -> tuple[PromptWrites, list[Cell]]:
    up = PromptWrites(model.split(prompts_of(9)), 0)
    cells = [Cell(Head(layer, h), 8, s) for layer in (1, 3) for h in range(up.n_heads) for s in range(9)]
    cells = [cell for cell in cells if bool(up.visible(cell.head.layer)[8, cell.key])]
    values = up.attention_at(cells)
    order = sorted(range(len(cells)), key=lambda i: -values[i])
    return up, [cells[i] for i in order[:4]]


def _removal(up: PromptWrites, cell: Cell, found: WriterSet) -> Removal:
    total = torch.stack([component_shares(up, cell.head, found.side, one) for one in found.members]).sum(0)
    return Removal(cell, query=total[cell.query]) if found.side == "query" else Removal(cell, key=total)


def test_sets_are_one_minimal_and_the_edited_pass_agrees(variant: str) -> None:
    model = tiny(variant, torch.float64)
    up, cells = _strong(model)
    removals, left = [], []
    for cell in cells:
        table = log_odds_table(up, cell)
        tau = default_threshold(table.attention, table.keys)
        for side in SIDES:
            found = writer_set(table, side, tau)
            if not found.resolved:
                assert found.after == table.attention
                continue
            assert found.after < tau <= table.attention / 2
            assert sum(found.drops) == pytest.approx(table.attention - found.after, abs=1e-12)
            assert attention_without(table, side, found.members) == pytest.approx(found.after, abs=1e-9)
            for one in found.members:
                others = [member for member in found.members if member != one]
                assert (attention_without(table, side, others) if others else table.attention) >= tau - 1e-12
            removals.append(_removal(up, cell, found))
            left.append(found.after)
    assert len(removals) >= 4
    assert edited_attention(model, up.stream.token_ids[0], removals) == pytest.approx(left, abs=1e-9)


def test_the_smaller_of_both_orders_is_kept() -> None:
    sizes: list[tuple[str, int]] = []
    for seed in range(6):
        up, cells = _strong(tiny("qwen3", torch.float64, seed=seed))
        for cell in cells:
            table = log_odds_table(up, cell)
            for side in SIDES:
                found = writer_set(table, side, default_threshold(table.attention, table.keys))
                sizes.append((found.order, len(found)))
    assert {order for order, _ in sizes} == {"fixed", "rescored"}


def test_the_second_order_is_kept_only_where_it_is_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for seed in range(6):
        up, cells = _strong(tiny("qwen3", torch.float64, seed=seed))
        for cell in cells:
            table = log_odds_table(up, cell)
            for side in SIDES:
                tau = default_threshold(table.attention, table.keys)
                both = writer_set(table, side, tau)
                with monkeypatch.context() as patch:
                    patch.setattr(module, "_rescored", lambda rows, most: None)
                    fixed = writer_set(table, side, tau)
                assert fixed.order == "fixed"
                assert len(both) < len(fixed) if both.order == "rescored" else both.members == fixed.members
                seen += both.order == "rescored"
    assert seen


def test_the_headline_is_the_side_that_needs_fewer() -> None:
    def of(side: Side, n: int, after: float) -> WriterSet:
        members = tuple(Component("mlp", i) for i in range(n))
        return WriterSet(side, 0.8, 0.2, after, members, (0.1,) * n, "fixed")

    three, two, closer = of("query", 3, 0.01), of("key", 2, 0.19), of("query", 2, 0.1)
    assert headline([three, two]) is two
    assert headline([closer, two]) is closer
    assert headline([replace(three, members=()), two]) is two
    assert headline([replace(three, members=())]) is None
    assert of("query", 13, 0.1).diffuse and not of("query", 12, 0.1).diffuse


def test_the_next_best_set_is_disjoint_and_of_the_same_number() -> None:
    up, cells = _strong(tiny("llama", torch.float64))
    table = log_odds_table(up, cells[0])
    found = writer_set(table, "query", default_threshold(table.attention, table.keys))
    others, after = next_best(table, found)
    assert len(others) == len(found) and not set(others) & set(found.members)
    assert after == pytest.approx(attention_without(table, "query", others), abs=1e-12)


def test_thresholds_never_ask_for_more_than_half_is_left() -> None:
    for attention in (0.01, 0.1, 0.3, 0.9):
        for keys in (2, 5, 14, 600):
            tau = default_threshold(attention, keys)
            assert tau <= attention / 2
            assert tau >= min(attention / 4, 2.5 / keys)
