"""Who moves when singular vectors and features align: the frames of a training, event by event.

An *event* is the step from which a pair satisfies the singular relation (Ωw_j along w_i and Ωᵀw_i along w_j, the
weaker of the two at 0.9 or above) until the end. Its window reaches from the start to twice that step. The pair's
singular vectors are read off as Ωw_j and Ωᵀw_i: where a pair is aligned these are singular vectors, and unlike those of
a decomposition they are not mixed with those of other pairs of equal singular value. Each direction has a *half-way
step*: from then on it is nearer to where it ends than half of the angle it had to go. A feature that follows its
singular vector is half-way later.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from headwise.bases import qk_svd
from headwise.toy.alignment import AlignmentRun

RELATED = 0.9
"""The singular relation from which a pair counts as aligned."""


@dataclass(frozen=True, eq=False)
class Course:
    """One variant over the frames of its training."""

    steps: list[int]
    """The step of every frame."""
    features: Tensor
    """[F, D, N]: feature directions, unit vectors."""
    left: Tensor
    """[F, D, H]: left singular vectors of Ω, in query space."""
    sigma: Tensor
    """[F, H]: singular values."""
    right: Tensor
    """[F, D, H]: right singular vectors, in key space."""

    @classmethod
    def of(cls, run: AlignmentRun, variant: int) -> Course:
        """The frames of one variant."""
        setup = run.setups[variant]
        w = run.path["w"][:, variant, :, : setup.features].double()
        svd = qk_svd(*(run.path[name][:, variant, : setup.head] for name in ("w_q", "w_k")))
        unit = normalize(w, dim=1)
        return cls(run.frame_steps, unit, svd.query_directions, svd.sigma, svd.key_directions)

    def relation(self, i: int, j: int) -> Tensor:
        """The singular relation of features i and j at every frame [F]."""
        query, key = self.features[:, :, i], self.features[:, :, j]
        forward = _apply(self.left, self.sigma, self.right, key)
        backward = _apply(self.right, self.sigma, self.left, query)
        return torch.minimum((forward * query).sum(1), (backward * key).sum(1))

    def event(self, i: int, j: int) -> int | None:
        """The frame from which the pair is aligned to the end; None if it never is."""
        below = (self.relation(i, j) < RELATED).nonzero().flatten()
        first = int(below[-1]) + 1 if len(below) else 0
        return first if first < len(self.steps) else None

    def twice(self, frame: int) -> int:
        """The last frame of the event's window: the one before its step has doubled, and never the event's own."""
        limit = 2 * self.steps[frame]
        inside = [at for at, step in enumerate(self.steps) if step <= limit]
        return max(inside[-1], min(frame + 1, len(self.steps) - 1))

    def read(self, i: int, j: int, end: int) -> tuple[Tensor, Tensor]:
        """The directions in which the head reads a pair, over all frames: Ωw_j and Ωᵀw_i as unit vectors [F, D].

        w_i and w_j are taken where they are at frame ``end``, so that only the head moves these directions.
        """
        query, key = (self.features[end : end + 1, :, f].expand(len(self.steps), -1) for f in (i, j))
        left, right, sigma = self.left, self.right, self.sigma
        return _apply(left, sigma, right, key), _apply(right, sigma, left, query)


@dataclass(frozen=True)
class SideTurn:
    """How one side of a pair came to align, from the start to twice the event's step."""

    singular_half: int
    """The step from which the singular vector has half of its way behind it."""
    feature_half: int
    """The same of the feature."""
    singular_angle: float
    """The angle in degrees between where the singular vector began and where it ended."""
    feature_angle: float
    """The same of the feature."""
    closed_by_singular: float
    """What the singular vector's own motion added to the cosine of the two."""
    closed_by_feature: float
    """What the feature's own motion added; both sum to the whole change of the cosine."""
    closed_by_others: tuple[float, ...]
    """What each unattended feature's motion added to its own cosine with the same singular vector."""

    @property
    def lag(self) -> int:
        """Steps by which the feature is half-way later than its singular vector."""
        return self.feature_half - self.singular_half


