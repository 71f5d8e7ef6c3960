"""Nulls of sparse streams in a head of two dimensions: every outcome is an angle on each side, and all are listed."""

from __future__ import annotations

from itertools import product
from math import pi, sqrt

import pytest
import torch
from torch import Tensor

from headwise.bases.basis import Basis
from headwise.bases.relative import sparsity
from headwise.basis_names import BasisName
from headwise.randomness import keyed
from headwise.sparsity.nulls import (
    DRAWS,
    NULLS,
    OTHERS,
    TURNS,
    CellVectors,
    NullCells,
    _gaussian,
    _Normal,
    null_cells,
    sparser_than,
    strictest,
)

ANGLES = (torch.arange(600, dtype=torch.float64) + 0.5) * (pi / 2) / 600


def two_dimensions(rank: int = 2) -> Basis:
    """A head whose first singular value is three times its second, in its own coordinates."""
    one = torch.ones(2, dtype=torch.float64)
    eye, values = torch.eye(2, dtype=torch.float64), torch.tensor([3.0, 1.0], dtype=torch.float64)
    return Basis(
        name=BasisName("singular", "absolute", ""),
        energies=values,
        query_map=eye,
        key_map=eye,
        query_units=values,
        key_units=one,
        rank=torch.tensor(rank),
        halves=one,
        across=one,
    )


def every_turn(a: Tensor, b: Tensor) -> Tensor:
    """[angles²]: how sparse a query and a key of these lengths are, whichever way each of them points."""
    turned = torch.stack((ANGLES.cos(), ANGLES.sin()), 1)
    query, key = a.norm() * turned * torch.tensor([3.0, 1.0]).double(), b.norm() * turned
    return sparsity(query[:, None] * key).flatten()


def cells_of(q: Tensor, k: Tensor) -> CellVectors:
    n = len(q)
    none = torch.full((n, OTHERS, 2), torch.nan, dtype=torch.float64)
    return CellVectors(q, k, none, torch.zeros(n).long(), torch.ones(n).long())


@pytest.mark.parametrize(("angle", "least"), [(0.15, 0.0), (0.5, 0.2)])
def test_turned_directions_are_counted_over_all_turns_of_both_sides(angle: float, least: float) -> None:
    basis = two_dimensions()
    point = torch.tensor([[angle]], dtype=torch.float64)
    here = torch.cat((point.cos(), point.sin()), 1)
    cells, each = cells_of(here * basis.query_units, here), torch.zeros(1).long()
    used = sparsity(basis.split(cells.q, cells.key))
    listed = every_turn(here[0], here[0])
    exact = float((listed <= used).double().mean())
    assert least < exact < least + 0.4
    drawn = null_cells(cells, basis, each, 0)
    reached = int((drawn.turned[:, 0] <= used).sum())
    assert len(drawn.turned) == TURNS
    assert abs(reached / TURNS - exact) < 4 * sqrt(exact * (1 - exact) / TURNS)
    assert float(drawn.each["turned"]) == pytest.approx(
        float(listed.mean()), abs=4 * float(listed.std()) / 20
    )
    p, draws = sparser_than(used, drawn, each, each, 0)["turned"]
    # One cluster can turn its sign or not: the larger of both tests is what counts.
    assert p == max(0.5, (1 + reached) / (1 + TURNS)) and draws == 2


def test_of_one_dimension_every_turn_is_the_same() -> None:
    basis = two_dimensions(rank=1)
    cells = cells_of(torch.tensor([[2.0, 0.0]]).double(), torch.tensor([[1.5, 0.0]]).double())
    used = sparsity(basis.split(cells.q, cells.key))
    each = torch.zeros(1).long()
    drawn = null_cells(cells, basis, each, 0)
    assert torch.equal(drawn.turned, used.expand(TURNS, 1))
    assert sparser_than(used, drawn, each, each, 0)["turned"][0] == 1.0


