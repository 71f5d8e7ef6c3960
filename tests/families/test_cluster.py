"""Clusters: equal to scipy and scikit-learn, planted families come back, and data without families give none."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from pace import first_is_quick
from planted_circuits import by_heads, gradient, independent, planted
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score, silhouette_samples

from headwise.families.agreement import agreement, usable_labels
from headwise.families.cluster import (
    average_linkage,
    cluster,
    cuts,
    leaf_order,
    medoids,
    separation,
    silhouettes,
    smallest_family,
)
from headwise.families.distance import jaccard
from headwise.families.null import NullTest, OneFamily, ShuffledEdges, expected, null_tests, sampled
from headwise.randomness import keyed


def chosen(matrix: sparse.csr_matrix, seed: int, draws: int = 19) -> tuple[int, np.ndarray]:
    """The number of families and each circuit's, by the rule."""
    distances = jaccard(matrix)
    found = cluster(distances, seed=seed, resamples=6)
    if not found.cuts:
        return 1, found.labels(1)
    test, _ = null_tests(matrix, {k: cut.labels for k, cut in found.cuts.items()}, seed=seed, draws=draws)
    k = found.choose(test.p_values)
    return k, found.labels(k)


def test_linkage_cuts_and_leaves_are_scipys() -> None:
    matrix, truth = planted(120, 0, families=4)
    distances = jaccard(matrix)
    tree = average_linkage(distances)
    theirs = linkage(squareform(distances.astype(np.float64), checks=False), "average")
    assert np.allclose(tree[:, 2], theirs[:, 2], atol=1e-6)
    assert leaf_order(tree).tolist() == leaves_list(tree).tolist()
    found = cuts(tree, distances)
    assert not found[4].strays.any()
    assert adjusted_rand_score(found[4].labels, fcluster(tree, 4, "maxclust")) == 1
    assert adjusted_rand_score(found[4].labels, truth) == 1
    assert found[4].sizes.tolist() == sorted(found[4].sizes, reverse=True)


def test_small_clusters_are_no_families_but_strays_of_the_nearest() -> None:
    places = np.concatenate((np.linspace(0, 1, 60), np.linspace(10, 11, 60), [24.0, 24.1]))
    distances = np.abs(places[:, None] - places).astype(np.float32)
    found = cuts(average_linkage(distances), distances)
    assert smallest_family(len(places)) == 3
    assert np.flatnonzero(found[2].strays).tolist() == [120, 121]
    assert found[2].labels.tolist() == [1] * 60 + [0] * 62  # numbered by size, the strays counted


def test_silhouettes_of_many_partitions_are_sklearns() -> None:
    generator = np.random.default_rng(0)
    distances = jaccard(independent(50, 2))
    partitions = {k: np.unique(generator.integers(k, size=50), return_inverse=True)[1] for k in (2, 3, 7, 20)}
    partitions[50] = np.arange(50)  # all alone: 0 by definition
    partitions[1] = np.zeros(50, dtype=np.int64)
    got = silhouettes(distances, partitions)
    for k in (2, 3, 7, 20):
        expected = np.asarray(silhouette_samples(distances, partitions[k], metric="precomputed"))
        assert np.allclose(got[k], expected, atol=1e-5)
    assert not got[50].any() and not got[1].any()


def test_medoids_have_the_least_mean_distance() -> None:
    matrix, _ = planted(80, 1)
    distances = jaccard(matrix)
    labels = cuts(average_linkage(distances), distances)[3].labels
    for number, medoid in enumerate(medoids(distances, labels)):
        members = np.flatnonzero(labels == number)
        means = {int(i): np.mean([distances[i, j] for j in members if j != i]) for i in members}
        assert means[medoid] == pytest.approx(min(means.values()), abs=1e-6)


def slow_separation(points: np.ndarray, labels: np.ndarray) -> float:
    """From the points themselves: places on the line of two centroids, the point itself left out of its own."""
    least = np.inf
    for a in range(int(labels.max()) + 1):
        for b in range(a):
            places: dict[int, list[float]] = {a: [], b: []}
            for i in np.flatnonzero((labels == a) | (labels == b)):
                others = np.arange(len(labels)) != i
                centres = [points[others & (labels == c)].mean(0) for c in (a, b)]
                squares = [float(np.square(points[i] - centre).sum()) for centre in centres]
                places[int(labels[i])].append(squares[0] - squares[1])
            first, second = (np.array(places[c]) for c in (a, b))
            inside = np.square(first - first.mean()).sum() + np.square(second - second.mean()).sum()
            apart = second.mean() - first.mean()
            least = min(least, float(apart / np.sqrt(inside / (len(first) + len(second) - 2))))
    return least