@dataclass(frozen=True)
class AlignmentEvent:
    """One pair's alignment: when it happened, and who moved."""

    seed: int
    """The variant's seed."""
    query: int
    """The query's feature."""
    key: int
    """The key's feature."""
    target: float
    """The logit that the pair was to have."""
    step: int
    """The step from which the pair is aligned."""
    frame: int
    """The same as a frame of the path."""
    end: int
    """The last frame of the event's window."""
    query_turn: SideTurn
    """The query's side: u and w_i."""
    key_turn: SideTurn
    """The key's side: v and w_j."""

    @property
    def turns(self) -> tuple[SideTurn, SideTurn]:
        """Both sides."""
        return self.query_turn, self.key_turn


def events(run: AlignmentRun, variant: int) -> list[AlignmentEvent]:
    """Every pair that aligned and stayed aligned, in the order of the setup's pairs."""
    course = Course.of(run, variant)
    setup = run.setups[variant]
    attended = {f for pair in setup.targets for f in pair[:2]}
    others = [f for f in range(setup.features) if f not in attended]
    found = []
    for i, j, target in setup.targets:
        frame = course.event(i, j)
        if frame is None:
            continue
        end = course.twice(frame)
        tracks = course.read(i, j, end)
        sides = [
            (track[: end + 1], course.features[: end + 1, :, f], course.features[: end + 1][:, :, others])
            for track, f in zip(tracks, (i, j), strict=True)
        ]
        turns = [turn(course.steps[: end + 1], *side) for side in sides]
        found.append(
            AlignmentEvent(setup.seed, i, j, target, course.steps[frame], frame, end, turns[0], turns[1])
        )
    return found


def turn(steps: list[int], singular: Tensor, feature: Tensor, others: Tensor) -> SideTurn:
    """One side over a window: tracks [F, D] of singular vector and feature, and of all others [F, D, N']."""
    by_singular, by_feature = closing(singular, feature)
    # An unattended feature may end on either side of the singular vector, as the attended one could have.
    ends = torch.sign(torch.einsum("d,dn->n", singular[-1], others[-1]))
    by_others = torch.einsum("fd,fdn->n", (singular[1:] + singular[:-1]) / 2, others[1:] - others[:-1]) * ends
    return SideTurn(
        steps[half_way(singular)],
        steps[half_way(feature)],
        float(_angles(singular)[0]),
        float(_angles(feature)[0]),
        by_singular,
        by_feature,
        tuple(by_others.tolist()),
    )


def closing(singular: Tensor, feature: Tensor) -> tuple[float, float]:
    """What each of two moving unit vectors [F, D] did for the change of their cosine; both sum to it exactly.

    >>> x, y = torch.eye(2).double()
    >>> closing(torch.stack([x, y]), torch.stack([y, y]))
    (1.0, 0.0)
    """
    du, dw = singular.diff(dim=0), feature.diff(dim=0)
    mid_u, mid_w = (singular[1:] + singular[:-1]) / 2, (feature[1:] + feature[:-1]) / 2
    return float((du * mid_w).sum()), float((dw * mid_u).sum())


def half_way(track: Tensor) -> int:
    """The first frame from which a track [F, D] stays within half of its first angle to where it ends.

    >>> from math import pi
    >>> turned = torch.tensor([0.0, 0.1, 0.8, 0.9, 1.0]) * pi / 2
    >>> half_way(torch.stack([turned.cos(), turned.sin()], 1))
    2
    """
    angles = _angles(track)
    beyond = (angles > angles[0] / 2).nonzero().flatten()
    return min(int(beyond[-1]) + 1, len(track) - 1) if len(beyond) else 0


def speeds(track: Tensor, steps: list[int]) -> Tensor:
    """Angular speed between frames, in degrees per step [F − 1]."""
    turned = _between(track[1:], track[:-1])
    return turned / torch.tensor(steps, dtype=torch.float64).diff()


def _angles(track: Tensor) -> Tensor:
    """Degrees from every frame to the last."""
    return _between(track, track[-1:].expand_as(track))


def _between(one: Tensor, other: Tensor) -> Tensor:
    """Degrees between unit vectors; exact for small angles too, where a cosine is not."""
    return torch.rad2deg(2 * torch.atan2((one - other).norm(dim=1), (one + other).norm(dim=1)))


def _apply(out: Tensor, sigma: Tensor, into: Tensor, vector: Tensor) -> Tensor:
    """out · diag(σ) · intoᵀ · vector at every frame, as unit vectors [F, D]."""
    read = torch.einsum("fdh,fd->fh", into, vector) * sigma
    return normalize(torch.einsum("fdh,fh->fd", out, read), dim=1)
