"""The one-family null with a common factor, on six circuits of two features: all 4096 outcomes, by their chances."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import norm

from headwise.families.cluster import average_linkage, cuts, separation
from headwise.families.distance import jaccard
from headwise.families.null import OneFamily, drawn_test
from headwise.families.within import OneFamilyEach
from headwise.randomness import keyed

DRAWS = 1500
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
PATTERNS = list(product((False, True), repeat=2))


def cloud(rows: int, cut: tuple[float, float], loading: tuple[float, float]) -> OneFamily:
    """One factor that ties both features, and does not go along with the size of a circuit."""
    made = OneFamily()
    made.cut_ = np.tile(np.array(cut, dtype=np.float32), (rows, 1))
    made.factors_ = 1
    made._by_score, made._rest, made._rows = np.zeros(3), np.zeros(rows), np.arange(rows)
    made._tie(np.array(loading)[:, None])
    return made


def chances(cut: tuple[float, float], loading: tuple[float, float]) -> list[float]:
    """Of each pattern of two features: thresholds of normal variables, the factor integrated out."""
    held = [norm.sf((c - a * NODES) / sqrt(1 - a * a)) for c, a in zip(cut, loading, strict=True)]
    weights = WEIGHTS / WEIGHTS.sum()
    return [
        float((weights * (held[0] if a else 1 - held[0]) * (held[1] if b else 1 - held[1])).sum())
        for a, b in PATTERNS
    ]


def apart(held: np.ndarray) -> float:
    """How far apart the two families of six circuits lie; none where no cut has two."""
    distances = jaccard(sparse.csr_matrix(held))
    found = cuts(average_linkage(distances), distances)
    return separation(distances, found[2].labels) if 2 in found else -np.inf


EVERY = list(product(range(4), repeat=6))


@pytest.fixture(scope="module")
def separations() -> np.ndarray:
    return np.array([apart(np.array([PATTERNS[i] for i in one])) for one in EVERY])


def exact(separations: np.ndarray, observed: float, by_row: list[list[float]]) -> float:
    weights = np.array([np.prod([by_row[row][i] for row, i in enumerate(one)]) for one in EVERY])
    assert weights.sum() == pytest.approx(1)
    return float(weights[separations >= observed * (1 - 1e-6)].sum())


@pytest.mark.parametrize("wordings", [False, True])
@pytest.mark.parametrize("rows", ["00 01 10 10 01 01", "10 01 10 01 11 01"])
def test_the_p_of_circuits_that_a_factor_ties_is_that_of_all_outcomes(
    rows: str, wordings: bool, separations: np.ndarray
) -> None:
    """As one cloud, and as two wordings of three circuits that are a cloud each."""
    held = np.array([[digit == "1" for digit in row] for row in rows.split()])
    first, second = ((0.2, -0.3), (0.8, 0.7)), ((-0.4, 0.5), (0.6, -0.9))
    if wordings:
        each = OneFamilyEach()
        each.shape, both = (6, 2), np.arange(2)
        each.clouds = [(np.arange(3), both, cloud(3, *first)), (np.arange(3, 6), both, cloud(3, *second))]
        sample, by_row = each.sample, [chances(*first)] * 3 + [chances(*second)] * 3
    else:
        sample, by_row = cloud(6, *first).sample, [chances(*first)] * 6
    found = drawn_test({2: apart(held)}, lambda draw: sample(keyed(0, "listed", draw)), 6, DRAWS)
    real = exact(separations, apart(held), by_row)
    p = found.p_values[2]
    assert 0.01 < real < 0.99
    assert abs((p * (1 + DRAWS) - 1) / DRAWS - real) <= 4 * sqrt(real * (1 - real) / DRAWS), (p, real)
    # Features that nothing ties would have other outcomes.
    assert abs(chances(*first)[3] - chances(first[0], (0.0, 0.0))[3]) > 0.05


@pytest.mark.parametrize("rest", [0.0, 0.5, 3.0])
def test_the_larger_circuit_has_the_larger_factor_as_often_as_size_follows_from_it(rest: float) -> None:
    """Two circuits whose size is the factor and a rest of ±r: the rest decides where it is larger than D ~ N(0, 2)."""
    made = cloud(2, (0.0, 0.0), (0.5, 0.5))
    made._by_score, made._rest = np.array([0.0, 1.0, 0.0]), np.array([-rest, rest])
    drawn = np.stack([made._hidden(keyed(0, "factor", i))[:, 0] for i in range(2000)])
    share = float((drawn[:, 1] > drawn[:, 0]).mean())
    real = 0.5 + norm.sf(2 * rest / sqrt(2))
    assert abs(share - real) <= 4 * sqrt(real * (1 - real) / 2000) + 1e-9
    assert abs(float(drawn.mean())) < 4 / sqrt(4000) and float(drawn.std()) == pytest.approx(1, abs=0.06)