def test_separation_is_that_of_points() -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(40, 5)) + 2 * np.arange(40)[:, None] // 14
    labels = np.arange(40) // 14
    squared = np.square(points[:, None] - points).sum(-1)
    assert separation(squared, labels) == pytest.approx(slow_separation(points, labels), rel=1e-3)


def test_halves_of_a_cloud_are_less_apart_than_clusters() -> None:
    cloud = np.random.default_rng(1).normal(size=4000)
    squared = np.square(cloud[:, None] - cloud)
    assert separation(squared, (cloud > 0).astype(np.int64)) == pytest.approx(2.65, abs=0.1)


def test_shuffling_keeps_sizes_and_frequencies_and_breaks_families() -> None:
    matrix, labels = planted(90, 0)
    made = ShuffledEdges(keyed(0, "test")).fit(matrix).sample()
    used = np.flatnonzero(np.asarray(matrix.sum(0)).ravel())
    assert made.max() == 1
    assert np.array_equal(np.asarray(made.sum(1)), np.asarray(matrix.sum(1)))
    assert np.array_equal(np.asarray(made.sum(0)).ravel(), np.asarray(matrix.sum(0)).ravel()[used])
    assert abs(separation(jaccard(made), labels)) < 1 < separation(jaccard(matrix), labels)


def test_one_family_keeps_sizes_frequencies_and_correlations_but_no_gap() -> None:
    matrix, labels = planted(150, 3, families=2)
    cloud = OneFamily().fit(matrix, ShuffledEdges(keyed(0, "test")).fit(matrix))
    drawn = [cloud.sample(keyed(1, i)).toarray() for i in range(20)]
    held = matrix.toarray()
    held = held[:, held.any(0)]
    sizes = np.mean([d.sum(1) for d in drawn], 0)
    shares = np.mean([d.mean(0) for d in drawn], 0)
    assert np.corrcoef(sizes, held.sum(1))[0, 1] > 0.95
    assert np.abs(shares - held.mean(0)).mean() < 0.03
    # The features of the first family go together as observed (mean correlation), yet nothing lies apart.
    own = np.flatnonzero(held[labels == 0].mean(0) - held[labels == 1].mean(0) > 0.4)
    correlation = [np.corrcoef(d[:, own].T)[~np.eye(len(own), dtype=bool)].mean() for d in (held, *drawn)]
    assert len(own) > 20
    assert np.mean(correlation[1:]) > 0.7 * correlation[0]
    gaps = [
        max(separation(d, c.labels) for c in cuts(average_linkage(d), d).values())
        for d in map(_distances, drawn)
    ]
    assert max(gaps) < 0.6 * separation(jaccard(matrix), labels)


def _distances(held: np.ndarray) -> np.ndarray:
    return jaccard(sparse.csr_matrix(held))


def test_expected_chances_have_the_margins() -> None:
    generator = np.random.default_rng(0)
    held = generator.random((40, 90)) < generator.beta(0.4, 2, 90)
    held = held[:, held.any(0)]
    chance = expected(held.sum(1), held.sum(0))
    assert np.allclose(chance.sum(0), held.sum(0), atol=0.3)
    assert np.allclose(chance.sum(1), held.sum(1), atol=0.3)


@pytest.mark.parametrize("families", [2, 3, 6])
@pytest.mark.parametrize("seed", first_is_quick(0, 1))
def test_planted_families_are_recovered_among_nuisance(families: int, seed: int) -> None:
    matrix, truth = planted(120, 50 + seed, families=families, own=40)
    k, labels = chosen(matrix, seed)
    assert k == families
    assert adjusted_rand_score(truth, labels) > 0.95


def test_a_small_family_beside_a_large_one_is_found() -> None:
    matrix, truth = planted(150, 8, families=2, shares=(0.88, 0.12))
    k, labels = chosen(matrix, 0)
    assert k == 2
    assert adjusted_rand_score(truth, labels) > 0.95


