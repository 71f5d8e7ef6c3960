"""How sparsely does attention decompose over channels?

Relative attention RA(d, s) = A'_ds − mean of the other visible logits: how much more this key gets than its
rivals.
Logits are sums over channels, so RA is one too; if singular vectors are features, few channels carry it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headwise.bases.singular import QKSVD


def channel_logits(channels: QKSVD, q: Tensor, keys: Tensor, *, scale: float) -> Tensor:
    """Logits by channel: q [..., H, d_head], keys [..., H, T, d_head] -> [..., H, T, K] (scale included).

    Summed over channels (null channels of rank-deficient heads included) they are the head's logits.
    """
    a = q[..., None, :].to(channels.query_map) @ channels.query_map
    return scale * a * (keys.to(channels.key_map) @ channels.key_map.mT)


def relative_attention(logits: Tensor, source: Tensor, mask: Tensor | None = None) -> Tensor:
    """The same for many cells at once: logits [..., T, K], source [...] (the attended key), mask [..., T] -> [..., K].

    >>> relative_attention(torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), torch.tensor(0)).tolist()
    [2.5, -1.0]
    """
    t = logits.shape[-2]
    visible = (
        torch.ones(logits.shape[:-1], dtype=torch.bool) if mask is None else mask.expand(logits.shape[:-1])
    )
    chosen = torch.nn.functional.one_hot(source, t).bool().expand(logits.shape[:-1])
    others = (visible & ~chosen)[..., None]
    mean = logits.masked_fill(~others, 0).sum(-2) / others.sum(-2).clamp_min(1)
    return logits.masked_fill(~chosen[..., None], 0).sum(-2) - mean


def relative(rows: Tensor, key: int, visible: Tensor) -> Tensor:
    """One cell's own row less the mean of the other visible ones: rows [T, ...], visible [T] -> [...].

    RA is linear in the keys, so rows may be logits, logits by channel, or keys themselves. With a single visible key
    there is nothing to be relative to: the row itself.

    >>> relative(torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), 0, torch.tensor([True, True, True])).tolist()
    [2.5, -1.0]
    """
    others = visible.clone()
    others[key] = False
    return rows[key] - rows[others].mean(0) if bool(others.any()) else rows[key].clone()


def sparsity(values: Tensor) -> Tensor:
    """(mean |v|)² / mean v² over the last axis: 1/K if one channel does it all, 1 if all are equal. Lower
    is sparser.

    >>> sparsity(torch.tensor([[4.0, 0.0, 0.0, 0.0], [1.0, -1.0, 1.0, 1.0]])).tolist()
    [0.25, 1.0]
    """
    square = values.square().mean(-1).clamp_min(torch.finfo(values.dtype).tiny)
    return values.abs().mean(-1).square() / square


def channels_needed(values: Tensor, *, share: float = 0.9) -> Tensor:
    """How many channels, largest first, until their sum stays within 1 − ``share`` of the whole. [..., K]
    -> [...].

    >>> channels_needed(torch.tensor([[10.0, 0.1, 0.1, 0.0], [1.0, 1.0, 1.0, 1.0]])).tolist()
    [1, 4]
    """
    order = values.abs().argsort(-1, descending=True)
    total = values.sum(-1, keepdim=True)
    off = (values.gather(-1, order).cumsum(-1) - total).abs() > (1 - share) * total.abs() + 1e-12
    places = torch.arange(1, values.shape[-1] + 1, device=values.device)
    # The last partial sum that is still off, and one more; the full sum is never off.
    return torch.where(off, places, torch.zeros_like(places)).amax(-1) + 1
