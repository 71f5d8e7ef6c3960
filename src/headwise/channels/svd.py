"""Channels of a head: the singular pairs of its QK form, without ever building the d_model × d_model matrix.

Ω = W_Qᵀ W_K (weights as [d_head, d_model]) has rank at most d_head. With W_Qᵀ = Q₁R₁ and W_Kᵀ = Q₂R₂ (QR)
and the small SVD R₁R₂ᵀ = U'ΣV'ᵀ, the singular vectors are U = Q₁U' and V = Q₂V'. In head space G_d =
R₁⁻¹U'Σ and G_s = V'ᵀR₂⁻ᵀ satisfy G_d G_s = I, so for *any* q̃ and k̃ in head space, with biases and rotary
positions in them,

    q̃·k̃ = Σ_k a_k b_k,   a = q̃ᵀG_d,   b = G_s k̃.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.errors import HeadwiseError


@dataclass(frozen=True, eq=False)
class QKChannels:
    """Singular pairs of H heads, float64: u, v [H, d_model, K], sigma [H, K], g_d [H, d_head, K], g_s [H,
    K, d_head].

    ``null`` [H, d_head, d_head] = I − G_d G_s is zero for heads of full rank. Elsewhere q̃ᵀ null k̃ is an
    explicit null channel, so that channels and null channel always sum to the logit.
    """

    u: Tensor
    sigma: Tensor
    v: Tensor
    g_d: Tensor
    g_s: Tensor
    null: Tensor
    rank: Tensor

    def query_coordinates(self, q: Tensor) -> Tensor:
        """a = q̃ᵀG_d: [..., H, n, d_head] -> [..., H, n, K]."""
        return q.to(self.g_d) @ self.g_d

    def key_coordinates(self, k: Tensor) -> Tensor:
        """b = G_s k̃: [..., H, n, d_head] -> [..., H, n, K]."""
        return k.to(self.g_s) @ self.g_s.mT

    def __repr__(self) -> str:
        heads, d_model, channels = self.u.shape
        return f"QKChannels(heads={heads}, channels={channels}, d_model={d_model})"


def qk_svd(w_q: Tensor, w_k: Tensor, *, tolerance: float = 1e-10) -> QKChannels:
    """Channels of heads with weights w_q, w_k [H, d_head, d_model] (or one head, [d_head, d_model]).

    Singular values below ``tolerance`` times the largest count as zero. Signs are canonical: the largest
    entry of every u_k is positive.

    >>> g = torch.Generator().manual_seed(0)
    >>> w_q, w_k = (torch.randn(2, 4, 16, generator=g, dtype=torch.float64) for _ in range(2))
    >>> c = qk_svd(w_q, w_k)
    >>> c
    QKChannels(heads=2, channels=4, d_model=16)
    >>> bool(torch.allclose(c.u @ torch.diag_embed(c.sigma) @ c.v.mT, w_q.mT @ w_k))
    True
    """
    if w_q.ndim == 2:
        w_q, w_k = w_q[None], w_k[None]
    if w_q.ndim != 3 or w_q.shape != w_k.shape or w_q.shape[1] > w_q.shape[2]:
        raise HeadwiseError(
            f"query and key weights are [heads, d_head, d_model] with d_head <= d_model, "
            f"not {list(w_q.shape)} and {list(w_k.shape)}"
        )
    q1, r1 = torch.linalg.qr(w_q.double().mT)
    q2, r2 = torch.linalg.qr(w_k.double().mT)
    left, sigma, right = torch.linalg.svd(r1 @ r2.mT)
    right = right.mT
    u, v = q1 @ left, q2 @ right
    sign = torch.gather(u, 1, _first_largest(u)[:, None]).sign()
    u, v, left, right = u * sign, v * sign, left * sign[:, 0, None], right * sign[:, 0, None]

    top = sigma[:, :1].clamp_min(torch.finfo(torch.float64).tiny)
    alive = sigma > tolerance * top
    sigma = sigma * alive
    eye = torch.eye(sigma.shape[1], dtype=torch.float64, device=sigma.device)
    if bool(alive.all()):
        g_d = torch.linalg.solve_triangular(r1, left * sigma[:, None], upper=True)
        g_s = torch.linalg.solve_triangular(r2, right, upper=True).mT
        null = torch.zeros_like(r1)
    else:
        g_d = torch.linalg.pinv(r1, rtol=tolerance) @ (left * sigma[:, None])
        g_s = (torch.linalg.pinv(r2, rtol=tolerance) @ (right * alive[:, None])).mT
        null = eye - g_d @ g_s
        null = torch.where(alive.all(1)[:, None, None], torch.zeros_like(null), null)
    return QKChannels(u, sigma, v, g_d, g_s, null, alive.sum(1))


def _first_largest(u: Tensor) -> Tensor:
    """Row of the largest magnitude per column [H, K]; among near ties the first, so that rounding cannot
    choose.
    """
    size = u.abs()
    near = size >= size.amax(1, keepdim=True) * (1 - 1e-9)
    return near.to(torch.int8).argmax(1)


def rotated(channels: QKChannels, *, generator: torch.Generator) -> QKChannels:
    """The control: rotate U√Σ and V√Σ of every head by one random orthogonal matrix.

    Every logit stays what it was, every low-rank structure too; only the *axes* are no longer singular
    vectors.
    """
    heads, k = channels.sigma.shape
    gaussian = torch.randn(heads, k, k, generator=generator, dtype=torch.float64)
    turn = torch.linalg.qr(gaussian).Q
    half = channels.sigma.sqrt()
    inverse = torch.where(half > 0, 1 / half, torch.zeros_like(half))
    return QKChannels(
        channels.u * half[:, None] @ turn,
        torch.ones_like(half),
        channels.v * half[:, None] @ turn,
        channels.g_d * inverse[:, None] @ turn,
        turn.mT @ (half[:, :, None] * channels.g_s),
        channels.null,
        channels.rank,
    )
