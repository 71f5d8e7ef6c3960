"""Does a channel stay what it is when other texts are measured? Only then may it go by a number or a name.

Two bases of one head that were fitted on different texts split the same logits along different channels. Channels are
compared by what they read: the correlation of their query coordinates and of their key coordinates over the pooled
moments, the smaller of the two.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.bases.balanced import BalancedMaps, HeadMoments

STABLE = 0.9
"""|correlation| from which on a channel is the same channel."""


def channel_agreement(one: BalancedMaps, other: BalancedMaps, moments: HeadMoments) -> Tensor:
    """|correlation| of every channel of one basis with every channel of another: [*, channels, channels]."""
    query = one.query_map.mT @ moments.query @ other.query_map
    key = one.key_map @ moments.key @ other.key_map.mT
    return torch.minimum(
        query.abs() / _sizes(one.query_map.mT, other.query_map.mT, moments.query),
        key.abs() / _sizes(one.key_map, other.key_map, moments.key),
    ).clamp(max=1.0)


def stability(
    pooled: BalancedMaps, first: BalancedMaps, second: BalancedMaps, moments: HeadMoments
) -> Tensor:
    """How far two parts of the texts agree on each channel of the pooled basis: [*, channels].

    A pooled channel is looked up in each part's basis, as the channel there that is most like it; its stability is the
    agreement of these two.
    """
    here = channel_agreement(pooled, first, moments).argmax(-1)
    there = channel_agreement(pooled, second, moments).argmax(-1)
    between = channel_agreement(first, second, moments)
    rows = between.gather(-2, here[..., None].expand(*here.shape, between.shape[-1]))
    return rows.gather(-1, there[..., None])[..., 0]


def _sizes(one: Tensor, other: Tensor, moment: Tensor) -> Tensor:
    """√(E x_i² · E y_j²) of coordinates x = one @ v and y = other @ v."""
    x, y = (
        (rows @ moment * rows).sum(-1).clamp(min=torch.finfo(rows.dtype).tiny).sqrt() for rows in (one, other)
    )
    return x[..., :, None] * y[..., None, :]
