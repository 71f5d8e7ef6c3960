"""How alike signals are over prompts: the distance itself, and the same strengths in channels anywhere."""

from __future__ import annotations

from itertools import permutations, product

import pytest
import torch

from headwise.sinks.signals import SHUFFLES, agreement, cosine_distance


def test_cosine_distance_is_zero_for_identical_and_about_one_for_random_signals() -> None:
    generator = torch.Generator().manual_seed(0)
    one = torch.randn(16, generator=generator, dtype=torch.float64)
    same = one * torch.rand(9, 1, generator=generator, dtype=torch.float64).add(0.1)
    assert float(cosine_distance(same)) == pytest.approx(0.0, abs=1e-12)
    assert float(cosine_distance(-same)) == pytest.approx(0.0, abs=1e-12)
    random = torch.randn(200, 64, generator=generator, dtype=torch.float64)
    assert float(cosine_distance(random)) == pytest.approx(1.0, abs=0.01)


def test_cosine_distance_of_a_resample_compares_no_prompt_with_itself() -> None:
    vectors = torch.randn(5, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    drawn = [0, 0, 2, 3, 3]
    weights = torch.zeros(1, 5, dtype=torch.float64)
    for i in drawn:
        weights[0, i] += 1
    pairs = [
        1 - float(torch.cosine_similarity(vectors[i], vectors[j], dim=0))
        for i in drawn
        for j in drawn
        if i != j
    ]
    assert float(cosine_distance(vectors, weights)[0]) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)


def test_agreement_is_compared_with_a_null_near_one() -> None:
    vectors = torch.zeros(10, 32, dtype=torch.float64)
    vectors[:, 3], vectors[:, 5] = 2.0, -1.0
    found = agreement(vectors, torch.eye(32, dtype=torch.float64)[:6], [2] * 10, 0, "test")
    assert found.controlled and found.distance.mean == pytest.approx(0.0, abs=1e-12)
    assert found.shuffled == pytest.approx(1.0, abs=0.1)
    assert found.others == pytest.approx(1.0, abs=1e-12)


def test_signals_that_agree_are_told_from_the_same_strengths_anywhere() -> None:
    g = torch.Generator().manual_seed(0)
    common = torch.randn(16, generator=g).double()
    near = common + 0.1 * torch.randn(6, 16, generator=g).double()
    far = torch.randn(6, 16, generator=g).double()
    agree, apart = (agreement(one, one[:0], [1], 0, "test").claim for one in (near, far))
    assert agree is not None and agree.supported and agree.p == 1 / 200
    assert apart is not None and not apart.supported


def test_the_same_strengths_anywhere_are_all_orders_and_signs() -> None:
    """Two signals in two channels: two orders and four signs each, 64 outcomes."""
    vectors = torch.tensor([[3.0, 1.0], [2.0, 1.0]], dtype=torch.float64)

    def everywhere(one: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.tensor(order, dtype=torch.float64) * torch.tensor(signs, dtype=torch.float64)
            for order in permutations(one.tolist())
            for signs in product((1.0, -1.0), repeat=2)
        ]

    ways = [torch.stack(both) for both in product(*map(everywhere, vectors))]
    near = [float(cosine_distance(way)) <= float(cosine_distance(vectors)) + 1e-9 for way in ways]
    exact = sum(near) / len(ways)
    found = agreement(vectors, vectors[:0], [1], 0, "listed")
    assert len(ways) == 64 and exact == 1 / 8 and found.claim is not None
    share = (found.claim.p * (1 + SHUFFLES) - 1) / SHUFFLES
    assert abs(share - exact) < 4 * (exact * (1 - exact) / SHUFFLES) ** 0.5
    assert found.shuffled == pytest.approx(1.0, abs=0.25)  # signs are as often alike as not
