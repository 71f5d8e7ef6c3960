"""Controls of an explanation on cases so small that every set, and every direction, can be listed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from math import pi, sqrt

import pytest
import torch
from scipy.stats import chi2
from tiny import prompts_of, tiny
from torch import Tensor

from headwise.model.model import Model
from headwise.tracing.causes import attention
from headwise.tracing.table import LogOddsTable, log_odds_table
from headwise.tracing.writers import WriterSet, attention_without
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Head, Side
from headwise.why import controls as module
from headwise.why.controls import Control, controls

SIDES: tuple[Side, ...] = ("query", "key")
DRAWS = 3000


def near(control: Control, exact: float) -> None:
    """p counts the observed among the draws; four standard deviations of a binomial are one case in 16,000."""
    share = (control.p * (1 + DRAWS) - 1) / DRAWS
    assert abs(share - exact) <= 4 * sqrt(exact * (1 - exact) / DRAWS) + 1e-9, (control.p, exact)


def evenly(drawn: Tensor, listed: Tensor) -> None:
    """Every outcome that was listed is drawn as often as it is there, and no other is."""
    outcomes, times = torch.unique(listed.round(decimals=12), return_counts=True)
    off, which = (drawn[:, None] - outcomes).abs().min(1)
    assert float(off.max()) < 1e-9
    seen = torch.bincount(which, minlength=len(outcomes))
    expected = times * len(drawn) / len(listed)
    assert float(((seen - expected) ** 2 / expected).sum()) < chi2.isf(1e-5, max(1, len(outcomes) - 1))


def tables(model: Model) -> Iterator[tuple[PromptWrites, LogOddsTable]]:
    up = PromptWrites(model.split(prompts_of(3)), 0)
    for index in range(up.n_heads):
        for key in range(3):
            yield up, log_odds_table(up, Cell(Head(2, index), 2, key))


def cause(table: LogOddsTable, side: Side, rows: list[int]) -> WriterSet:
    members = tuple(table.side(side).writer(row) for row in rows)
    left = attention_without(table, side, members)
    return WriterSet(side, table.attention, 0.1, left, members, (), "fixed")


def left_by(up: PromptWrites, table: LogOddsTable, side: Side, taken: Tensor) -> float:
    """The attention without vectors [places, d_head] of the query or of the keys, from queries times keys."""
    (head, d, s), layer = table.cell, table.cell.head.layer
    q, k = up.q[layer, head.index, d].double(), up.k[layer, head.index // up.group].double()
    logits = (q - taken[0]) @ k.mT if side == "query" else (k - taken) @ q
    return float(attention(logits * float(up.scale[layer]), table.visible, up.cap)[s])


def as_much(listed: Tensor, found: WriterSet) -> float:
    return float((listed <= found.after + 1e-9).double().mean())


@pytest.mark.parametrize("side", SIDES)
def test_other_channels_are_all_sets_of_those_that_are_not_used(side: Side) -> None:
    exacts: list[float] = []
    for (up, table), pair in product(tables(tiny("llama", torch.float64)), ([3, 7], [2, 11], [5, 9])):
        one = table.side(side)
        found = cause(table, side, one.possible.nonzero()[pair, 0].tolist())
        taken = module._whole(table, found)
        if not 3 <= len(taken.unused) <= 6:
            continue
        size, length = min(taken.number, len(taken.unused) - 1), taken.vectors.norm()
        listed = []
        for some in combinations(taken.unused.tolist(), size):
            mask = torch.zeros(len(taken.members), len(one.columns), dtype=torch.float64)
            mask[:, list(some)] = 1.0
            vectors = one.within(taken.members, mask)
            listed.append(left_by(up, table, side, vectors * length / vectors.norm()))
        made = {control.name: control for control in controls(table, found, draws=DRAWS)}["channels"]
        evenly(made.left, torch.tensor(listed, dtype=torch.float64))
        exacts.append(as_much(torch.tensor(listed, dtype=torch.float64), found))
        near(made, exacts[-1])
    # On the key side what is not used takes nothing here: all of the sets do as much as the cause, or none does.
    assert len(exacts) >= 4 and any(0 < exact < 1 or side == "key" for exact in exacts)


def writers(table: LogOddsTable, found: WriterSet, draws: int, seed: int = 0) -> Control:
    made = controls(table, found, seed, draws=draws)
    return next(control for control in made if control.name == "writers")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("size", [1, 2])
def test_other_writers_are_all_sets_of_as_many_heads(side: Side, size: int) -> None:
    """Each in the form that takes more: as they are, or scaled to the length of the cause."""
    exacts: list[float] = []
    for up, table in tables(tiny("llama", torch.float64)):
        one = table.side(side)
        heads = [int(row) for row in (module.Pool.of(one).heads & one.possible).nonzero()[:, 0]]
        heads = [row for row in heads if bool(one.written(torch.tensor([row])).any())]
        found = cause(table, side, heads[:size])
        length = module._whole(table, found).vectors.norm()
        every = []
        for some in combinations(heads[size:], size):
            vectors = one.written(torch.tensor(some)).sum(0)
            forms = (vectors, vectors * length / vectors.norm())
            every.append(min(left_by(up, table, side, form) for form in forms))
        listed = torch.tensor(every, dtype=torch.float64)
        # With as many draws as there are sets, each of them is taken once, and p is as small as they allow.
        n = len(listed)
        made = writers(table, found, n)
        assert torch.allclose(made.left.sort().values, listed.sort().values, atol=1e-9)
        exacts.append(as_much(listed, found))
        assert made.p == pytest.approx((1 + round(exacts[-1] * n)) / (1 + n))
        assert torch.equal(writers(table, found, 50 * n).left, made.left)
        assert torch.equal(made.tried[:, table.cell.key], made.left[: len(made.tried)])
        # With fewer, sets are drawn, each as often as any other.
        fewer = torch.cat([writers(table, found, n - 1, seed).left for seed in range(DRAWS // n)])
        evenly(fewer, listed)
        if len(exacts) == 4:
            break
    assert any(0 < exact < 1 for exact in exacts)


@pytest.mark.parametrize("side", SIDES)
def test_random_directions_are_all_angles_where_a_head_has_two_dimensions(side: Side) -> None:
    """On the key side all tokens' vectors turn by one angle."""
    angles = (torch.arange(3600, dtype=torch.float64) + 0.5) * 2 * pi / 3600
    exacts: list[float] = []
    for up, table in tables(tiny("llama", torch.float64, settings={"head_dim": 2})):
        one = table.side(side)
        found = cause(table, side, [int(row) for row in one.possible.nonzero()[1:3, 0]])
        vectors = module._whole(table, found).vectors
        listed = []
        for angle in angles:
            c, s = float(angle.cos()), float(angle.sin())
            turn = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
            listed.append(left_by(up, table, side, vectors @ turn.mT))
        sorted_ = torch.tensor(listed, dtype=torch.float64).sort().values
        made = {control.name: control for control in controls(table, found, draws=DRAWS)}["directions"]
        # Kolmogorov's distance of the draws from the list: 2.2 / √n is one case in 16,000.
        below = torch.searchsorted(sorted_, made.left.sort().values) / len(sorted_)
        assert float((below - (torch.arange(DRAWS) + 0.5) / DRAWS).abs().max()) < 2.3 / sqrt(DRAWS)
        exacts.append(as_much(sorted_, found))
        near(made, exacts[-1])
        if len(exacts) == 4:
            break
    assert any(0 < exact < 1 for exact in exacts)
