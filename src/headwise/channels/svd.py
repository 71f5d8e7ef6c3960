"""Channels of a head: the SVD of its QK form, found without ever building the d_model × d_model matrix.

Ω = W_Q W_Kᵀ = Σ_k u_k σ_k v_kᵀ has rank at most d_head. With W_Q = Q₁R₁ and W_K = Q₂R₂ (QR) and the small SVD
R₁R₂ᵀ = U'ΣV'ᵀ, the singular vectors are U = Q₁U' and V = Q₂V'. In head space the maps G_d = R₁⁻¹U'Σ and
G_s = V'ᵀR₂⁻ᵀ satisfy G_d G_s = 1, so a query's coordinates a = q G_d and a key's b = G_s k give the logit as
Σ_k a_k b_k for *any* q and k: biases and RoPE act before the coordinates are taken (docs/method/tracing.md §1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

RANK_TOLERANCE = 1e-10
"""Singular values below this share of the largest count as zero (all of it is computed in float64)."""


@dataclass(frozen=True, eq=False)
class QKSVD:
    """The singular pairs of some heads' QK forms (any leading batch shape ``*``), largest first, in float64."""

    sigma: Tensor
    """[*, d_head] singular values; zero for null channels."""
    query_directions: Tensor
    """[*, d_model, d_head]: u_k in the columns, as the stream is read after the norm's scalar."""
    key_directions: Tensor
    """[*, d_model, d_head]: v_k in the columns."""
    query_map: Tensor
    """[*, d_head, d_head]: G_d. A query's coordinates are q @ G_d (σ included)."""
    key_map: Tensor
    """[*, d_head, d_head]: G_s. A key's coordinates are G_s @ k."""
    rank: Tensor
    """[*] channels that are not null. Channels from ``rank`` on are null: they carry no part of Ω, only what biases
    put outside its range, so that the sum over channels stays exact."""


def qk_svd(query: Tensor, key: Tensor) -> QKSVD:
    """Channels of heads with query maps [*, d_head, d_model] and key maps [*, d_head, d_model].

    >>> g = torch.Generator().manual_seed(0)
    >>> W_Q, W_K = (torch.randn(4, 12, generator=g, dtype=torch.float64) for _ in range(2))
    >>> svd = qk_svd(W_Q, W_K)
    >>> omega = svd.query_directions @ svd.sigma.diag() @ svd.key_directions.mT
    >>> torch.allclose(omega, W_Q.mT @ W_K), torch.allclose(svd.query_map @ svd.key_map, torch.eye(4).double())
    (True, True)
    """
    with one_thread():
        return _qk_svd(query.double(), key.double())


@contextmanager
def one_thread() -> Iterator[None]:
    """Many small factorisations: threads that wait for one another cost more than they bring (10 to 50 times)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _qk_svd(query: Tensor, key: Tensor) -> QKSVD:
    q1, r1 = torch.linalg.qr(query.mT)
    q2, r2 = torch.linalg.qr(key.mT)
    u, sigma, vt = torch.linalg.svd(r1 @ r2.mT)
    query_directions, key_directions = q1 @ u, q2 @ vt.mT
    # A singular pair is defined up to a common sign: let the largest entry of u_k be positive on every machine.
    largest = query_directions.abs().argmax(-2, keepdim=True)
    sign = torch.where(query_directions.gather(-2, largest) < 0, -1.0, 1.0).to(sigma.dtype)
    u, vt = u * sign, vt * sign.mT
    rank = (sigma > RANK_TOLERANCE * sigma[..., :1].clamp(min=1e-300)).sum(-1)
    if bool((rank == sigma.shape[-1]).all()):
        query_map = torch.linalg.solve_triangular(r1, u, upper=True) * sigma[..., None, :]
        key_map = torch.linalg.solve_triangular(r2, vt.mT, upper=True).mT
    else:
        query_map, key_map = _with_null_channels(r1, r2, u, sigma, vt, rank)
    kept = torch.arange(sigma.shape[-1], device=sigma.device) < rank[..., None]
    return QKSVD(sigma * kept, query_directions * sign, key_directions * sign, query_map, key_map, rank)


def _with_null_channels(
    r1: Tensor, r2: Tensor, u: Tensor, sigma: Tensor, vt: Tensor, rank: Tensor
) -> tuple[Tensor, Tensor]:
    """Head-space maps where some head has rank below d_head: complete them so that G_d G_s = 1 all the same."""
    width = sigma.shape[-1]
    flat = [x.reshape(-1, *x.shape[x.ndim - n :]) for x, n in ((r1, 2), (r2, 2), (u, 2), (sigma, 1), (vt, 2))]
    query_maps, key_maps = [], []
    for (r1_, r2_, u_, sigma_, vt_), r in zip(zip(*flat, strict=True), rank.flatten().tolist(), strict=True):
        # Least squares instead of a triangular solve: a deficient R has no inverse.
        query_map = (torch.linalg.pinv(r1_, rtol=RANK_TOLERANCE) @ u_)[:, :r] * sigma_[:r]
        key_map = vt_[:r] @ torch.linalg.pinv(r2_, rtol=RANK_TOLERANCE).mT
        # key_map @ query_map is not the identity when only one side is deficient; pair them anew.
        query_map = query_map @ torch.linalg.pinv(key_map @ query_map) if r else query_map
        left, value, right = torch.linalg.svd(torch.eye(width, dtype=r1_.dtype) - query_map @ key_map)
        n = width - r
        query_maps.append(torch.cat((query_map, left[:, :n] * value[:n]), 1))
        key_maps.append(torch.cat((key_map, right[:n]), 0))
    shape = (*sigma.shape[:-1], width, width)
    return torch.stack(query_maps).reshape(shape), torch.stack(key_maps).reshape(shape)


def rotated(svd: QKSVD, generator: torch.Generator) -> QKSVD:
    """The control of §6: turn U√Σ and V√Σ by one random orthogonal matrix.

    Every logit stays what it was, but the new directions are no longer the singular ones.
    """
    width = svd.sigma.shape[-1]
    turn, _ = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=svd.sigma.dtype))
    root = svd.sigma.clamp(min=0).sqrt()
    safe = torch.where(root > 0, root, torch.ones_like(root))
    # a/√σ and b·√σ are the coordinates along U√Σ and V√Σ; null channels have no σ to share out.
    return QKSVD(
        svd.sigma,
        (svd.query_directions * root[..., None, :]) @ turn,
        (svd.key_directions * root[..., None, :]) @ turn,
        (svd.query_map / safe[..., None, :]) @ turn,
        turn.mT @ (svd.key_map * safe[..., :, None]),
        svd.rank,
    )
