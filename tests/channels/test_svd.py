"""Channels: the small factorisation is the SVD of the big matrix, and coordinates add up to the logit."""

import pytest
import torch

from headwise.channels import channel_logits, channels_needed, qk_svd, relative_attention, rotated, sparsity
from headwise.errors import HeadwiseError


def heads(seed=0, count=3, d_head=6, d_model=20):
    g = torch.Generator().manual_seed(seed)
    return (*(torch.randn(count, d_head, d_model, generator=g, dtype=torch.float64) for _ in range(2)), g)


def test_equals_the_svd_of_the_full_form():
    w_q, w_k, _ = heads()
    c = qk_svd(w_q, w_k)
    omega = w_q.mT @ w_k
    torch.testing.assert_close(c.u @ torch.diag_embed(c.sigma) @ c.v.mT, omega)
    torch.testing.assert_close(c.sigma, torch.linalg.svdvals(omega)[:, :6])
    eye = torch.eye(6, dtype=torch.float64).expand(3, 6, 6)
    for basis in (c.u, c.v):
        torch.testing.assert_close(basis.mT @ basis, eye)
    torch.testing.assert_close(c.g_d @ c.g_s, eye, atol=1e-9, rtol=0)
    assert (c.rank == 6).all()
    assert not c.null.any()


def test_coordinates_sum_to_the_logit_for_any_vector_in_head_space():
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


def test_rank_deficient_heads_have_an_explicit_null_channel():
    w_q, w_k, g = heads()
    w_q[1, 3:] = 0
    c = qk_svd(w_q, w_k)
    assert c.rank.tolist() == [6, 3, 6]
    q, k = torch.randn(2, 3, 6, generator=g, dtype=torch.float64).unbind()
    parts = (c.query_coordinates(q[:, None]) * c.key_coordinates(k[:, None]))[:, 0].sum(-1)
    null = torch.einsum("hd,hde,he->h", q, c.null, k)
    torch.testing.assert_close(parts + null, (q * k).sum(-1), atol=1e-8, rtol=1e-8)
    assert not c.null[0].any()
    assert c.null[1].any()


def test_signs_are_canonical():
    w_q, w_k, g = heads()
    turn = torch.linalg.qr(torch.randn(6, 6, generator=g, dtype=torch.float64)).Q
    a, b = qk_svd(w_q, w_k), qk_svd(turn @ w_q, turn @ w_k)
    torch.testing.assert_close(a.u, b.u, atol=1e-9, rtol=0)
    torch.testing.assert_close(a.v, b.v, atol=1e-9, rtol=0)
    assert (torch.gather(a.u, 1, a.u.abs().argmax(1, keepdim=True)) > 0).all()


def test_relative_attention_sums_to_that_of_the_logits():
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


def test_rotation_destroys_sparsity():
    """A head whose logits live on one channel is sparse; its rotation is not."""
    w_q, w_k, g = heads(count=1, d_head=16, d_model=40)
    c = qk_svd(w_q, w_k)
    x, y = c.u[0, :, 0] * 3, c.v[0, :, 0] * 3
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


def test_bad_shapes_are_refused():
    with pytest.raises(HeadwiseError, match="d_head <= d_model"):
        qk_svd(torch.zeros(8, 4), torch.zeros(8, 4))