NULLS: dict[str, Callable[[int, int], sparse.csr_matrix]] = {
    "independent edges": independent,
    "edges of a head together": by_heads,
    "continuous causes": gradient,
    "one strong continuous cause": lambda n, seed: gradient(n, seed, factors=1, strength=2.0),
}


@pytest.mark.calibration
def test_data_without_families_give_none_in_19_of_20_seeds() -> None:
    """Every kind of dependence that is not a gap; 4 × 15 data sets."""
    found = {name: [chosen(make(80, 1000 + s), s)[0] for s in range(15)] for name, make in NULLS.items()}
    wrong = {name: sum(k > 1 for k in ks) for name, ks in found.items()}
    assert sum(wrong.values()) <= 0.05 * 60, wrong


def test_the_shuffle_alone_would_be_fooled() -> None:
    """Why the verdict does not use it: continuous causes are not families, but beat shuffled edges."""
    matrix = gradient(80, 5)
    found = cluster(jaccard(matrix), resamples=2)
    strict, shuffle = null_tests(matrix, {k: c.labels for k, c in found.cuts.items()}, draws=19)
    assert min(shuffle.p_values.values()) == pytest.approx(0.05)
    assert min(strict.p_values.values()) > 0.05


def test_p_values_allow_for_the_choice_of_the_number() -> None:
    null = [{2: 2.0 + 0.1 * i, 3: 3.0 - 0.1 * i} for i in range(19)]
    test = NullTest({2: 3.9, 3: 3.0, 9: 99.0}, null, {}, 50)
    every = {k: [one[k] for one in null] + [test.observed[k]] for k in (2, 3)}

    def out(k: int, value: float) -> float:
        return float((value - np.mean(every[k])) / np.std(every[k]))

    largest = [max(out(k, value) for k, value in one.items()) for one in null]
    assert test.p_values[9] == pytest.approx(1 / 20)
    assert test.p_values[3] == pytest.approx((1 + sum(x >= out(3, 3.0) - 1e-9 for x in largest)) / 20)
    assert test.p_values[3] > test.p_values[2]


def test_how_far_out_families_lie_is_measured_by_null_data_alone() -> None:
    """Measured with the observed among them nothing lies more than √19 standard deviations out, and the band that is
    drawn around null data reached up to the observed itself."""
    null = [{2: 2.0 + 0.1 * (i % 3)} for i in range(19)]
    near, far = (NullTest({2: value}, null, {}, 50) for value in (3.0, 300.0))
    assert near.usual == far.usual and near.usual[2][1] < 0.1
    assert far.excess(far.observed)[2] > 100 * near.excess(near.observed)[2] > 100 * math.sqrt(19)
    assert near.p_values == far.p_values == {2: 0.05}


def test_the_same_seed_gives_the_same_result_and_samples_are_sorted() -> None:
    matrix, _ = planted(60, 0)
    found = cluster(jaccard(matrix), seed=4)
    again = cluster(jaccard(matrix), seed=4)
    labels = {k: c.labels for k, c in found.cuts.items()}
    assert found.stability == again.stability
    first, second = (null_tests(matrix, labels, seed=4, draws=3)[0] for _ in range(2))
    assert first.null == second.null
    assert sampled(5, 0).tolist() == [0, 1, 2, 3, 4]
    picked = sampled(1000, 0, most=50)
    assert len(np.unique(picked)) == 50 and picked.tolist() == sorted(picked)


def test_agreement_with_labels() -> None:
    matrix, truth = planted(90, 2)
    distances = jaccard(matrix)
    generator = np.random.default_rng(0)
    labels = [
        {"kind": f"k{t}", "noise": str(generator.integers(4)), "id": str(i), "same": "x"}
        for i, t in enumerate(truth)
    ]
    usable = usable_labels(labels)
    assert set(usable) == {"kind", "noise"}
    kind, noise = agreement(usable, truth, distances)
    assert (kind.label, noise.label) == ("kind", "noise")
    assert kind.ami.mean == pytest.approx(1) and kind.p_value == pytest.approx(0.001)
    assert noise.ami.low < 0.05 and noise.p_value > 0.01
    assert noise.ami.low <= noise.ami.mean <= noise.ami.high
    assert kind.silhouette > noise.silhouette
    one = agreement(usable, np.zeros(90, dtype=np.int64), distances)
    assert [a.ami.mean for a in one] == [0, 0]
