"""The singular pairs of heads' QK forms, found without building the forms.

Ω = W_Q W_Kᵀ = Σ_k u_k σ_k v_kᵀ has rank at most d_head. With W_Q = Q₁R₁ and W_K = Q₂R₂ (QR) and the small SVD
R₁R₂ᵀ = U'ΣV'ᵀ, the singular vectors are U = Q₁U' and V = Q₂V'. In head space the maps G_d = R₁⁻¹U'Σ and G_s = V'ᵀR₂⁻ᵀ
satisfy G_d G_s = 1 (docs: tracing §1).
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
    # Where queries and keys never meet, all of R₁R₂ᵀ is rounding, the largest singular value too.
    rounding = torch.finfo(sigma.dtype).eps * sigma.shape[-1] * r1.norm(dim=(-2, -1)) * r2.norm(dim=(-2, -1))
    rank = (sigma > torch.maximum(RANK_TOLERANCE * sigma[..., :1], rounding[..., None])).sum(-1)
    query_map = torch.linalg.solve_triangular(r1, u, upper=True) * sigma[..., None, :]
    key_map = torch.linalg.solve_triangular(r2, vt.mT, upper=True).mT
    for at in (rank < sigma.shape[-1]).nonzero().tolist():
        head = tuple(at)
        query_map[head], key_map[head] = _completed(
            r1[head], r2[head], u[head], sigma[head], vt[head], int(rank[head])
        )
    kept = torch.arange(sigma.shape[-1], device=sigma.device) < rank[..., None]
    return QKSVD(sigma * kept, query_directions * sign, key_directions * sign, query_map, key_map, rank)


def _completed(
    r1: Tensor, r2: Tensor, u: Tensor, sigma: Tensor, vt: Tensor, rank: int
) -> tuple[Tensor, Tensor]:
    """G_d and G_s of one head whose rank is below d_head: ``rank`` singular channels, then the null ones.

    R₁ or R₂ has no inverse, but none is needed: g_k = R₂ᵀv'_k and h_k = R₁ᵀu'_k / σ_k are the columns of G_d and the
    rows of G_s of any head, h_j·g_k = u'_jᵀ R₁R₂ᵀ v'_k / σ_j = δ_jk. A query's channels are its products with the g, a
    key's those with the h. Without biases queries lie in A = range R₁ᵀ and keys in B = range R₂ᵀ. A null channel is
    zero for all of them if its h is orthogonal to B or its g to A, and so each gets one such vector:

    * some queries meet no key: A ∩ B⊥ = R₁ᵀ · span(u'_k, k ≥ rank). An orthonormal basis E of it gives rows of G_s;
    * where no query points, A⊥: an orthonormal basis N of it gives columns of G_d.

    E is orthogonal to every g (they lie in B), N to every h and to E (they lie in A). So their
    partners can be written down, with P = Σ_k g_k h_kᵀ: (1 − P)E for E, and (1 − Pᵀ)N less its part along E for N.
    Together these are dual bases of head space: G_d G_s = 1. E and N follow the axes of head space, not the vectors
    that a factorisation happens to return.
    """
    g = r2.mT @ vt[:rank].mT
    h = u[:, :rank].mT @ r1 / sigma[:rank, None]
    idle, size, _ = torch.linalg.svd(r1.mT @ u[:, rank:], full_matrices=False)
    unmet = _along_axes(idle[:, size > RANK_TOLERANCE * torch.linalg.matrix_norm(r1, 2)])
    reached = torch.cat((h.mT, unmet), 1)
    unreached = _along_axes(torch.linalg.qr(reached, mode="complete")[0][:, reached.shape[1] :])
    unmet_partner = unmet - g @ (h @ unmet)
    unreached_partner = unreached - h.mT @ (g.mT @ unreached)
    unreached_partner = unreached_partner - unmet @ (unmet_partner.mT @ unreached)
    return torch.cat((g, unmet_partner, unreached), 1), torch.cat((h, unmet.mT, unreached_partner.mT), 0)


def _along_axes(basis: Tensor) -> Tensor:
    """The orthonormal basis of the same space [d_head, n] that follows the axes of head space, whatever basis is given.

    Gram–Schmidt over the axes' projections: each time the first axis whose rest is nearly as long as the longest.
    """
    seen = basis.mT
    rest, picked = seen, []
    for _ in range(basis.shape[1]):
        length = rest.norm(dim=0)
        # Not simply the longest: where several are equal, rounding would decide.
        axis = int((length > 0.7 * length.max()).nonzero()[0])
        picked.append(axis)
        along = rest[:, axis] / length[axis]
        rest = rest - along[:, None] * (along @ rest)
    turn, triangle = torch.linalg.qr(seen[:, picked])
    return basis @ (turn * triangle.diagonal().sign())


def rotated(svd: QKSVD, generator: torch.Generator) -> QKSVD:
    """The control (docs/method/tracing.md §1): turn U√Σ and V√Σ by one random orthogonal matrix.

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
