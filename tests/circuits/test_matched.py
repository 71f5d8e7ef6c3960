"""Matched circuits: all of them listed where they are few, each as likely as it should be, level and power."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
import torch
from tiny import tiny
from tiny_circuits import largest_circuit
from torch import Tensor

from headwise.circuits.faithfulness import NEAR, _matched, faithfulness, matched_circuits, rows_of
from headwise.claims import p_value
from headwise.intervals import wilson
from headwise.randomness import keyed
from headwise.types import Cell, Head


def row_of_seven() -> dict[tuple[int, int], Tensor]:
    """One layer of two heads and one query that reads four keys: eight firings, no two of the same attention."""
    return {(0, 3): torch.tensor([[0.10, 0.22, 0.31, 0.37], [0.05, 0.20, 0.26, 0.49]])}


def nearest(row: Tensor, cell: Cell, without: frozenset[Cell]) -> list[Cell]:
    """The firing itself and the few of its row that are nearest in attention, by sorting them all."""
    free = [Cell(Head(0, h), 3, k) for h in range(2) for k in range(4)]
    free = [one for one in free if one not in without]
    own = float(row[cell.head.index, cell.key])
    return sorted(free, key=lambda one: abs(float(row[one.head.index, one.key]) - own))[: 1 + NEAR]


def test_every_matched_circuit_comes_as_often_as_listing_its_draws_says() -> None:
    """Two firings of one row: each stays or goes to one of the five nearest that are left."""
    rows = row_of_seven()
    first, second = Cell(Head(0, 0), 3, 1), Cell(Head(0, 1), 3, 2)
    inside = frozenset({first, second})
    expected: dict[frozenset[Cell], float] = {}
    for one in nearest(rows[0, 3], first, frozenset({second})):
        after = nearest(rows[0, 3], second, frozenset({first, one}))
        for other in after:
            made = frozenset({one, other})
            expected[made] = expected.get(made, 0.0) + 1 / (1 + NEAR) / len(after)
    assert sum(expected.values()) == pytest.approx(1) and inside in expected and len(expected) < 36
    drawn = [_matched(inside, rows, keyed(0, "listed", draw)) for draw in range(4000)]
    assert set(drawn) == set(expected)
    for made, share in expected.items():
        assert abs(drawn.count(made) / 4000 - share) < 4.5 * sqrt(share * (1 - share) / 4000)
    # All but the circuit itself and none twice, where they are fewer than are asked for.
    every = matched_circuits(inside, rows, 60, seed=0)
    assert len(every) == len(set(every)) == len(expected) - 1 and inside not in every


def test_the_p_of_a_circuit_of_one_firing_is_that_of_its_five_matched_ones() -> None:
    model = tiny("llama", torch.float64)
    whole = largest_circuit(model)
    node = next(one for one in whole.heads if 0 < one.key <= one.query == len(whole.token_ids) - 1)
    answer = next(one for one in whole.nodes if one.kind == "answer")
    alone = replace(whole, nodes=(node, answer), edges=(), accounts=())
    found = faithfulness(model, alone, draws=40)
    row = rows_of(model, whole.token_ids, [node.query])[node.layer, node.query]
    off = (row - row[node.head or 0, node.key]).abs().flatten()
    five = [at for at in off.argsort().tolist() if at != (node.head or 0) * (node.query + 1) + node.key][
        :NEAR
    ]
    lost, kept = [], []
    for at in five:
        head, key = divmod(at, node.query + 1)
        other = replace(node, head=head, key=key)
        made = faithfulness(model, replace(alone, nodes=(other, answer)), draws=1)
        lost.append(made.inside_ablated)
        kept.append(made.resampled_outside)
    assert sorted(found.matched_inside_ablated) == pytest.approx(sorted(lost))
    assert sorted(found.matched_resampled_outside) == pytest.approx(sorted(kept))
    sign = 1.0 if found.clean >= 0 else -1.0
    assert found.necessary.p == (1 + sum(sign * one <= sign * found.inside_ablated for one in lost)) / 6
    assert found.sufficient.p == (1 + sum(sign * one >= sign * found.resampled_outside for one in kept)) / 6
    # Whatever a single firing does, one of six does it by chance.
    assert found.necessary.draws == found.sufficient.draws == 5
    assert not found.necessary.supported and not found.sufficient.supported


@pytest.mark.parametrize("size", [1, 2, 4])
def test_circuits_that_do_no_more_than_others_are_rarely_told_from_them(size: int) -> None:
    """What firings do is drawn for each of them, and a circuit does the sum; with an effect its own do more."""
    tried, rate = 300, {0.0: 0, 3.0: 0}
    for seed in range(tried):
        g = keyed(seed, "level", size)
        rows = {(layer, 5): torch.rand(4, 6, generator=g) for layer in range(2)}
        does = torch.randn(2, 4, 6, generator=g)
        cells = [Cell(Head(layer, h), 5, k) for layer in range(2) for h in range(4) for k in range(6)]
        inside = frozenset(cells[i] for i in torch.randperm(len(cells), generator=g)[:size].tolist())
        drawn = [
            sum(float(does[c.head.layer, c.head.index, c.key]) for c in one)
            for one in matched_circuits(inside, rows, 20, seed)
        ]
        real = sum(float(does[c.head.layer, c.head.index, c.key]) for c in inside)
        for effect in rate:
            rate[effect] += p_value(real + effect * size, drawn) <= 0.05
    assert wilson(rate[0.0], tried)[0] <= 0.05, rate
    # Five others can never be one in twenty; of more firings there are enough.
    assert rate[3.0] == 0 if size == 1 else rate[3.0] > tried / 2, rate
