"""Feature subspaces of one head: where ΔC puts them, how they overlap, and what to compare them with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.contrast.covariance import ContrastiveCovariance
from headwise.errors import HeadwiseError
from headwise.types import Subspace


@dataclass(frozen=True, eq=False)
class Feature:
    """A named feature of one head: its subspace in query space and in key space, same rank.

    ``sigma`` [rank] are the singular values of ΔC that belong to the paired basis vectors.
    """

    name: str
    query: Subspace
    key: Subspace
    sigma: Tensor

    @property
    def rank(self) -> int:
        return self.key.rank

    def __repr__(self) -> str:
        return f"Feature({self.name!r}, rank={self.rank}, d_head={self.key.d_head})"


def feature(delta_c: Tensor, rank: int, name: str = "") -> Feature:
    """The top ``rank`` singular pairs of ΔC [d_head, d_head] (Eq. C2): U spans queries, V spans keys.

    The sign of every pair is fixed (largest entry of u positive), so the same ΔC gives the same bases
    everywhere.

    >>> feature(torch.diag(torch.tensor([3.0, 2.0, 0.0])), 2, "size")
    Feature('size', rank=2, d_head=3)
    """
    if delta_c.ndim != 2:
        raise HeadwiseError(
            f"ΔC of one head is [d_head, d_head], not {list(delta_c.shape)}: pick a head first"
        )
    if not 1 <= rank <= min(delta_c.shape):
        raise HeadwiseError(f"rank {rank} of feature {name!r} is outside 1..{min(delta_c.shape)}")
    left, sigma, right = torch.linalg.svd(delta_c.double())
    left, right = left[:, :rank], right[:rank].mT
    sign = torch.gather(left, 0, left.abs().argmax(0, keepdim=True)).sign()
    return Feature(name, Subspace(left * sign), Subspace(right * sign), sigma[:rank])


def union(subspaces: Sequence[Subspace], *, tolerance: float = 0.05) -> Subspace:
    """The span of several subspaces, orthonormal, without directions that are only noise.

    ``tolerance`` is relative to the largest singular value of the stacked bases. Directions of properly
    normalised categories sum to about zero, so five of them span four dimensions; a plain QR would invent a
    fifth from noise.

    >>> three = torch.tensor([[1.0, -0.5, -0.5], [0.0, 0.75**0.5, -(0.75**0.5)]])
    >>> union([Subspace(three[:, i : i + 1]) for i in range(3)])
    Subspace(rank=2, d_head=2)
    """
    if not subspaces:
        raise HeadwiseError("a union needs at least one subspace")
    sizes = sorted({s.d_head for s in subspaces})
    if len(sizes) > 1:
        raise HeadwiseError(f"subspaces of d_head {sizes} cannot be united: they belong to different heads")
    return Subspace.spanned_by(torch.cat([s.basis.double() for s in subspaces], 1), tolerance=tolerance)


def principal_cosines(a: Subspace | Tensor, b: Subspace | Tensor) -> Tensor:
    """Cosines of the principal angles, descending, [..., min(rank)]. Bases [..., d_head, rank] may be batched."""
    left, right = (x.basis if isinstance(x, Subspace) else x for x in (a, b))
    return torch.linalg.svdvals(left.double().mT @ right.double()).clamp_max(1)


def principal_angles(a: Subspace | Tensor, b: Subspace | Tensor) -> Tensor:
    """Principal angles in degrees, ascending, [..., min(rank)].

    >>> x, y = Subspace(torch.eye(3)[:, :1]), Subspace(torch.eye(3)[:, 1:])
    >>> principal_angles(x, y).tolist()
    [90.0]
    """
    return torch.rad2deg(principal_cosines(a, b).acos())


def superposition_index(subspaces: Sequence[Subspace]) -> float:
    """How much less room the features take than they have dimensions: 0 if orthogonal, 1 − 1/K if K coincide.

    1 − (soft dimension of the stacked bases) / (sum of ranks), with soft dimension (Σλ)² / Σλ² over the
    eigenvalues λ of their Gram matrix: no tolerance to choose, and it grows smoothly with overlap.

    >>> axes = torch.eye(4)
    >>> superposition_index([Subspace(axes[:, :2]), Subspace(axes[:, 2:])])
    0.0
    >>> superposition_index([Subspace(axes[:, :2]), Subspace(axes[:, :2])])
    0.5
    """
    stacked = torch.cat([s.basis.double() for s in subspaces], 1)
    ranks = stacked.shape[1]
    if not ranks:
        return 0.0
    soft = ranks**2 / (stacked.mT @ stacked).square().sum().item()
    return max(0.0, 1 - soft / ranks)


def random_subspaces(d_head: int, rank: int, draws: int, *, generator: torch.Generator) -> Tensor:
    """Uniformly random orthonormal bases [draws, d_head, rank], float64."""
    if not 1 <= rank <= d_head:
        raise HeadwiseError(f"a random subspace of rank {rank} does not fit into d_head {d_head}")
    gaussian = torch.randn(
        draws, d_head, rank, generator=generator, dtype=torch.float64, device=generator.device
    )
    return torch.linalg.qr(gaussian).Q


def principal_components(vectors: Tensor, rank: int) -> Subspace:
    """The top principal components of vectors [n, d_head], centred: the control that sees variance but no labels."""
    if not 1 <= rank <= min(vectors.shape):
        raise HeadwiseError(f"{rank} principal components of vectors {list(vectors.shape)} do not exist")
    centred = vectors.double() - vectors.double().mean(0)
    return Subspace(torch.linalg.eigh(centred.mT @ centred).eigenvectors[:, -rank:].flip(1))


def mean_difference(covariance: ContrastiveCovariance, head: int = 0) -> Subspace:
    """The direction of d̄ = mean k+ − mean k−, rank one: the control that sees labels but no query."""
    mean = covariance.mean_d_
    return Subspace.spanned_by((mean if mean.ndim == 1 else mean[head])[:, None])
