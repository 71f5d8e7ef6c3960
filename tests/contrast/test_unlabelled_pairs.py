"""Who writes two features, where their cells are of the same texts: texts are exchanged, not cells."""

from __future__ import annotations

import pytest
import torch

from headwise.contrast.unlabelled.pairs import PairTest, writer_test
from headwise.errors import HeadwiseError

WRITERS = 7
TEXTS = {
    "other texts": torch.arange(16),
    "the same texts": torch.arange(8).repeat(2),
    "some of them the same": torch.tensor([*range(8), *range(4, 12)]),
}
"""Texts of eight cells of each feature."""


def told(unit: torch.Tensor, effect: float, seed: int) -> PairTest:
    """Profiles of which most is of the text; with an effect the second feature has another writer."""
    g = torch.Generator().manual_seed(seed)
    common = torch.randn(WRITERS, generator=g)
    profiles = common + 2.0 * torch.randn(16, WRITERS, generator=g)[unit]
    profiles = profiles + 0.5 * torch.randn(16, WRITERS, generator=g)
    profiles[8:, 0] += effect
    found = writer_test(profiles[:8], profiles[8:], unit, seed)
    assert found is not None
    return found


@pytest.mark.parametrize("unit", TEXTS.values(), ids=TEXTS.keys())
def test_the_writers_test_keeps_its_level_and_uses_it(unit: torch.Tensor) -> None:
    """Cells of one kind: a twentieth is told apart, no more, and no less where both have their cells in the same texts.

    Texts are exchanged, not cells: two cells of one text share its words, and are no two observations.
    """
    p = torch.tensor([told(unit, 0.0, seed).claim.p for seed in range(100)])
    assert (p <= 0.05).sum() <= 11  # of 100 at level 0.05: twelve or more have probability 0.004
    assert 0.35 <= float((p <= 0.5).double().mean()) <= 0.67


def test_a_writer_is_found_beneath_what_cells_of_a_text_have_in_common() -> None:
    found = [told(TEXTS["the same texts"], 6.0, seed) for seed in range(10)]
    assert sum(one.claim.p <= 0.05 for one in found) >= 9
    assert all(one.difference > 0 for one in found)


def test_cells_of_one_text_are_not_compared() -> None:
    """Each text has profiles of its own, the same for both features: nothing is alike, within or between."""
    profiles = torch.eye(8)
    found = writer_test(profiles, profiles, TEXTS["the same texts"], 0)
    assert found is not None
    assert found.difference == pytest.approx(0.0, abs=1e-12)
    assert found.claim.p == 1.0


def test_several_cells_of_a_text_are_refused() -> None:
    with pytest.raises(HeadwiseError, match="several cells of one feature"):
        writer_test(torch.randn(4, 3), torch.randn(4, 3), torch.tensor([0, 0, 1, 2, 3, 4, 5, 6]), 0)
