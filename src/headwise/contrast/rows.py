"""The rows of a study's tables: one frozen type per table, whose fields are the table's columns.

They become plain dictionaries at the border to parquet and JSON, and nowhere else. Here are the rows of heads and of
features; what is behind their numbers is in :mod:`headwise.contrast.detail_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headwise.contrast.detail_rows import (
    AlignmentRow,
    AngleRow,
    AnswerRow,
    AttributionRow,
    CurveRow,
    DoseRow,
    DrawRow,
    GrowthRow,
    ShapeRow,
    SpectrumRow,
    SwapRow,
)
from headwise.types import Claim

if TYPE_CHECKING:
    from headwise.contrast.heads import HeadScore
    from headwise.types import Estimate

Listed = TypeVar("Listed")
UNTOUCHED = "as it is"
"""The condition of a feature in which nothing is edited: it may be tested on some of the prompts."""


def where(rows: Sequence[Listed], **columns: object) -> list[Listed]:
    """The rows whose columns have the given values.

    >>> doses = [DoseRow(head="L0H0", name=name, dose=1.0, original=0, target=1, share=1) for name in "ab"]
    >>> [row.name for row in where(doses, name="b")]
    ['b']
    """
    return [row for row in rows if all(getattr(row, name) == value for name, value in columns.items())]


@dataclass(frozen=True, kw_only=True)
class HeadRow:
    """One head of the model on the task; ``low`` and ``high`` bound its score."""

    head: str
    """The head, such as ``L18H6``."""
    score: float
    """What heads are ranked by: the accuracy, or the ratio."""
    low: float
    """The lower end of its 95 % interval over prompts."""
    high: float
    """The upper end."""
    clusters: int
    """How many clusters of prompts the interval is over."""
    against: str
    """The null that the claim was held against."""
    against_draws: int
    """How often that was drawn."""
    p_value: float
    """Of the permutation test, labels shuffled inside each prompt."""
    q_value: float
    """The same, corrected over all heads."""
    group: str
    """The tests that were corrected together."""
    supported: bool
    """Whether the head does the task: beyond chance, often enough, and with attention on the keys at all."""
    accuracy: float
    """Share of prompts in which a positive key has the most attention among the labelled keys; ties are shared."""
    ratio: float
    """Attention on positive keys over attention on negative ones."""
    mass: float
    """Attention on all labelled keys together."""
    chosen: bool
    """Whether the head was studied."""
    test_score: float | None = None
    """The score on the test prompts, of heads that were studied: where heads are chosen, the best are too good."""
    test_low: float | None = None
    """The lower end of its 95 % interval."""
    test_high: float | None = None
    """The upper end."""

    @classmethod
    def of(cls, score: HeadScore, *, chosen: bool, again: Estimate | None = None) -> HeadRow:
        claim = score.claim
        return cls(
            head=str(score.head),
            score=score.score.mean,
            low=score.score.low,
            high=score.score.high,
            clusters=score.score.clusters,
            against=claim.null,
            against_draws=claim.draws,
            p_value=claim.p,
            q_value=claim.q,
            group=claim.group,
            supported=claim.supported,
            accuracy=score.accuracy,
            ratio=score.ratio,
            mass=score.mass,
            chosen=chosen,
            test_score=again and again.mean,
            test_low=again and again.low,
            test_high=again and again.high,
        )

    @property
    def claim(self) -> Claim:
        """That the head does the task."""
        return Claim(self.against, self.against_draws, self.p_value, self.q_value, self.group, self.supported)


@dataclass(frozen=True, kw_only=True)
class FeatureRow:
    """One feature or union of one head: its ranks, and its swap against subspaces of the same rank that mean nothing.

    ``rank`` is the rank that is swapped. What only a fitted feature has is None for a union.
    """

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature or union."""
    union: bool
    """Whether it is made of several features."""
    rank: int
    """The dimensions that are swapped."""
    rank_energy: int
    """The smallest rank that reaches the asked share of the energy of ΔC."""
    rank_interaction: int | None
    """Singular values of Cov(q, d), what matches query and key, above their sign-flip null; wordings flip as one."""
    rank_null: int
    """The same of all of ΔC."""
    rank_prompts: int | None
    """The same with every prompt flipping for itself, as if prompts of one wording were independent."""
    rank_low: int | None
    """The lower end of the 95 % bootstrap interval of ``rank_energy``."""
    rank_high: int | None
    """The upper end."""
    stable_rank: float | None
    """‖ΔC‖² over the largest squared singular value."""
    bound: int | None
    """The largest rank that ΔC of these prompts can have."""
    values: int | None
    """Distinct query values of the design."""
    saturated: bool
    """Whether the 99 % rank reaches one of them, and so says little about the head."""
    interaction_share: float
    """Energy of Cov(q, d) over that of both terms of ΔC."""
    superposition: float | None
    """How far the head's features share dimensions: 0 if they are orthogonal."""
    superposition_null: float | None
    """The same of placebos of the same ranks, on average."""
    superposition_high: float | None
    """Their 95th percentile: only above it do the features share more than any would."""
    prompts: int
    """Test prompts whose swap involves the feature."""
    clusters: int
    """Clusters of them that the intervals are over."""
    original: float
    """Attention on the original key after the swap."""
    original_low: float
    """The lower end of its 95 % interval over prompts."""
    original_high: float
    """The upper end."""
    target: float
    """Attention on the target key after the swap."""
    target_low: float
    """The lower end of its 95 % interval over prompts."""
    target_high: float
    """The upper end."""
    share_of_full: float
    """Change of log-odds as a share of swapping the whole keys."""
    share_low: float
    """The lower end of its 95 % interval over prompts."""
    share_high: float
    """The upper end."""
    placebo_share: float
    """The mean share of placebos: subspaces of the same rank, fitted to labels shuffled within prompts."""
    placebo_high: float
    """The 95th percentile of their shares."""
    p_placebo: float
    """How often a placebo does as much."""
    p_covariance: float
    """How often a random subspace that follows the keys' covariance does as much."""
    against: str
    """The null that the claim was held against."""
    against_draws: int
    """How often that was drawn."""
    p_value: float
    """The larger of ``p_placebo`` and ``p_covariance``."""
    q_value: float
    """The same, corrected over the run's features."""
    group: str
    """The tests that were corrected together."""
    supported: bool
    """Whether swapping this subspace moves the attention more than one that means nothing."""
    percentile: float
    """Per cent of uniformly random subspaces of the same rank that did less (the null of the literature)."""
    p_uniform: float
    """Against those random subspaces."""
    random_original: float
    """Mean attention on the original key after swaps of them."""
    random_target: float
    """Mean attention on the target key after swaps of them."""
    random_share_99: float
    """The 99th percentile of their shares."""

    @property
    def claim(self) -> Claim:
        """That swapping the feature moves the attention."""
        return Claim(self.against, self.against_draws, self.p_value, self.q_value, self.group, self.supported)

    def to_json(self) -> dict[str, Any]:
        """The feature in the study's document."""
        nulls = ("placebo_share", "placebo_high", "p_placebo", "p_covariance", "percentile", "p_uniform")
        swap = ("original", "target", "share_of_full", *nulls, "prompts", "clusters")
        about = ("name", "head", "rank", "rank_energy", "rank_interaction", "rank_null", "saturated")
        crowding = ("interaction_share", "superposition", "superposition_null", "superposition_high")
        return {
            **{name: getattr(self, name) for name in (*about, *crowding)},
            "swap": {name: getattr(self, name) for name in swap},
            **self.claim.to_json(),
        }


ROWS: dict[str, type] = {
    "heads": HeadRow,
    "features": FeatureRow,
    "swaps": SwapRow,
    "draws": DrawRow,
    "doses": DoseRow,
    "spectra": SpectrumRow,
    "curves": CurveRow,
    "angles": AngleRow,
    "alignment": AlignmentRow,
    "shapes": ShapeRow,
    "growth": GrowthRow,
    "answers": AnswerRow,
    "attribution": AttributionRow,
}
"""Every table of a study and the type of its rows."""
