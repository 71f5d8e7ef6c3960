"""The rows of a study's tables: one frozen type per table, whose fields are the table's columns.

They become plain dictionaries at the border to parquet and JSON, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from headwise.types import Claim, Side

if TYPE_CHECKING:
    from headwise.contrast.heads import HeadScore
    from headwise.types import Estimate

Listed = TypeVar("Listed")


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
    """One feature or union of one head: its ranks, and its swap against random subspaces of the same rank.

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
    rank_null: int
    """Singular values of ΔC above their sign-flip null."""
    rank_interaction: int | None
    """The same of Cov(q, d) alone."""
    rank_low: int | None
    """The lower end of the 95 % bootstrap interval of ``rank_energy``."""
    rank_high: int | None
    """The upper end."""
    stable_rank: float | None
    """‖ΔC‖² over the largest squared singular value."""
    bound: int | None
    """The largest rank that the design allows."""
    saturated: bool
    """Whether the rank reaches it, and so says nothing about the head."""
    interaction_share: float
    """Energy of Cov(q, d) over that of both terms of ΔC."""
    superposition: float | None
    """How far the head's features share dimensions: 0 if they are orthogonal."""
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
    percentile: float
    """Per cent of random subspaces of the same rank that did less."""
    p_value: float
    """Against those random subspaces."""
    random_original: float
    """Mean attention on the original key after random swaps."""
    random_target: float
    """Mean attention on the target key after random swaps."""
    random_share_99: float
    """The 99th percentile of the shares of random subspaces."""

    def to_json(self) -> dict[str, Any]:
        """The feature in the study's document."""
        swap = ("original", "target", "share_of_full", "percentile", "p_value")
        return {
            "name": self.name,
            "head": self.head,
            "rank_energy": self.rank_energy,
            "rank_null": self.rank_null,
            "saturated": self.saturated,
            "interaction_share": self.interaction_share,
            "swap": {name: getattr(self, name) for name in swap},
        }


@dataclass(frozen=True, kw_only=True)
class SwapRow:
    """One condition of one feature, means over the test prompts; ``name`` is empty for ``none`` and ``full``."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature; empty for ``none`` and ``full``."""
    condition: str
    """What was done: ``none``, ``full``, ``swap``, or a control such as ``principal components``."""
    original: float
    """Attention on the original key."""
    original_low: float
    """The lower end of its 95 % interval over prompts."""
    original_high: float
    """The upper end."""
    target: float
    """Attention on the target key."""
    target_low: float
    """The lower end of its 95 % interval over prompts."""
    target_high: float
    """The upper end."""
    log_odds: float
    """Change of log(attention on target ÷ attention on original)."""
    log_odds_low: float
    """The lower end of its 95 % interval over prompts."""
    log_odds_high: float
    """The upper end."""
    share: float
    """That change as a share of swapping the whole keys."""


@dataclass(frozen=True, kw_only=True)
class DrawRow:
    """One random subspace."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature."""
    draw: int
    """The number of the random subspace, from 0."""
    original: float
    """Attention on the original key."""
    target: float
    """Attention on the target key."""
    share: float
    """Change of log-odds as a share of swapping the whole keys."""


@dataclass(frozen=True, kw_only=True)
class DoseRow:
    """A swap made in part."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature."""
    dose: float
    """How much of the swap is made, from 0 to 1."""
    original: float
    """Attention on the original key."""
    target: float
    """Attention on the target key."""
    share: float
    """Change of log-odds as a share of swapping the whole keys."""


@dataclass(frozen=True, kw_only=True)
class SpectrumRow:
    """One singular value of ΔC with its interval and its null; ``index`` counts from 1."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature."""
    index: int
    """Its place, from 1."""
    sigma: float
    """The singular value."""
    low: float
    """The lower end of its 95 % bootstrap interval."""
    high: float
    """The upper end."""
    null: float
    """What it must exceed to count: a quantile of the sign-flip null."""


@dataclass(frozen=True, kw_only=True)
class AngleRow:
    """One principal angle between two features, or between random halves of one."""

    head: str
    """The head, such as ``L18H6``."""
    first: str
    """One feature."""
    second: str
    """The other, or the other half of the prompts."""
    side: Side
    """In query or in key space."""
    index: int
    """Its place, from 1."""
    degrees: float
    """The angle, from 0 to 90."""


@dataclass(frozen=True, kw_only=True)
class GrowthRow:
    """The energy rank with some of the query values of the design."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature."""
    varies: str
    """The group whose values the query takes."""
    values: int
    """How many of them were used."""
    prompts: int
    """How many prompts these are."""
    rank_energy: int
    """The energy rank with them alone."""


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """One swap made in the running model.

    ``logit_difference`` is logit(original's answer) − logit(target's answer); ``flips`` the share of prompts in
    which the order of the two turned around; ``error`` the largest difference between the attention of the edited
    pass and the analytic one.
    """

    head: str
    """The head, or ``all heads``."""
    name: str
    """The feature that was swapped."""
    prompts: int
    """Test prompts."""
    logit_difference: float
    """Mean logit of the original's answer minus that of the target's, untouched."""
    edited_logit_difference: float
    """The same after the swap."""
    change: float
    """The mean change."""
    change_se: float
    """Its standard error over prompts."""
    prefers_original: float
    """Share of prompts in which the original's answer led, untouched."""
    flips: float
    """Share of prompts in which the order of the two turned around."""
    error: float | None
    """Largest difference between predicted and observed attention; None for several heads at once."""


@dataclass(frozen=True, kw_only=True)
class AttributionRow:
    """One token's logit from one feature; ``residual`` and ``total`` are features too."""

    head: str
    """The head, such as ``L18H6``."""
    method: Literal["sequential", "shapley"]
    """How overlapping features share: ``sequential`` or ``shapley``."""
    position: int
    """The token's position."""
    token: str
    """The token as text."""
    feature: str
    """The feature, ``residual`` or ``total``."""
    logit: float
    """Its part of the token's logit."""
    centred: float
    """The same minus its mean over tokens."""
    explained: float
    """Share of the variation over tokens that all features explain."""


ROWS: dict[str, type] = {
    "heads": HeadRow,
    "features": FeatureRow,
    "swaps": SwapRow,
    "draws": DrawRow,
    "doses": DoseRow,
    "spectra": SpectrumRow,
    "angles": AngleRow,
    "growth": GrowthRow,
    "answers": AnswerRow,
    "attribution": AttributionRow,
}
"""Every table of a study and the type of its rows."""
