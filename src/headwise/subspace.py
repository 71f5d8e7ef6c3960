"""A part of one head's query or key space; with the other nouns of the house in :mod:`headwise.types`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.errors import HeadwiseError


@dataclass(frozen=True, eq=False)
class Subspace:
    """An orthonormal basis of a subspace of one head's query or key space (after RoPE and QK-norm).

    ``basis`` has shape [d_head, rank] and orthonormal columns.

    >>> s = Subspace.spanned_by(torch.tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    >>> s
    Subspace(rank=1, d_head=3)
    >>> s.project(torch.tensor([3.0, 4.0, 5.0])).tolist()
    [3.0, 0.0, 0.0]
    """

    basis: Tensor
    """[d_head, rank]: orthonormal columns."""

    def __post_init__(self) -> None:
        basis = self.basis
        if basis.ndim != 2 or basis.shape[1] > basis.shape[0]:
            raise HeadwiseError(
                f"a subspace's basis has shape [d_head, rank] with rank <= d_head, not {list(basis.shape)}"
            )
        gram = basis.mT @ basis
        eye = torch.eye(basis.shape[1], dtype=basis.dtype, device=basis.device)
        if basis.shape[1] and not torch.allclose(gram, eye, atol=1e-4):
            raise HeadwiseError("a subspace's basis must be orthonormal: use Subspace.spanned_by(vectors)")

    @classmethod
    def spanned_by(cls, vectors: Tensor, *, tolerance: float = 1e-6) -> Subspace:
        """Orthonormalise the columns of ``vectors`` [d_head, n], dropping directions below ``tolerance``.

        The tolerance is relative to the largest singular value, so a set of vectors that spans fewer dimensions
        than it has members does not gain directions made of rounding noise.
        """
        work = vectors.to(torch.float64)
        left, sigma, _ = torch.linalg.svd(work, full_matrices=False)
        keep = sigma > tolerance * sigma.max() if sigma.numel() and sigma.max() > 0 else sigma > 0
        return cls(left[:, keep].to(vectors.dtype))

    @property
    def rank(self) -> int:
        """Its number of dimensions."""
        return self.basis.shape[1]

    @property
    def d_head(self) -> int:
        """Dimensions of the space it lies in."""
        return self.basis.shape[0]

    def project(self, vectors: Tensor) -> Tensor:
        """The part of ``vectors`` [..., d_head] that lies in the subspace."""
        basis = self.basis.to(device=vectors.device, dtype=vectors.dtype)
        return (vectors @ basis) @ basis.mT

    def __repr__(self) -> str:
        return f"Subspace(rank={self.rank}, d_head={self.d_head})"
