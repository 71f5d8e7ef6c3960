"""Averaged circuits vary where families are mixed; families are steadier than random groups only if they are real."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from headwise.families import averaging as module
from headwise.families.averaging import averaging
from headwise.families.distance import jaccard


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAWS", 39)


def planted(
    families: int, noise: float, size: int = 24, features: int = 60
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Families of circuits, each with features of its own that are there nearly always, and noise everywhere."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(families), size)
    share = np.full((families, features), noise)
    for family in range(families):
        own = slice(family * features // families, (family + 1) * features // families)
        share[family, own] = 0.95
    return sparse.csr_matrix(random.random((len(labels), features)) < share[labels]), labels


def test_planted_families_are_steadier_than_random_groups_and_than_the_average() -> None:
    held, labels = planted(2, 0.05)
    found = averaging(held, jaccard(held), labels)
    assert found.steadier is not None and found.steadier.supported and found.steadier.p == 1 / 40
    assert found.families < 0.02 < found.all_prompts
    assert found.random_mean is not None and found.random_mean > 5 * found.families
    assert found.family_shared > 0.9 > found.shared
    assert len(found.by_family) == 2 and found.families == pytest.approx(sum(found.by_family) / 2)


def test_one_family_cut_in_two_is_no_steadier() -> None:
    held, one = planted(1, 0.5)
    labels = np.arange(len(one)) % 2
    found = averaging(held, jaccard(held), labels)
    assert found.steadier is not None and not found.steadier.supported


def test_one_family_has_nothing_to_compare_with() -> None:
    held, labels = planted(1, 0.5)
    found = averaging(held, jaccard(held), labels)
    assert found.steadier is None and found.random_groups == () and found.random_mean is None
    assert found.all_prompts == pytest.approx(found.families, abs=0.05)


def test_the_average_is_what_half_of_the_circuits_hold() -> None:
    """By hand: of three circuits two hold feature 0, one holds feature 1, all hold feature 2."""
    held = sparse.csr_matrix(np.array([[1, 1, 1], [1, 0, 1], [0, 0, 1]], dtype=bool))
    found = averaging(held, jaccard(held), np.zeros(3, dtype=np.int64))
    assert found.all_size == 2
    assert found.shared == pytest.approx((2 / 3 + 1 + 1) / 3)
