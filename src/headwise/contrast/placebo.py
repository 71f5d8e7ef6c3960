"""What a feature is compared with: subspaces fitted in the same way to labels that mean nothing.

A *placebo* shuffles the labels among the keys of every prompt and is fitted like the feature: it sees the same queries,
the same keys and the same number of prompts, and so finds the directions in which keys of one prompt differ most and
the head reads most. Uniformly random subspaces find neither, and are beaten by any labels at all. Beside the placebo
are random subspaces that follow the covariance of the keys.

The same comparison chooses the rank: fitted on one half of the prompts, a feature of r dimensions moves some share of
the logits of the other half, and its placebos some other. The rank is where the share is furthest above them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.contrast.collect import Pairs
from headwise.errors import HeadwiseError
from headwise.intervals import numbered
from headwise.randomness import keyed

NAME = "placebo"
COVARIANCE = "key covariance"
UNIFORM = "uniform"
NULLS = (NAME, COVARIANCE, UNIFORM)
"""What a swap is compared with; the last is the one of the literature, and decides nothing."""
CURVE_DRAWS = 60
"""Placebos behind each point of a curve of ranks: its 95 % line rests on three of them."""
SPLITS = 2
"""Random halvings behind a curve, each used in both directions."""
HIGH = 0.95
_AT_ONCE = 100
"""Placebos whose whole covariances are held at a time."""


@dataclass(frozen=True, eq=False)
class RankCurve:
    """How much of the held-out logits features of rank 1, 2, … carry, and how much placebos of the same rank."""

    share: Tensor
    """[ranks]: of what the whole keys make, on prompts that the feature was not fitted on."""
    placebo: Tensor
    """[ranks]: the mean of placebos."""
    high: Tensor
    """[ranks]: their 95th percentile."""

    @property
    def rank(self) -> int:
        """The rank whose share is furthest above that percentile, the smallest of equals."""
        return int((self.share - self.high).argmax()) + 1


def placebo_covariances(pairs: Pairs, weights: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """ΔC of labels shuffled within prompts: [draws, sets of weights, heads, d_head, d_head].

    ``weights`` [sets, n] say how much each prompt counts; every draw shuffles all prompts anew.
    """
    if pairs.keys is None or pairs.counts is None:
        raise HeadwiseError("placebo labels need every key of a prompt: collect the pairs with their keys")
    keys, (positives, negatives) = pairs.keys.double(), pairs.counts.unbind(1)
    n, _, width, _ = keys.shape
    absent = torch.arange(width) >= (positives + negatives)[:, None]
    other = pairs.q if pairs.other_q is None else pairs.other_q
    made = []
    for _ in range(draws):
        order = torch.rand(n, width, generator=generator).masked_fill(absent, 2.0).argsort(1).argsort(1)
        chosen = (order < positives[:, None]).double() / positives[:, None]
        rest = ((order >= positives[:, None]) & ~absent).double() / negatives[:, None]
        plus, minus = (torch.einsum("nhkd,nk->nhd", keys, x) for x in (chosen, rest))
        made.append(_crossed(weights, pairs.q, plus) - _crossed(weights, other, minus))
    return torch.stack(made)


def _crossed(weights: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Σ_i w_si q_i k_iᵀ: [sets, heads, d_head, d_head]."""
    return torch.stack([torch.einsum("nhd,nhe->hde", q * w[:, None, None], k) for w in weights.to(q)])


def key_vectors(covariances: Tensor, rank: int) -> Tensor:
    """The leading key directions (right singular vectors) of ΔC [..., d_head, d_head]: [..., d_head, rank]."""
    return torch.linalg.eigh(covariances.mT @ covariances).eigenvectors[..., -rank:].flip(-1)


