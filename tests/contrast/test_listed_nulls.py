"""Nulls of features on cases so small that all flips, deals and exchanges can be listed."""

from __future__ import annotations

from itertools import combinations, permutations, product
from math import cos, sin, sqrt

import pytest
import torch
from torch import Tensor

from headwise.contrast.alignment import Directions, measured
from headwise.contrast.geometry import DRAWS as SHAPES
from headwise.contrast.geometry import ClassMeans, _closure, _smooth
from headwise.contrast.labelled_vectors import LabelledVectors
from headwise.contrast.rank import groups_needed, null_rank
from headwise.contrast.unlabelled.pairs import DRAWS, writer_test
from headwise.intervals import wilson
from headwise.randomness import keyed


def near(share: float, exact: float, draws: int) -> None:
    """Four standard deviations of a binomial: one case in 16,000."""
    assert abs(share - exact) <= 4 * sqrt(exact * (1 - exact) / draws) + 1e-9, (share, exact)


@pytest.mark.parametrize("groups", [7, 8])
def test_a_rank_above_the_null_is_one_flip_in_a_hundred(groups: int) -> None:
    """Of all flips of equal groups the observed one and its mirror image do as much: two of 2ⁿ, which is told from the
    null at 1 % from eight groups on. Fewer are refused before."""
    values = torch.ones(groups, dtype=torch.float64)
    flips = torch.tensor(list(product((1.0, -1.0), repeat=groups)), dtype=torch.float64) @ values / groups
    observed = values.mean()
    as_much = float((flips.abs() >= observed - 1e-12).double().mean())
    ranks, _ = null_rank(observed.reshape(1, 1, 1), flips.reshape(-1, 1, 1, 1), alpha=0.01)
    assert as_much == 2 / 2**groups and (as_much <= 0.01) == (groups >= groups_needed(0.01))
    assert int(ranks) == int(as_much <= 0.01)


def test_a_rank_counts_the_flips_that_do_as_much() -> None:
    """One dimension, ten groups: above the null exactly where at most one flip in a hundred is as large."""
    g = keyed(0, "flips")
    signs = torch.tensor(list(product((1.0, -1.0), repeat=10)), dtype=torch.float64)
    told = []
    for shift in (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0):
        values = shift + torch.randn(10, generator=g).double()
        flips = signs @ values / 10
        share = float((flips.abs() >= values.mean().abs() - 1e-12).double().mean())
        ranks, _ = null_rank(values.mean().reshape(1, 1, 1), flips.reshape(-1, 1, 1, 1), alpha=0.01)
        assert int(ranks) == int(share <= 0.01), (shift, share)
        told.append(int(ranks))
    assert 0 < sum(told) < len(told)


def test_classes_are_dealt_in_all_ways_and_each_as_often() -> None:
    """Two scenes of three keys: 36 deals. Retrieval and correlation by listing them against what the draws give."""
    g = keyed(3, "deals")
    vectors = LabelledVectors(
        by="kind",
        names=("a", "b", "c"),
        q=torch.randn(4, 3, generator=g).double(),
        k=torch.randn(2, 3, 3, generator=g).double().repeat_interleave(2, 0),
        query_class=torch.tensor([0, 1, 2, 0]),
        key_class=torch.tensor([[0, 1, 2]] * 4),
        clusters=torch.tensor([0, 0, 1, 1]),
        scene=torch.tensor([0, 0, 1, 1]),
    )
    eye = torch.eye(3).double()
    directions = Directions(query=eye, key=eye, paired_query=eye, paired_key=eye)
    half = torch.tensor([True, True, False, False])
    real = measured(vectors, directions, half)
    orders = list(permutations(range(3)))
    deals = torch.tensor([[one, one, two, two] for one, two in product(orders, orders)])
    listed = torch.stack([measured(vectors, directions, half, deal) for deal in deals])
    dealt = vectors.shuffled(3600, keyed(0, "alignment"))
    which = (dealt[:, None] == deals).all(-1).all(-1)
    assert bool(which.any(1).all())
    seen = which.sum(0).double()
    assert float(((seen - 100) ** 2 / 100).sum()) < 80  # of 35 degrees of freedom: one in 20,000
    drawn = measured(vectors, directions, half, dealt)
    for number in range(2):
        exact = float((listed[:, number] >= real[number] - 1e-9).double().mean())
        assert exact > 0
        near(float((drawn[:, number] >= real[number] - 1e-9).double().mean()), exact, 3600)


