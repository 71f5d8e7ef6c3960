"""Placebos: exact on a case that can be counted out, chosen ranks, level and power of the swap claim."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from headwise.claims import p_value
from headwise.contrast.collect import Pairs
from headwise.contrast.placebo import (
    Placebos,
    covariance_root,
    covariance_subspaces,
    key_vectors,
    placebo_covariances,
    placebo_union,
    rank_curves,
)
from headwise.contrast.swaps import SwapRows, swap_keys
from headwise.errors import HeadwiseError
from headwise.randomness import keyed

WIDTH = 16


def pairs_of(q: Tensor, keys: Tensor, positives: int = 1) -> Pairs:
    """Queries [n, d] and keys [n, K, d], the first ``positives`` of them positive."""
    counts = torch.tensor([[positives, keys.shape[1] - positives]]).repeat(len(q), 1)
    plus, minus = keys[:, :positives].mean(1), keys[:, positives:].mean(1)
    return Pairs(q[:, None], plus[:, None], minus[:, None], None, keys[:, None], counts)


def drawn(effect: float, seed: int, n: int = 120, keys: int = 5, rank: int = 2) -> tuple[Tensor, Tensor]:
    """Queries and keys of one head: all keys vary along a few strong directions that the head reads, whatever the
    labels; positive keys match the query along ``rank`` others by ``effect``."""
    g = keyed(seed, "drawn")
    spread = torch.ones(WIDTH).double()
    spread[:4] = 3.0
    q = torch.randn(n, WIDTH, generator=g).double() + 2.0 * torch.eye(WIDTH)[0]
    k = torch.randn(n, keys, WIDTH, generator=g).double() * spread
    k[:, 0, 6 : 6 + rank] += effect * q[:, 6 : 6 + rank]
    return q, k


def claimed(effect: float, seed: int, draws: int = 99) -> float:
    """p of a feature that is fitted on some prompts and swapped on others."""
    q, k = drawn(effect, seed)
    pairs = pairs_of(q[:60], k[:60])
    rank = rank_curves(pairs, 5, clusters=None, seed=seed)[0].rank
    delta = (pairs.q[:, 0].mT @ (pairs.plus - pairs.minus)[:, 0]) / len(pairs)
    rows = SwapRows.from_keys(q[60:], k[60:], torch.zeros(60).long(), torch.ones(60).long(), scale=0.2)
    real = swap_keys(rows, key_vectors(delta, rank)[None]).log_odds.mean()
    placebo = Placebos.fitted(pairs, rank, draws, seed).key[:, 0]
    follow = covariance_subspaces(covariance_root(pairs)[0], rank, draws, keyed(seed, "follow"))
    whole = swap_keys(rows, None).log_odds.mean()
    return max(
        p_value(float(real / whole), swap_keys(rows, bases).log_odds.mean(1) / whole)
        for bases in (placebo, follow)
    )


def test_placebo_covariances_are_those_of_all_ways_to_shuffle() -> None:
    """Two prompts of two keys: four ways, each as likely as any."""
    q, k = drawn(0.0, 1, n=2, keys=2)
    d = k[:, 0] - k[:, 1]
    ways = [
        (s * torch.outer(q[0], d[0]) + t * torch.outer(q[1], d[1])) / 2 for s, t in product((1, -1), repeat=2)
    ]
    made = placebo_covariances(pairs_of(q, k), torch.full((1, 2), 0.5), 2000, keyed(0))[:, 0, 0]
    which = torch.stack([(made - way).abs().amax((1, 2)) for way in ways]).min(0)
    assert float(which.values.max()) < 1e-9
    assert torch.bincount(which.indices).tolist() == pytest.approx([500] * 4, abs=90)


def test_several_positive_keys_and_absent_ones_are_shuffled_as_sets() -> None:
    q, k = drawn(0.0, 2, n=3, keys=4)
    k[0, 3] = 1e6  # never read: the first prompt has three keys
    pairs = pairs_of(q, k, positives=2)
    counts = torch.tensor([[2, 1], [2, 2], [2, 2]])
    made = placebo_covariances(
        Pairs(pairs.q, pairs.plus, pairs.minus, None, pairs.keys, counts), torch.eye(3), 50, keyed(0)
    )
    assert made[:, 0].abs().max() < 1e3
    assert torch.linalg.matrix_rank(made[0, 1, 0]) == 1  # one prompt is q dᵀ


def test_a_run_of_two_queries_keeps_each_with_its_keys() -> None:
    q, k = drawn(0.0, 3, n=1, keys=2)
    other = torch.randn(1, 1, WIDTH, generator=keyed(1)).double()
    pairs = Pairs(q[:, None], k[:, None, 0], k[:, None, 1], other, k[:, None], torch.tensor([[1, 1]]))
    made = placebo_covariances(pairs, torch.ones(1, 1), 40, keyed(0))[:, 0, 0]
    ways = [torch.outer(q[0], k[0, a]) - torch.outer(other[0, 0], k[0, b]) for a, b in ((0, 1), (1, 0))]
    assert float(torch.stack([(made - w).abs().amax((1, 2)) for w in ways]).min(0).values.max()) < 1e-9


def test_placebo_bases_are_orthonormal_pairs_and_unions_span_them() -> None:
    found = Placebos.fitted(pairs_of(*drawn(0.0, 4)), 3, 7, 0)
    for basis in (found.query, found.key):
        assert basis.shape == (7, 1, WIDTH, 3)
        assert torch.allclose(basis.mT @ basis, torch.eye(3).double(), atol=1e-9)
    joint = placebo_union([found.key[:, 0, :, :2], found.key[:, 0, :, 2:]], 3)
    onto = joint @ joint.mT @ found.key[:, 0]
    assert torch.allclose(onto, found.key[:, 0], atol=1e-9)


def test_random_subspaces_follow_the_keys() -> None:
    q, k = drawn(0.0, 5, n=400)
    bases = covariance_subspaces(covariance_root(pairs_of(q, k))[0], 2, 200, keyed(0))
    assert float(bases[:, :4].square().sum((1, 2)).mean()) > 1.1  # uniformly 0.5


@pytest.mark.parametrize("rank", [1, 3])
def test_a_planted_rank_is_chosen(rank: int) -> None:
    q, k = drawn(2.5, 6, n=400, rank=rank)
    (curve,) = rank_curves(pairs_of(q, k), 6, clusters=None, seed=0)
    assert curve.rank == rank
    assert (curve.share - curve.high)[rank - 1] > 0
    assert (curve.high >= curve.placebo).all()


def test_placebos_need_every_key() -> None:
    bare = Pairs(*(torch.zeros(3, 1, 4).double() for _ in range(3)))
    with pytest.raises(HeadwiseError, match="need every key of a prompt"):
        placebo_covariances(bare, torch.ones(1, 3), 2, keyed(0))


@pytest.mark.slow
def test_the_swap_claim_holds_its_level_and_has_power() -> None:
    """Labels that mean nothing, where uniformly random subspaces would be beaten nearly always; then planted ones."""
    false = sum(claimed(0.0, seed) <= 0.05 for seed in range(60))
    found = [sum(claimed(effect, seed) <= 0.05 for seed in range(15)) for effect in (0.5, 3.0)]
    assert false <= 7
    assert found[1] >= 13 and found[0] <= found[1]