@dataclass(frozen=True, eq=False)
class Placebos:
    """Subspaces of placebos fitted on all prompts, their directions in order: [draws, heads, d_head, most]."""

    query: Tensor
    key: Tensor

    @classmethod
    def fitted(cls, pairs: Pairs, most: int, draws: int, seed: int, *labels: object) -> Placebos:
        """Placebos of up to ``most`` dimensions."""
        even, generator = torch.full((1, len(pairs)), 1 / len(pairs)), keyed(seed, NAME, *labels)
        queries, keys = [], []
        for start in range(0, draws, _AT_ONCE):
            made = placebo_covariances(pairs, even, min(_AT_ONCE, draws - start), generator)[:, 0]
            key = key_vectors(made, most)
            # u_j = ΔC v_j / σ_j, made orthonormal where σ_j is nothing but rounding; with the sign that goes with v_j
            query, along = torch.linalg.qr(made @ key)
            sign = torch.where(along.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0)
            queries.append(query * sign[..., None, :])
            keys.append(key)
        return cls(torch.cat(queries), torch.cat(keys))


def placebo_union(parts: Sequence[Tensor], rank: int) -> Tensor:
    """The placebos of a union: what its parts' placebos [draws, d_head, r] span, draw by draw, cut to a rank."""
    stacked = torch.cat(list(parts), -1)
    return torch.linalg.svd(stacked, full_matrices=False).U[..., :rank]


def rank_curves(
    pairs: Pairs, most: int, *, clusters: Tensor | None, seed: int, labels: Sequence[object] = ()
) -> list[RankCurve]:
    """One curve per head, up to rank ``most``, on halves of the prompts that no cluster is part of both of."""
    n = len(pairs)
    which, count = numbered(clusters, n)
    generator = keyed(seed, "rank curve", *labels)
    halves = []
    for _ in range(SPLITS):
        first = (torch.randperm(count, generator=generator) < (count + 1) // 2)[which].double()
        halves += [first, 1 - first]
    weights = torch.stack(halves)
    weights = weights / weights.sum(1, keepdim=True).clamp_min(1)
    other = pairs.q if pairs.other_q is None else pairs.other_q
    real = _crossed(weights, pairs.q, pairs.plus) - _crossed(weights, other, pairs.minus)
    tested = real.unflatten(0, (SPLITS, 2)).flip(1).flatten(0, 1)  # each half is tested on the other
    whole = _traces(tested).mean(0)
    # A head that prefers the negative keys moves the other way: shares are of what whole keys make.
    scale = torch.where(whole.abs() > 1e-12, whole, torch.ones_like(whole))
    share = _carried(key_vectors(real, most), tested).mean(0) / scale[:, None]
    drawn = placebo_covariances(pairs, weights, CURVE_DRAWS, generator)
    placebo = _carried(key_vectors(drawn, most), tested).mean(1) / scale[:, None]
    mean, high = placebo.mean(0), placebo.quantile(HIGH, 0)
    return [RankCurve(share[h], mean[h], high[h]) for h in range(share.shape[0])]


def _traces(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=-2, dim2=-1).sum(-1)


def _carried(bases: Tensor, delta: Tensor) -> Tensor:
    """Mean over prompts of q·P d for the first 1, 2, … directions: v_jᵀ ΔC v_j, summed [..., ranks]."""
    return (bases * (delta @ bases)).sum(-2).cumsum(-1)


# --- random subspaces that follow the keys ---


def covariance_root(pairs: Pairs) -> Tensor:
    """A square root of the covariance of keys around the mean of their prompt: [heads, d_head, d_head]."""
    if pairs.keys is None or pairs.counts is None:
        raise HeadwiseError(
            "the keys' covariance needs every key of a prompt: collect the pairs with their keys"
        )
    keys = pairs.keys.double()
    present = (torch.arange(keys.shape[2]) < pairs.counts.sum(1)[:, None])[:, None, :, None]
    mean = (keys * present).sum(2, keepdim=True) / pairs.counts.sum(1)[:, None, None, None]
    off = ((keys - mean) * present).transpose(0, 1).flatten(1, 2)
    values, vectors = torch.linalg.eigh(off.mT @ off / off.shape[1])
    return vectors * values.clamp_min(0).sqrt()[:, None]


def covariance_subspaces(root: Tensor, rank: int, draws: int, generator: torch.Generator) -> Tensor:
    """Random bases [draws, d_head, rank] whose directions are as likely as the keys' covariance has them vary."""
    gaussian = torch.randn(draws, root.shape[-1], rank, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(root @ gaussian).Q