def test_writers_are_exchanged_between_two_features_in_all_ways() -> None:
    """Eight cells of two features: 70 ways to deal them, of which a few are as far apart."""
    g = torch.Generator().manual_seed(5)
    first = torch.randn(1, 6, generator=g) + 1.1 * torch.randn(4, 6, generator=g)
    second = torch.randn(1, 6, generator=g) + 1.1 * torch.randn(4, 6, generator=g)
    alike = torch.corrcoef(torch.cat([first, second]).double())

    def apart(mine: tuple[int, ...]) -> float:
        theirs = [i for i in range(8) if i not in mine]
        within = [float(alike[a, b]) for some in (mine, theirs) for a, b in combinations(some, 2)]
        between = [float(alike[a, b]) for a in mine for b in theirs]
        return sum(within) / len(within) - sum(between) / len(between)

    real = apart((0, 1, 2, 3))
    exact = sum(apart(mine) >= real - 1e-9 for mine in combinations(range(8), 4)) / 70
    found = writer_test(first, second, torch.arange(8), 0)
    assert found is not None and found.difference == pytest.approx(real)
    assert 2 / 70 <= exact < 0.5
    near((found.claim.p * (1 + DRAWS) - 1) / DRAWS, exact, DRAWS)


def noisy_classes(means: Tensor, clusters: int, noise: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Values [n, r] of every class in every cluster, with their classes and clusters."""
    off = noise * torch.randn(clusters, *means.shape, generator=keyed(seed, "listed shapes")).double()
    which = torch.arange(clusters)[:, None].expand(-1, len(means))
    return (means + off).flatten(0, 1), torch.arange(len(means)).repeat(clusters), which.flatten()


ARC = torch.tensor([[cos(t), sin(t)] for t in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)]).double()


def test_classes_in_order_are_counted_over_all_orders() -> None:
    for seed in range(3):
        means = torch.randn(6, 2, generator=keyed(seed, "orders")).double() + ARC[:, :1] * seed
        steps = [float((means[list(one)].diff(dim=0) ** 2).sum()) for one in permutations(range(6))]
        exact = sum(one <= steps[0] + 1e-9 for one in steps) / 720
        assert 0 < exact < 1
        near((_smooth(means, keyed(seed, "smooth")) * (1 + SHAPES) - 1) / SHAPES, exact, SHAPES)


def test_lines_and_circles_are_counted_over_all_flips_of_the_clusters() -> None:
    """Twelve clusters of one prompt each: 4096 ways to flip what each of them adds to the means."""
    signs = torch.tensor(list(product((1.0, -1.0), repeat=12)), dtype=torch.float64)
    told: list[float] = []
    for seed, noise in enumerate((0.6, 1.2, 1.8)):
        values, classes, clusters = noisy_classes(ARC, 12, noise, seed)
        by_cluster = values.reshape(12, 6, 2)
        means = by_cluster.mean(0)
        drawn = torch.einsum("dg,gcr->dcr", signs, (by_cluster - means) / 12) * sqrt(12 / 11)
        drawn, centred = drawn - drawn.mean(1, keepdim=True), means - means.mean(0)
        left, sigma, right = torch.linalg.svd(centred)
        line = sigma[0] * torch.outer(left[:, 0], right[0])
        second = torch.linalg.svdvals(line + drawn)[:, 1]
        moved = centred + drawn
        ends = (moved[:, 5] - moved[:, 0]).square().sum(-1)
        two_apart = sum((moved[:, i + 2] - moved[:, i]).square().sum(-1) for i in range(4)) / 4
        found = ClassMeans.of(values, classes, clusters, keyed(seed, "noise"))
        for p, exact in (
            (found.beyond_line(), float((second >= sigma[1] - 1e-9).double().mean())),
            (found.closed(), float((two_apart <= ends).double().mean())),
        ):
            near((p * (1 + SHAPES) - 1) / SHAPES, exact, SHAPES)
            told.append(exact)
    assert sum(0 < exact < 1 for exact in told) >= 3


def test_of_few_clusters_the_size_of_the_noise_is_uncertain_too() -> None:
    """Six clusters, ends as far apart as classes two apart: called closed in 21 of 200 before, where 10 may be."""
    arc, low, high = ARC, 4.0, 6.28
    for _ in range(60):
        angle = (low + high) / 2
        arc = torch.tensor([[cos(angle * i / 6), sin(angle * i / 6)] for i in range(7)]).double()
        low, high = (angle, high) if float(_closure(arc)) < 0 else (low, angle)
    said = 0
    for seed in range(200):
        made = ClassMeans.of(*noisy_classes(arc, 6, 0.33, seed), keyed(seed, "noise"))
        said += made.closed() <= 0.05
    assert wilson(said, 200)[0] <= 0.05, said
