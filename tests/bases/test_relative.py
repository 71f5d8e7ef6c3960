"""Relative attention by channel, and how sparse it is."""

from __future__ import annotations

import pytest
import torch

from headwise.bases import channel_logits, channels_needed, qk_svd, relative_attention, rotated, sparsity


def heads(seed=0, count=3, d_head=6, d_model=20):
    g = torch.Generator().manual_seed(seed)
    return (*(torch.randn(count, d_head, d_model, generator=g, dtype=torch.float64) for _ in range(2)), g)


def test_coordinates_sum_to_the_logit_for_any_vector_in_head_space() -> None:
    w_q, w_k, g = heads()
    c = qk_svd(w_q, w_k)
    # Not in the image of any residual vector with certainty: biases and rotations may put q and k anywhere.
    q = torch.randn(5, 3, 6, generator=g, dtype=torch.float64)
    keys = torch.randn(5, 3, 7, 6, generator=g, dtype=torch.float64)
    split = channel_logits(c, q, keys, scale=0.4)
    torch.testing.assert_close(split.sum(-1), 0.4 * torch.einsum("nhd,nhtd->nht", q, keys))
    turned = channel_logits(rotated(c, generator=g), q, keys, scale=0.4)
    torch.testing.assert_close(turned.sum(-1), split.sum(-1))
    assert not torch.allclose(turned, split)


def test_relative_attention_sums_to_that_of_the_logits() -> None:
    g = torch.Generator().manual_seed(0)
    split = torch.randn(4, 5, 6, generator=g, dtype=torch.float64)
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[:, 4] = False
    source = torch.tensor([0, 1, 2, 3])
    found = relative_attention(split, source, mask).sum(-1)
    for i in range(4):
        row = split[i].sum(-1)
        others = [row[j] for j in range(4) if j != i]
        assert found[i].item() == pytest.approx((row[i] - sum(others) / 3).item())


def test_rotation_destroys_sparsity() -> None:
    """A head whose logits live on one channel is sparse; its rotation is not."""
    w_q, w_k, g = heads(count=1, d_head=16, d_model=40)
    c = qk_svd(w_q, w_k)
    x, y = c.query_directions[0, :, 0] * 3, c.key_directions[0, :, 0] * 3
    q = (w_q[0] @ x)[None]
    keys = torch.stack(
        [w_k[0] @ y, *(w_k[0] @ (0.1 * torch.randn(5, 40, generator=g, dtype=torch.float64)).T).T]
    )[None]
    sparse, dense = (
        relative_attention(channel_logits(ch, q, keys, scale=1.0), torch.tensor([0]))
        for ch in (c, rotated(c, generator=g))
    )
    assert sparsity(sparse).item() < 0.1 < 0.15 < sparsity(dense).item()
    assert channels_needed(sparse).item() == 1 < channels_needed(dense).item()
