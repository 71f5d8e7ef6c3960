"""From span, axes and groups to features: a subspace of queries and one of keys, and the logit that each makes.

Keys inside the span are k ≈ V (mean + mixing · s). So a feature's keys move along its columns of V·mixing, the queries
that ask for it along ΔC times what reads it, and the logit is a sum over axes (Eq. C15):

    q·VVᵀk = q·V mean + Σ_j (q·V mixing_j) s_j(k)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headwise.contrast.subspaces import Feature
from headwise.contrast.unlabelled.attention_rows import AttendedCells
from headwise.contrast.unlabelled.axes import STABLE, IndependentAxes
from headwise.contrast.unlabelled.groups import grouped
from headwise.contrast.unlabelled.self_contrast import SelfContrast
from headwise.types import Subspace

REST = "rest"
"""The feature of all axes that are not identified: a span without axes."""


@dataclass(frozen=True, eq=False)
class LabelFree:
    """What one head's attention says of its features."""

    contrast: SelfContrast
    """The span."""
    axes: IndependentAxes
    """Axes inside it."""
    groups: tuple[tuple[int, ...], ...]
    """Axes of each feature."""
    halves: tuple[float, ...]
    """How well the span of each feature is found again in the other half of the texts."""
    seeds: tuple[float, ...]
    """The same with other starts."""
    known: tuple[bool, ...]
    """Whether a feature is one; if not, it is the ``rest``: axes of whose common span alone something is known."""

    @classmethod
    def fit(
        cls, contrast: SelfContrast, held_out: AttendedCells, *, seed: int = 0, seeds: int = 3
    ) -> LabelFree:
        """Axes of the keys that the head chose from, grouped by what they do in attended cells of other texts.

        Of keys that were chosen even independent coordinates depend on one another: whichever made the score high
        spared the others. So axes are fitted on keys drawn whatever their attention.
        """
        axes = IndependentAxes(random_state=seed, seeds=seeds)
        inside = contrast.transform(contrast.keys_).numpy()
        axes.fit(inside, units=contrast.key_units_.numpy())
        here, there = axes.transform(inside), axes.transform(contrast.transform(held_out.k).numpy())
        groups = grouped(_standard(there))
        again = np.minimum(*axes.agreement(groups, here))
        # Of several axes that act together only the span has to be found again: inside it any axes will do.
        kept = [
            group
            for group, score in zip(groups, again, strict=True)
            if (score >= STABLE if len(group) > 1 else bool(axes.identified_[list(group)].all()))
        ]
        rest = sorted(set(range(here.shape[1])).difference(*kept))
        final = [*kept, tuple(rest)] if rest else kept
        halves, other = axes.agreement(final, here)
        known = [group in kept for group in final]
        return cls(contrast, axes, tuple(final), tuple(halves.tolist()), tuple(other.tolist()), tuple(known))

    def strongest(self, share: Sequence[float], most: int) -> LabelFree:
        """The same with the features in the order of ``share``, those beyond the first ``most`` joined to the rest."""
        order = sorted((i for i, known in enumerate(self.known) if known), key=lambda i: -share[i])
        spare = [i for i, known in enumerate(self.known) if not known]
        # The rest is a feature too.
        kept, more = (
            (order, []) if len(order) + len(spare) <= most else (order[: most - 1], order[most - 1 :])
        )
        joined = tuple(sorted(axis for i in (*more, *spare) for axis in self.groups[i]))
        groups = [self.groups[i] for i in kept]
        known = [True] * len(kept)
        if joined:
            groups, known = [*groups, joined], [*known, False]
        here = self.axes.transform(self.contrast.transform(self.contrast.keys_).numpy())
        halves, seeds = self.axes.agreement(groups, here)
        return LabelFree(
            self.contrast,
            self.axes,
            tuple(groups),
            tuple(halves.tolist()),
            tuple(seeds.tolist()),
            tuple(known),
        )

    @property
    def names(self) -> list[str]:
        """``f1``, ``f2`` … and ``rest``."""
        return [f"f{i}" if known else REST for i, known in enumerate(self.known, 1)]

    @property
    def key_directions(self) -> Tensor:
        """[d_head, r]: how a key changes with each axis."""
        return self.contrast.key_ @ torch.from_numpy(self.axes.mixing_)

    @property
    def query_directions(self) -> Tensor:
        """[d_head, r]: how the queries that ask for it change with each axis."""
        read = self.contrast.key_ @ torch.from_numpy(self.axes.components_.T)
        return self.contrast.delta_c_ @ read

    def coordinates(self, keys: Tensor) -> Tensor:
        """Keys [..., d_head] along the axes [..., r], of variance 1 over the keys that the head chose from."""
        inside = self.contrast.transform(keys)
        mean, read = torch.from_numpy(self.axes.mean_), torch.from_numpy(self.axes.components_)
        return (inside - mean) @ read.mT

    def asked(self, q: Tensor) -> Tensor:
        """Queries [..., d_head] along the axes [..., r]: by how much each asks for an axis."""
        return q.double() @ torch.linalg.pinv(self.query_directions).mT

    def parts(self, q: Tensor, keys: Tensor, scale: float) -> Tensor:
        """Each axis's part of the logits, from q [n, d_head] and keys [n, T, d_head]: [r, n, T]."""
        asks = scale * q.double() @ self.key_directions
        return torch.einsum("nr,ntr->rnt", asks, self.coordinates(keys))

    def feature(self, group: tuple[int, ...], name: str) -> Feature:
        """The feature of some axes."""
        axes = list(group)
        key = Subspace.spanned_by(self.key_directions[:, axes])
        query = Subspace.spanned_by(self.query_directions[:, axes])
        sigma = torch.linalg.svdvals(query.basis.mT @ self.contrast.delta_c_ @ key.basis)
        return Feature(name, query, key, sigma)

    @property
    def features(self) -> list[Feature]:
        """One feature per group."""
        return [self.feature(group, name) for group, name in zip(self.groups, self.names, strict=True)]


def _standard(found: np.ndarray) -> np.ndarray:
    centred = found - found.mean(0)
    return centred / np.maximum(centred.std(0), np.finfo(float).tiny)