def test_isotropic_streams_are_as_sparse_as_all_directions_are_on_average() -> None:
    """The directions of two normal variables are even on the circle, whatever their lengths."""
    n, basis = 400, two_dimensions()
    one = torch.ones(n, 2, dtype=torch.float64)
    drawn = null_cells(cells_of(one, one), basis, torch.arange(n), 0).each["isotropic"]
    listed = every_turn(one[0], one[0])
    assert float(drawn.mean()) == pytest.approx(
        float(listed.mean()), abs=4 * float(listed.std()) / sqrt(n * DRAWS)
    )
    # Equal singular values are less sparse: the null knows the head's own.
    assert float(listed.mean()) < float(sparsity(torch.stack((ANGLES.cos(), ANGLES.sin()), 1)).mean()) - 0.05


def test_matched_streams_have_the_mean_and_the_covariance_of_the_samples() -> None:
    samples = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 1.0], [2.0, -1.0]]).double()
    drawn = _Normal.of(samples).drawn((20000,), keyed(0, "normal"))
    assert drawn.mean(0).tolist() == pytest.approx([2.0, 0.0], abs=0.03)
    assert torch.cov(drawn.mT).flatten().tolist() == pytest.approx([2 / 3, 0, 0, 2 / 3], abs=0.03)


def test_of_a_gaussian_row_the_key_of_the_same_rank_is_taken() -> None:
    """Four keys whose channels tell which of them it was: 1 or 2 equal channels, at scores that are known."""
    keys = torch.tensor([[4.0, 0.0], [1.0, 1.0], [0.0, -1.0], [1.5, 1.5]]).double()
    found = []
    for higher, visible in product((0, 1, 2, 3), (4, 2)):
        if higher < visible:
            cells = CellVectors(
                torch.ones(1, 2).double(),
                keys[:1],
                keys[None],
                torch.tensor([higher]),
                torch.tensor([visible]),
            )
            row = keys[: max(2, visible)]
            got = _gaussian(
                cells, lambda n, width, g, row=row: (torch.ones(1, 2).double(), row[None, :width]), keyed(0)
            )
            found.append((higher, visible, float(got)))
    one, two = 0.5, 1.0
    # Scores 4, 2, −1, 3 of four; of the first two alone 4 and 2.
    assert found == [(0, 4, one), (0, 2, one), (1, 4, two), (1, 2, two), (2, 4, two), (3, 4, one)]


def test_the_claim_takes_the_largest_of_five_exact_tests() -> None:
    """Three wordings of two prompts: eight ways to turn their signs, listed for every null."""
    g = keyed(1, "five")
    clusters, prompts = torch.tensor([0, 0, 1, 1, 2, 2]), torch.arange(6)
    used = 0.2 + 0.1 * torch.rand(6, generator=g).double()
    each = {
        name: used + shift + 0.1 * torch.randn(6, generator=g).double()
        for name, shift in zip(NULLS, (0.3, 0.1, 0.0, -0.1, 0.3), strict=True)
    }
    turned = each["turned"] + 0.05 * torch.randn(TURNS, 1, generator=g).double()
    found = sparser_than(used, NullCells(each, turned), prompts, clusters, 0)
    for name, drawn in each.items():
        sums = torch.zeros(3).double().index_add_(0, clusters, drawn - used)
        flips = [
            sum(s * float(x) for s, x in zip(signs, sums, strict=True))
            for signs in product((1, -1), repeat=3)
        ]
        exact = sum(one >= flips[0] - 1e-9 for one in flips) / 8
        if name == "turned":
            exact = max(exact, (1 + int((turned.mean(1) <= used.mean()).sum())) / (1 + TURNS))
        assert found[name][0] == exact
    assert strictest(found)[0] == max(p for p, _ in found.values()) >= 1 / 8
    # Three wordings can never reach 5 %, whatever their prompts.
    alike = NullCells({name: torch.ones(6).double() for name in NULLS}, torch.ones(TURNS, 6).double())
    assert strictest(sparser_than(used * 0, alike, prompts, clusters, 0))[0] == 1 / 8
    assert strictest(sparser_than(used * 0, alike, prompts, prompts, 0))[0] == 1 / 64
