"""Nulls of families on cases so small that every outcome can be listed: p by listing against p by the code."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, permutations, product
from math import sqrt

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.stats import chi2

from headwise.families import averaging as averaging_module
from headwise.families.agreement import agreement
from headwise.families.averaging import averaging
from headwise.families.cluster import average_linkage, cuts, separation
from headwise.families.distance import jaccard
from headwise.families.null import NullTest, OneFamily, ShuffledEdges, drawn_test, expected
from headwise.families.within import OneFamilyEach, apart_within, separation_within
from headwise.randomness import keyed

DRAWS = 1500
Rows = tuple[tuple[bool, ...], ...]


def near(p: float, exact: float, draws: int) -> None:
    """p counts the observed among the draws; four standard deviations of a binomial are one case in 16,000."""
    share = (p * (1 + draws) - 1) / draws
    assert abs(share - exact) <= 4 * sqrt(exact * (1 - exact) / draws) + 1e-9, (p, exact)


def tables(sizes: Sequence[int], counts: Sequence[int]) -> list[Rows]:
    """All circuits of these sizes whose features have these counts."""
    rows = [
        [tuple(i in some for i in range(len(counts))) for some in combinations(range(len(counts)), size)]
        for size in sizes
    ]
    return [one for one in product(*rows) if np.sum(one, 0).tolist() == list(counts)]


@pytest.mark.parametrize(
    ("sizes", "counts", "many"),
    [((1, 1, 1), (1, 1, 1), 6), ((2, 1, 1), (2, 1, 1), 5), ((3, 1, 1, 1), (2, 2, 1, 1), 18)],
)
def test_every_set_of_circuits_of_the_same_margins_is_as_likely(
    sizes: tuple[int, ...], counts: tuple[int, ...], many: int
) -> None:
    every = tables(sizes, counts)
    assert len(every) == many
    chain = ShuffledEdges(keyed(0, "listed", *sizes)).fit(sparse.csr_matrix(np.array(every[0])))
    drawn = [tuple(map(tuple, chain.sample().toarray().tolist())) for _ in range(200 * many)]
    seen = np.array([drawn.count(one) for one in every])
    assert seen.sum() == len(drawn)
    # The way there and back is as likely: of five outcomes one came twice as often as each of the others before.
    assert ((seen - 200) ** 2 / 200).sum() < chi2.isf(1e-4, many - 1), seen
    # Nor does where the chain was say where it is next: circuits of one feature each came back every other time.
    stays = sum(a == b for a, b in pairwise(drawn)) / len(drawn)
    assert stays == pytest.approx(1 / many, abs=0.05)


def apart(held: np.ndarray) -> float:
    """How far apart the two families of six circuits lie; none where no cut has two."""
    distances = jaccard(sparse.csr_matrix(held))
    found = cuts(average_linkage(distances), distances)
    return separation(distances, found[2].labels) if 2 in found else -np.inf


def listed(every: Sequence[Rows], weights: Sequence[float], observed: float) -> float:
    """The share of outcomes, by weight, that are as far apart. Where distances tie, the tree hangs on the order."""
    reached = sum(
        w for one, w in zip(every, weights, strict=True) if apart(np.array(one)) >= observed * (1 - 1e-6)
    )
    return reached / sum(weights)


@pytest.mark.parametrize("rows", ["0101 0001 1000 1000 0011 1100", "1100 0110 0011 0100 0011 0011"])
def test_the_p_of_shuffled_edges_is_that_of_all_circuits_of_the_same_margins(rows: str) -> None:
    held = np.array([[digit == "1" for digit in row] for row in rows.split()])
    every = tables(held.sum(1).tolist(), held.sum(0).tolist())
    exact = listed(every, [1.0] * len(every), apart(held))
    chain = ShuffledEdges(keyed(0, "p by listing")).fit(sparse.csr_matrix(held))
    found = drawn_test({2: apart(held)}, lambda draw: chain.sample(), len(held), DRAWS)
    assert len(every) > 50 and 0.01 < exact < 0.99
    near(found.p_values[2], exact, DRAWS)


@pytest.mark.parametrize(("rows", "wording"), [("00 01 10 10 01 01", False), ("10 01 10 01 11 01", True)])
def test_the_p_of_one_family_is_that_of_all_circuits_by_their_chances(rows: str, wording: bool) -> None:
    """Two features of six circuits that nothing ties: 4096 outcomes, each the product of its chances. One wording of
    its own is one family."""
    held = np.array([[digit == "1" for digit in row] for row in rows.split()])
    chance = expected(held.sum(1).astype(float), held.sum(0).astype(float)).astype(float)
    every = list(product(product((False, True), repeat=2), repeat=6))
    weights = [float(np.where(np.array(one), chance, 1 - chance).prod()) for one in every]
    assert sum(weights) == pytest.approx(1)
    exact = listed(every, weights, apart(held))
    matrix = sparse.csr_matrix(held)
    if wording:
        each = OneFamilyEach().fit(matrix, np.zeros(6, dtype=np.int64))
        cloud, sample = each.clouds[0][2], each.sample
    else:
        cloud = OneFamily().fit(matrix, ShuffledEdges(keyed(0, "test")).fit(matrix))
        sample = cloud.sample
    assert cloud.factors_ == 0
    blocks = np.zeros(6, dtype=np.int64)
    found = drawn_test(
        {2: apart(held)},
        lambda draw: sample(keyed(0, "listed", draw)),
        len(held),
        DRAWS,
        apart=(lambda d, cut: separation_within(d, cut, blocks)) if wording else separation,
    )
    assert 0.01 < exact < 0.99
    near(found.p_values[2], exact, DRAWS)


@pytest.mark.parametrize("numbers", [1, 2, 6])
def test_of_twenty_data_sets_that_are_alike_one_is_the_furthest(numbers: int) -> None:
    """Each of them in turn is the observed one: at 5 % one of twenty may be told apart, whichever number is chosen."""
    for seed in range(8):
        g = np.random.default_rng([seed, numbers])
        values = np.exp(0.3 * (g.normal(size=(20, 1)) + g.normal(size=(20, numbers))))
        sets = [{2 + k: float(x) for k, x in enumerate(row)} for row in values]
        tests = [NullTest(one, sets[:i] + sets[i + 1 :], {}, 20) for i, one in enumerate(sets)]
        assert sum(min(test.p_values.values()) <= 0.05 for test in tests) == 1


def test_random_groups_are_all_ways_to_part_the_circuits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two families of three equal circuits: of the 20 ways to deal six circuits two leave no group mixed."""
    monkeypatch.setattr(averaging_module, "DRAWS", 400)
    held = sparse.csr_matrix(np.repeat(np.eye(2, dtype=bool), 3, axis=0))
    found = averaging(held, jaccard(held), np.repeat([0, 1], 3))
    ways = list(combinations(range(6), 3))
    exact = sum(len({i // 3 for i in way}) == 1 for way in ways) / len(ways)
    assert exact == 0.1 and found.steadier is not None
    near(found.steadier.p, exact, 400)
    assert not found.steadier.supported


def test_agreement_with_a_label_is_counted_over_all_orders() -> None:
    families, label = np.array([0, 0, 0, 1, 1, 1]), np.array(list("aaaabb"))

    def information(values: Sequence[str]) -> float:
        """Of a table with both margins fixed Σ n log n orders what mutual information orders."""
        pairs = list(zip(values, families, strict=True))
        return sum(pairs.count(one) * np.log(pairs.count(one)) for one in set(pairs))

    orders = [information(one) for one in permutations(label)]
    exact = float(np.mean(np.array(orders) >= information(list(label)) - 1e-12))
    distances = np.abs(families[:, None] - families).astype(np.float32)
    (found,) = agreement({"kind": label}, families, distances)
    assert 0 < exact < 1
    near(found.p_value, exact, 999)


def test_the_label_of_one_wording_alone_is_counted_over_all_orders() -> None:
    places, code = np.array([0.0, 1.0, 3.0, 7.0]), np.array([0, 0, 1, 1])
    distances = np.abs(places[:, None] - places)

    def same(values: Sequence[int]) -> float:
        return float(distances[np.equal.outer(values, values)].sum())

    exact = float(np.mean([same(one) <= same(code.tolist()) for one in permutations(code.tolist())]))
    found = apart_within(distances, code, np.zeros(4, dtype=int), torch.Generator().manual_seed(0), 3000)
    assert exact == pytest.approx(1 / 3)
    near(found, exact, 3000)
