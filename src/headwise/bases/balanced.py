"""The balanced basis of a head's QK form: the channels of what flows, salience first.

Any pair of maps with G_d G_s = 1 splits a logit exactly; the singular basis chooses one by the weights alone. This one
also asks which queries and keys really meet. With the uncentred moments C_q = E[q qᵀ] and C_k = E[Δk Δkᵀ] over
attended cells, in the query's frame, where Δk is the key less the mean of its rivals, and q̄ the mean query (A2):

    u₀ ∝ C_q^{-½} q̄          (1 − u₀u₀ᵀ) C_q^½ C_k^½ = U' S Vᵀ          U = [u₀, U' without its last column]
    G_d = C_q^{-½} U S^½      G_s = S^{-½} Uᵀ C_q^½

Channel 0, *salience*, reads keys along the mean query: what the head likes whatever is asked. Every other channel has
mean query coordinate 0, and queries and keys use it equally: E a_k² = E b_k² = S_k. It is the closed form of balanced
truncation in control theory. A Gaussian stream of the same moments would give the same basis: it is parsimony from
second moments, and no evidence of features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SHRINKAGE = 0.01
"""Of each moment's mean eigenvalue, added to its diagonal: no channel is made of what was hardly ever seen."""
SHRINKAGE_FEW = 0.05
FEW = 10
"""Below this many attended cells per dimension the moments are shrunk more, and the basis is marked."""
TOO_FEW = 4
"""Below this many the moments say too little: the basis falls back to the singular one."""


@dataclass(frozen=True, eq=False)
class HeadMoments:
    """Second moments over the attended cells of some heads (any leading shape ``*``), in the query's frame."""

    cells: Tensor
    """[*]: how many attended cells they are over."""
    query_mean: Tensor
    """[*, d_head]"""
    query: Tensor
    """[*, d_head, d_head]: C_q."""
    key: Tensor
    """[*, d_head, d_head]: C_k, of keys less the mean of their rivals."""

    def at(self, index: int) -> HeadMoments:
        """The moments at one place of the first axis: of a layer, or of a layer's head."""
        return HeadMoments(self.cells[index], self.query_mean[index], self.query[index], self.key[index])

    def shrunk(self) -> HeadMoments:
        """Moments that no rarely seen direction can blow up: a little of the mean eigenvalue on each diagonal."""
        few = self.cells < FEW * self.query.shape[-1]
        amount = torch.where(few, SHRINKAGE_FEW, SHRINKAGE).to(self.query)
        return HeadMoments(
            self.cells, self.query_mean, _raised(self.query, amount), _raised(self.key, amount)
        )

    def seen_through(self, query_map: Tensor, key_map: Tensor) -> HeadMoments:
        """The same moments of the coordinates a = q @ query_map and b = key_map @ Δk."""
        return HeadMoments(
            self.cells,
            (self.query_mean[..., None, :] @ query_map)[..., 0, :],
            query_map.mT @ self.query @ query_map,
            key_map @ self.key @ key_map.mT,
        )


@dataclass(frozen=True, eq=False)
class BalancedMaps:
    """The maps of some heads' balanced bases, strongest channel first after salience."""

    energies: Tensor
    """[*, d_head]: S."""
    query_map: Tensor
    """[*, d_head, d_head]: G_d."""
    key_map: Tensor
    """[*, d_head, d_head]: G_s."""


def balanced_maps(moments: HeadMoments) -> BalancedMaps:
    """The balanced basis, salience first, of each head.

    >>> g = torch.Generator().manual_seed(0)
    >>> q, k = torch.randn(500, 4, generator=g).double() + 1, torch.randn(500, 4, generator=g).double()
    >>> found = balanced_maps(HeadMoments(torch.tensor(500), q.mean(0), q.mT @ q / 500, k.mT @ k / 500))
    >>> torch.allclose(found.query_map @ found.key_map, torch.eye(4).double())
    True
    >>> (q.mean(0) @ found.query_map)[1:].abs().max() < 1e-12
    tensor(True)
    """
    shrunk = moments.shrunk()
    query_root, query_inverse = _roots(shrunk.query)
    key_root, _ = _roots(shrunk.key)
    meeting = query_root @ key_root
    mean = (query_inverse @ moments.query_mean[..., None])[..., 0]
    # A head whose mean query is zero has no salience: its first channel is then whatever the moments say.
    length = mean.norm(dim=-1, keepdim=True)
    first = torch.where(
        length > 1e-12 * query_inverse.abs().amax((-2, -1))[..., None], mean / length, _lead(meeting)
    )
    rest = meeting - first[..., :, None] * (first[..., None, :] @ meeting)
    left, energies, _ = torch.linalg.svd(rest)
    # The last left vector is u₀ itself, whose energy was taken out; orthonormalise once more against rounding.
    turn = torch.cat((first[..., None], left[..., :-1]), -1)
    q, r = torch.linalg.qr(turn)
    turn = q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
    energy = torch.cat(((first[..., None, :] @ meeting).norm(dim=-1), energies[..., :-1]), -1)
    floor = energy.amax(-1, keepdim=True) * torch.finfo(energy.dtype).eps
    root = energy.clamp(min=floor).sqrt()
    query_map = query_inverse @ turn * root[..., None, :]
    key_map = (turn.mT @ query_root) / root[..., :, None]
    sign = _signs(query_map)
    return BalancedMaps(energy, query_map * sign[..., None, :], key_map * sign[..., :, None])


def _signs(query_map: Tensor) -> Tensor:
    """A channel is defined up to a common sign: the largest entry of its column is positive; salience has its own."""
    largest = query_map.abs().argmax(-2, keepdim=True)
    sign = torch.where(query_map.gather(-2, largest)[..., 0, :] < 0, -1.0, 1.0).to(query_map)
    sign[..., 0] = 1.0  # u₀ points along the mean query, so the mean coordinate is positive already
    return sign


def _raised(moment: Tensor, amount: Tensor) -> Tensor:
    mean = moment.diagonal(dim1=-2, dim2=-1).mean(-1)
    return moment + (amount * mean)[..., None, None] * torch.eye(moment.shape[-1]).to(moment)


def _roots(moment: Tensor) -> tuple[Tensor, Tensor]:
    """C^½ and C^{-½} of positive definite matrices."""
    value, vector = torch.linalg.eigh(moment)
    root = value.clamp(min=torch.finfo(value.dtype).tiny).sqrt()
    return (vector * root[..., None, :]) @ vector.mT, (vector / root[..., None, :]) @ vector.mT


def _lead(meeting: Tensor) -> Tensor:
    return torch.linalg.svd(meeting)[0][..., 0]
