"""Feature banks of tiny models, of random subspaces."""

from __future__ import annotations

import torch

from headwise.contrast.bank import BankFeature, FeatureBank
from headwise.model.model import Model
from headwise.types import Head, Subspace


def random_bank(model: Model, head: Head, ranks: tuple[int, ...] = (2, 1)) -> FeatureBank:
    """Features of one head, one per rank."""
    generator = torch.Generator().manual_seed(3)

    def subspace(rank: int) -> Subspace:
        return Subspace.spanned_by(torch.randn(model.d_head, rank, generator=generator, dtype=torch.float64))

    features = tuple(
        BankFeature(
            name=f"feature {n}",
            head=head,
            query=subspace(rank),
            key=subspace(rank),
            sigma=torch.ones(rank).double(),
            rank_energy=rank,
            rank_null=rank,
        )
        for n, rank in enumerate(ranks)
    )
    return FeatureBank(model.name, model.weight_hash, "made up", features)
