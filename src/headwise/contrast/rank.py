"""How many dimensions does a feature have in a head's QK space, and how sure is that?

The published rule counts singular values of ΔC up to 99 % of its energy. It cannot say "none", and it hides
weak but real directions. Beside it are a rank against a null, intervals, split-half stability, the bound
that the design itself puts on the rank, and the split of ΔC into salience (the same for every query) and
interaction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from headwise.contrast.covariance import ContrastiveCovariance
from headwise.errors import HeadwiseError
from headwise.intervals import bounds, counted, picked


@dataclass(frozen=True, eq=False, kw_only=True)
class RankReport:
    """The rank of one feature in one head, with its statistics. Tensors are float64 and on the CPU."""

    singular_values: Tensor
    """σ of ΔC, descending [d_head]."""
    energy: float
    """The energy fraction of the published rule."""
    rank_energy: int
    """Smallest r whose σ² reach ``energy`` of ‖ΔC‖²."""
    rank_null: int
    """Number of leading σ above the null of the data deflated by the directions before it; whole groups flip."""
    rank_prompts: int
    """The same with every prompt flipping for itself: prompts of one wording then count as so much evidence."""
    flip_groups: int
    """How many groups of prompts flip; below ``1 + log2(1 / alpha)`` no rank can be told from chance."""
    alpha: float
    """Level of the null test."""
    null_threshold: Tensor
    """(1 − alpha) quantile that σ_j had to exceed; NaN after the first that did not [d_head]."""
    null_sigma: Tensor
    """(1 − alpha) quantile of the j-th σ under sign flips, not deflated: the curve to draw [d_head]."""
    stable_rank: float
    """‖ΔC‖²_F / σ₁²."""
    sigma_interval: Tensor
    """95 % bootstrap interval of each σ over prompts [d_head, 2]."""
    rank_interval: tuple[int, int]
    """95 % bootstrap interval of ``rank_energy``."""
    split_half_query: Tensor
    """Principal cosines between the query subspaces of two random halves, mean over splits [rank]."""
    split_half_key: Tensor
    """The same in key space [rank]."""
    bound: int
    """The largest rank that ΔC of these prompts can have: distinct queries, prompts, d_head."""
    values: int
    """Distinct query values that the design holds: with few of them there is little to tell apart."""
    saturated: bool
    """The estimate reaches the number of query values or the bound, so it says little about the head."""
    salience_energy: float
    """‖q̄ d̄ᵀ‖²: query-independent preference for the positive keys."""
    interaction_energy: float
    """‖Cov(q, d)‖²: true matching of query and key."""
    n_prompts: int
    rank_interaction: int | None = None
    """``rank_null`` of Cov(q, d) alone, where it was asked for. Queries share a large mean, and what a sign
    flip makes of that mean is noise which can hide every direction of matching from ``rank_null``.
    """

    @property
    def interaction_share(self) -> float:
        """Interaction energy over the sum of both energies."""
        total = self.salience_energy + self.interaction_energy
        return self.interaction_energy / total if total else 0.0

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """What a reader must know before believing the rank, each with the numbers behind it."""
        found = []
        if self.saturated:
            rank = max(self.rank_energy, self.rank_null)
            what = "the rank reaches what the design holds: use more distinct queries before calling it the head's"
            found.append((what, f"{rank}, query values {self.values}"))
        needed = groups_needed(self.alpha)
        if self.flip_groups < needed:
            what = f"a rank above the null needs {needed} wordings or more, flipped as one each"
            found.append((what, f"{self.flip_groups}; flipped by prompt {self.rank_prompts}"))
        elif self.rank_null == 0:
            matching = self.rank_interaction
            also = "" if matching is None else f"{matching} of the interaction Cov(q, d) do"
            found.append((f"no direction exceeds the sign-flip null at level {self.alpha:g}", also))
        elif self.rank_null > self.rank_energy:
            what = f"more directions exceed the sign-flip null than the {self.energy:.0%} rule reports"
            found.append((what, f"{self.rank_null} against {self.rank_energy}"))
        if self.rank_null and self.interaction_share < 0.5:
            found.append(
                ("most energy is salience, the same for every query", f"{1 - self.interaction_share:.0%}")
            )
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """:attr:`findings` as lines."""
        return tuple(f"{what} ({numbers})" if numbers else what for what, numbers in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        record: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            record[field.name] = value.tolist() if isinstance(value, Tensor) else value
        record["null_threshold"] = [None if x != x else x for x in record["null_threshold"]]
        return record | {"interaction_share": self.interaction_share, "warnings": list(self.warnings)}

    def __repr__(self) -> str:
        low, high = self.rank_interval
        return (
            f"RankReport(rank_energy={self.rank_energy} [{low}, {high}], rank_null={self.rank_null}, "
            f"stable_rank={self.stable_rank:.2f}, bound={self.bound}, "
            f"interaction={self.interaction_share:.0%})"
        )


def groups_needed(alpha: float) -> int:
    """Groups that must flip for one flip in 1/alpha to be the observed one, or its mirror image.

    >>> groups_needed(0.01)
    8
    """
    return 1 + math.ceil(math.log2(1 / alpha))


def energy_rank(singular_values: Tensor, energy: float = 0.99) -> Tensor:
    """Smallest r whose σ² reach ``energy`` of the total; 0 for a zero matrix. [..., d] -> [...].

    >>> energy_rank(torch.tensor([[3.0, 1.0, 0.01], [0.0, 0.0, 0.0]]))
    tensor([2, 0])
    """
    if not 0 < energy <= 1:
        raise HeadwiseError(f"energy={energy} is not a fraction: give a number above 0 and at most 1")
    square = singular_values.double().square()
    total = square.sum(-1, keepdim=True)
    # The guard keeps rounding in the cumulative sum from adding a direction when energy is 1.
    reached = square.cumsum(-1) >= energy * total * (1 - 1e-12)
    rank = singular_values.shape[-1] - reached.sum(-1) + 1
    return torch.where(total[..., 0] > 0, rank, torch.zeros_like(rank))


def stable_rank(singular_values: Tensor) -> Tensor:
    """‖ΔC‖²_F / σ₁²; 0 for a zero matrix. [..., d] -> [...].

    >>> stable_rank(torch.tensor([2.0, 2.0, 0.0])).item()
    2.0
    """
    square = singular_values.double().square()
    return square.sum(-1) / square.amax(-1).clamp_min(torch.finfo(torch.float64).tiny)


def distinct_queries(q: Tensor, *, tolerance: float = 1e-6) -> int:
    """Number of different rows of q [n, d_head], up to rounding: the design's bound on rank(ΔC).

    >>> distinct_queries(torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]]))
    2
    """
    scale = q.abs().max().clamp_min(torch.finfo(q.dtype).tiny)
    return int(torch.unique((q / (scale * tolerance)).round(), dim=0).shape[0])


def salience_split(covariance: ContrastiveCovariance) -> tuple[Tensor, Tensor]:
    """ΔC = q̄ d̄ᵀ + Cov(q, d): both terms, shaped like ``delta_c_``."""
    salience = covariance.salience_
    return salience, covariance.delta_c_ - salience


def null_rank(delta: Tensor, flips: Tensor, *, alpha: float = 0.01) -> tuple[Tensor, Tensor]:
    """Sequential parallel analysis: ranks [H] and the thresholds used [H, d] (NaN after the first failure).

    ``delta`` [H, d, d]; ``flips`` [draws, H, d, d] are ΔC with the sign of every prompt's d_i drawn at
    random.
    σ_j is compared with the largest singular value of the flips *deflated* by the j − 1 directions before
    it. The j-th value of an undeflated null is the wrong yardstick twice over: strong signal inflates it,
    and the largest of the remaining noise exceeds the j-th largest of all noise.
    """
    left, sigma, right = torch.linalg.svd(delta)
    heads, d_head = sigma.shape
    thresholds = sigma.new_full((heads, d_head), float("nan"))
    ranks = torch.zeros(heads, dtype=torch.long)
    alive = torch.arange(heads)
    # In singular coordinates deflation is cutting off leading rows and columns.
    rotated = left.mT @ flips @ right.mT
    for j in range(d_head):
        rest = rotated[:, alive, j:, j:]
        top = torch.linalg.eigvalsh(rest @ rest.mT)[..., -1].clamp_min(0).sqrt()
        limit = torch.quantile(top, 1 - alpha, dim=0, interpolation="higher")
        thresholds[alive, j] = limit
        # A direction of rounding noise is never a finding, even if every flip is zero too.
        floor = 1e-12 * sigma[alive, 0]
        alive = alive[(sigma[alive, j] > limit) & (sigma[alive, j] > floor)]
        ranks[alive] = j + 1
        if not len(alive):
            break
    return ranks, thresholds


def rank_reports(
    covariance: ContrastiveCovariance,
    *,
    generator: torch.Generator,
    energy: float = 0.99,
    alpha: float = 0.01,
    draws: int = 200,
    splits: int = 20,
    distinct: int | None = None,
    groups: Tensor | None = None,
    wordings: Tensor | None = None,
    interaction: bool = False,
) -> list[RankReport]:
    """One report per head, from the kept pairs alone.

    ``draws`` sign flips and as many bootstrap draws; ``splits`` random halves; ``distinct`` is the number of
    distinct query values of the design (counted from q if not given); ``groups`` [n] are integers of
    prompts that belong together (same template, same entity): they flip and are resampled as one. ``wordings`` [n]
    flip as one instead where they are given: few wordings still decide what can be told from chance.
    With ``interaction`` the matching part Cov(q, d) is ranked against a null of its own too.
    """
    if draws < 20 or draws * alpha < 1:
        raise HeadwiseError(
            f"draws={draws} are too few for level {alpha:g}: use at least {max(20, round(1 / alpha))}"
        )
    q = covariance.q_rows_
    heads, n, rows, d_head = q.shape
    if n < 4:
        raise HeadwiseError(f"{n} prompts are too few for a rank: give at least 4")
    units, flipped = _Units.of(n, groups), _Units.of(n, groups if wordings is None else wordings)

    delta = covariance.weighted(q.new_full((1, n), 1 / n))[0]
    sigma = torch.linalg.svdvals(delta)
    rank = energy_rank(sigma, energy)
    # One generator draws for all of them, in this order.
    flips = covariance.weighted(flipped.signs(draws, generator) / n)
    ranks, thresholds = null_rank(delta, flips, alpha=alpha)
    matching = (
        _interaction_ranks(covariance, flipped, draws, alpha, generator) if interaction else [None] * heads
    )
    single = _Units.of(n, None)
    by_prompt = ranks
    if flipped.count < n:
        by_prompt, _ = null_rank(delta, covariance.weighted(single.signs(draws, generator) / n), alpha=alpha)
    if flipped.count < groups_needed(alpha):  # the observed signs themselves are too likely
        ranks, matching = torch.zeros_like(ranks), [None if m is None else 0 for m in matching]
    interval, rank_interval = _bootstrap(covariance, units, draws, energy, generator)
    halves = _split_half(covariance, units, splits, rank, generator)

    null_sigma = torch.quantile(torch.linalg.svdvals(flips), 1 - alpha, dim=0)
    salient, matched = (x.reshape(heads, -1).square().sum(-1) for x in salience_split(covariance))
    stable = stable_rank(sigma)
    reports = []
    for h in range(heads):
        # Two rows per prompt double the number of query values that can enter.
        bound = min(distinct_queries(q[h].reshape(-1, d_head)), n * rows, d_head)
        values = bound if distinct is None else distinct * rows
        reports.append(
            RankReport(
                singular_values=sigma[h],
                energy=energy,
                rank_energy=int(rank[h]),
                rank_null=int(ranks[h]),
                rank_prompts=int(by_prompt[h]),
                flip_groups=flipped.count,
                alpha=alpha,
                null_threshold=thresholds[h],
                null_sigma=null_sigma[h],
                stable_rank=float(stable[h]),
                sigma_interval=interval[h],
                rank_interval=rank_interval[h],
                split_half_query=halves[h][0],
                split_half_key=halves[h][1],
                bound=bound,
                values=values,
                saturated=max(int(rank[h]), int(ranks[h])) >= min(bound, values),
                salience_energy=float(salient[h]),
                interaction_energy=float(matched[h]),
                n_prompts=n,
                rank_interaction=matching[h],
            )
        )
    return reports


@dataclass(frozen=True, eq=False)
class _Units:
    """What flips, is resampled and is halved as one: prompts, or groups of them."""

    of_prompt: Tensor
    """The unit of every prompt [n]."""
    count: int

    @classmethod
    def of(cls, n: int, groups: Tensor | None) -> _Units:
        unit = torch.arange(n) if groups is None else torch.unique(groups, return_inverse=True)[1].cpu()
        return cls(unit, int(unit.max()) + 1)

    def signs(self, draws: int, generator: torch.Generator) -> Tensor:
        """Random signs [draws, n]."""
        return torch.randint(0, 2, (draws, self.count), generator=generator)[:, self.of_prompt] * 2.0 - 1


def _interaction_ranks(
    covariance: ContrastiveCovariance, units: _Units, draws: int, alpha: float, generator: torch.Generator
) -> list[int | None]:
    """The rank of Cov(q, d) alone against a null of its own, per head."""
    n = len(units.of_prompt)
    centred = covariance.centred()
    whole = centred.weighted(covariance.q_rows_.new_full((1, n), 1 / n))[0]
    flips = centred.weighted(units.signs(draws, generator) / n)
    return null_rank(whole, flips, alpha=alpha)[0].tolist()


def _bootstrap(
    covariance: ContrastiveCovariance, units: _Units, draws: int, energy: float, generator: torch.Generator
) -> tuple[Tensor, list[tuple[int, int]]]:
    """95 % intervals of every singular value [H, d_head, 2] and of the energy rank, per head."""
    # Single precision, as the signs have: whole numbers of prompts are exact in it.
    counts = counted(picked(units.count, draws, generator), torch.float32)[:, units.of_prompt]
    sigma = torch.linalg.svdvals(covariance.weighted(counts / counts.sum(1, keepdim=True)))
    low, high = bounds(energy_rank(sigma, energy).double(), interpolation="nearest")
    ranks = list(zip(low.int().tolist(), high.int().tolist(), strict=True))
    return torch.stack(bounds(sigma), -1), ranks


def rank_report(
    covariance: ContrastiveCovariance, *, generator: torch.Generator, **options: Any
) -> RankReport:
    """The report of an estimator of one head; options as in ``rank_reports``.

    >>> g = torch.Generator().manual_seed(0)
    >>> z = torch.randn(400, 2, generator=g)                              # a feature with two dimensions
    >>> q, k = (z @ torch.randn(2, 6, generator=g) for _ in range(2))
    >>> cov = ContrastiveCovariance().fit(q, k, torch.zeros_like(k))
    >>> report = rank_report(cov, generator=g)
    >>> report.rank_energy, report.rank_null, report.saturated
    (2, 2, False)
    """
    if covariance.n_heads_ != 1:
        raise HeadwiseError(
            f"rank_report is for one head, this estimator has {covariance.n_heads_}: use rank_reports"
        )
    return rank_reports(covariance, generator=generator, **options)[0]


def _split_half(
    covariance: ContrastiveCovariance, units: _Units, splits: int, rank: Tensor, generator: torch.Generator
) -> list[tuple[Tensor, Tensor]]:
    """Mean principal cosines between the top-rank subspaces of random halves, per head, query and key side."""
    first = torch.rand(splits, units.count, generator=generator).argsort(1) < units.count // 2
    chosen = first[:, units.of_prompt].double()
    weights = torch.cat([chosen, 1 - chosen])
    left, _, right = torch.linalg.svd(covariance.weighted(weights / weights.sum(1, keepdim=True)))
    found = []
    for h, r in enumerate(rank.tolist()):
        pair = []
        for basis in (left[:, h, :, :r], right[:, h, :r].mT):
            cosines = torch.linalg.svdvals(basis[:splits].mT @ basis[splits:]) if r else basis.new_zeros(1, 0)
            pair.append(cosines.clamp_max(1).mean(0))
        found.append((pair[0], pair[1]))
    return found
