"""Channels that survive other texts, and channels that do not."""

from __future__ import annotations

import torch

from headwise.bases.balanced import BalancedMaps, HeadMoments, balanced_maps
from headwise.bases.stability import STABLE, channel_agreement, stability


def moments(seed: int, spread: list[float], n: int = 3000) -> HeadMoments:
    """Queries and keys whose energies along the axes are ``spread``; the mean query lies along the first."""
    g = torch.Generator().manual_seed(seed)
    size = torch.tensor(spread, dtype=torch.float64).sqrt()
    q, k = (torch.randn(n, len(spread), generator=g, dtype=torch.float64) * size for _ in range(2))
    q[:, 0] += 3
    return HeadMoments(torch.tensor(n), q.mean(0), q.mT @ q / n, k.mT @ k / n)


def test_a_basis_agrees_with_itself_and_with_its_mirror() -> None:
    pooled = moments(0, [4.0, 3.0, 2.0, 1.0])
    found = balanced_maps(pooled)
    mirror = BalancedMaps(found.energies, -found.query_map, -found.key_map)
    for other in (found, mirror):
        same = channel_agreement(found, other, pooled.shrunk())
        assert torch.allclose(same.diagonal(), torch.ones(4).double())


def test_distinct_energies_are_stable_and_equal_ones_are_not() -> None:
    spread = [9.0, 6.0, 1.0, 1.0, 1.0]
    first, second = moments(1, spread), moments(2, spread)
    means = [(getattr(first, name) + getattr(second, name)) / 2 for name in ("query_mean", "query", "key")]
    pooled = HeadMoments(torch.tensor(6000), *means)
    found = stability(balanced_maps(pooled), balanced_maps(first), balanced_maps(second), pooled)
    assert (found[:2] > STABLE).all()
    # Three directions of one energy: any turn of them is as good, so two samples choose different ones.
    assert (found[2:] < STABLE).any()
    assert (found <= 1).all()
