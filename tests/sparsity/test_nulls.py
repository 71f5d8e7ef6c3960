"""What channels look like without features: every null on cases that can be worked out, their level and their power."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny import tiny
from torch import Tensor

from headwise.bases.basis import Basis
from headwise.bases.relative import sparsity
from headwise.claims import claim
from headwise.intervals import wilson
from headwise.randomness import keyed
from headwise.sparsity.nulls import (
    OTHERS,
    CellVectors,
    cell_vectors,
    null_cells,
    sparser,
    sparser_than,
    strictest,
)

CELLS = 24


@pytest.fixture(scope="module")
def basis() -> Basis:
    return Basis.of(tiny("gpt2", torch.float64), "L1H1")


def cells_of(basis: Basis, a: Tensor, b: Tensor, others: Tensor) -> CellVectors:
    """Cells of these coordinates: q = a G_s and k = G_d b, for G_d G_s = 1; the attended key has the top score."""
    n = len(a)
    return CellVectors(
        a @ basis.key_map,
        b @ basis.query_map.mT,
        others @ basis.query_map.mT,
        torch.zeros(n).long(),
        torch.full((n,), 8),
    )


def gaussian_cells(basis: Basis, effect: float, seed: int, n: int = CELLS) -> CellVectors:
    """Gaussian streams, each query with its highest key; with an effect both hold one singular vector."""
    g = keyed(seed, "cells")
    size = len(basis.energies)
    a = torch.randn(n, size, generator=g, dtype=torch.float64) * basis.query_units
    keys = torch.randn(n, 8, size, generator=g, dtype=torch.float64) * basis.key_units
    a[:, 2] += effect * basis.query_units[2]
    top = torch.einsum("nc,nkc->nk", a, keys).argmax(1)
    order = torch.arange(n)
    b = keys[order, top].clone()
    b[:, 2] += effect * basis.key_units[2]
    rest = torch.stack([keys[i, [k for k in range(8) if k != top[i]][:OTHERS]] for i in range(n)])
    return cells_of(basis, a, b, rest)


def p_of(basis: Basis, effect: float, seed: int) -> dict[str, tuple[float, int]]:
    cells, each = gaussian_cells(basis, effect, seed), torch.arange(CELLS)
    used = sparsity(basis.split(cells.q, cells.key))
    return sparser_than(used, null_cells(cells, basis, each, seed), each, each, seed)


def test_shuffled_pairs_and_unattended_keys_are_worked_out_by_hand(basis: Basis) -> None:
    size = len(basis.energies)
    a, b = torch.zeros(2, 2, size, dtype=torch.float64).unbind(0)
    a[0, :2], a[1, :4] = 1.0, 1.0
    b[0, :1], b[1, :4] = 1.0, 1.0
    others = torch.full((2, OTHERS, size), torch.nan, dtype=torch.float64)
    others[0, 0], others[0, 0, :2] = 0.0, 1.0
    found = null_cells(cells_of(basis, a, b, others), basis, torch.tensor([0, 1]), 0).each
    # The first query with the second key: 2 of the channels. The second with the first's keys: 1 and 2 of them.
    expected = torch.tensor([2 / size, 1.5 / size], dtype=torch.float64)
    torch.testing.assert_close(found["shuffled"], expected)
    assert float(found["unattended"][0]) == pytest.approx(2 / size)
    assert bool(found["unattended"][1].isnan())


def test_turned_directions_keep_the_singular_values_and_nothing_else(basis: Basis) -> None:
    """One query along one singular vector, turned, is spread over all; a form of equal values cannot tell."""
    size = len(basis.energies)
    a, b = torch.zeros(2, 1, size, dtype=torch.float64).unbind(0)
    a[0, 0] = b[0, 0] = 1.0
    nothing = torch.full((1, OTHERS, size), torch.nan, dtype=torch.float64)
    cells = cells_of(basis, a, b, nothing)
    assert float(sparsity(basis.split(cells.q, cells.key))) == pytest.approx(1 / size)
    found = null_cells(cells, basis, torch.zeros(1).long(), 0).each
    assert float(found["turned"]) > 2 / size
    even = replace(basis, query_units=torch.ones(size).double(), key_units=torch.ones(size).double())
    g = keyed(0, "even")
    a, b = torch.randn(2, 200, size, generator=g, dtype=torch.float64).unbind(0)
    many = cells_of(basis, a, b, nothing.expand(200, -1, -1))
    turned = null_cells(many, even, torch.arange(200), 0).each["turned"].mean()
    assert float(turned) == pytest.approx(float(sparsity(a * b).mean()), abs=0.02)


def test_a_cell_knows_its_rank_and_its_unattended_keys() -> None:
    k = torch.eye(4, dtype=torch.float64) * torch.tensor([3.0, 2.0, 1.0, 9.0])
    q, seen = torch.ones(4, dtype=torch.float64), torch.tensor([True, True, True, False])
    one = cell_vectors(q, k, 1, seen, torch.tensor([0.7, 0.2, 0.1, 0.0]), keyed(0))
    assert int(one.higher) == 1 and int(one.visible) == 3
    known = one.others[0][~one.others[0, :, 0].isnan()]
    # The first key has more than an even share, the last is not seen: the third alone is left.
    assert known.tolist() == [[-1.5, -1.0, 1.0, 0.0]]
    assert one.key.tolist() == [[-1.5, 2.0, -0.5, 0.0]]


def test_gaussian_streams_are_rarely_called_sparse_and_a_feature_is(basis: Basis) -> None:
    tried = 40
    found = [p_of(basis, 0.0, seed) for seed in range(tried)]
    # By unattended keys alone most would be: Gaussian cells too are chosen by score, and sparser for it.
    assert sum(one["unattended"][0] <= 0.05 for one in found) > tried / 2
    assert wilson(sum(strictest(one)[0] <= 0.05 for one in found), tried)[0] <= 0.05
    assert all(strictest(p_of(basis, 6.0, seed))[0] <= 0.05 for seed in range(3))


def test_one_cluster_supports_nothing() -> None:
    used, null = torch.zeros(8).double(), torch.ones(8).double()
    p, draws = sparser(used, null, torch.zeros(8).long(), 0)
    assert (p, draws) == (0.5, 2)
    assert not claim(p, null="signs", draws=draws).supported
    assert sparser(used, torch.full_like(null, torch.nan), torch.arange(8), 0) == (1.0, 0)
