"""The rows behind a study's numbers: every edit, draw, dose, singular value, angle and answer, one type per table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headwise.types import Claim, Side


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
    """One subspace that means nothing."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature."""
    against: str
    """The null it was drawn from: ``placebo``, ``key covariance`` or ``uniform``."""
    draw: int
    """Its number, from 0."""
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
class CurveRow:
    """How much of held-out logits a feature of some rank carries, and placebos of the same rank."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature."""
    rank: int
    """The rank, from 1."""
    share: float
    """Of what whole keys make, on prompts that the feature was not fitted on."""
    placebo_share: float
    """The mean of placebos."""
    placebo_high: float
    """Their 95th percentile."""
    chosen: bool
    """Whether this rank was taken: the one furthest above that percentile."""


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
    explained_null: float | None = None
    """The same of placebos of the same ranks, on average; None where none were fitted."""
    explained_high: float | None = None
    """Their 95th percentile."""


@dataclass(frozen=True, kw_only=True)
class AlignmentRow:
    """How well query clusters match key clusters inside one feature, by one measure, on prompts that fitted nothing."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature."""
    measure: Literal["retrieval", "correlation"]
    """``retrieval`` of the matching key cluster, or ``correlation`` of class means along paired directions."""
    by: str
    """The group that the classes are of, such as ``order``."""
    classes: int
    """Classes that occur among both queries and keys."""
    prompts: int
    """Test prompts."""
    value: float
    """Retrieval as a share of queries, balanced over classes, or the correlation."""
    shuffled_value: float
    """The mean with classes dealt anew among the keys of each prompt."""
    placebo_value: float
    """The mean in subspaces that were fitted to labels shuffled within prompts."""
    p_shuffled: float
    """How often classes dealt anew do as much."""
    p_placebo: float
    """How often a placebo does as much."""
    against: str
    """The null that the claim was held against."""
    against_draws: int
    """How often that was drawn."""
    p_value: float
    """The larger of ``p_shuffled`` and ``p_placebo``."""
    q_value: float
    """The same, corrected over the run's alignments."""
    group: str
    """The tests that were corrected together."""
    supported: bool
    """Whether query clusters match key clusters more than both nulls let them."""

    @property
    def claim(self) -> Claim:
        """That query clusters match key clusters."""
        return Claim(self.against, self.against_draws, self.p_value, self.q_value, self.group, self.supported)

    def to_json(self) -> dict[str, Any]:
        """The measure in the study's document."""
        about = ("head", "name", "measure", "by", "classes", "prompts", "value")
        nulls = ("shuffled_value", "placebo_value", "p_shuffled", "p_placebo")
        return {**{name: getattr(self, name) for name in (*about, *nulls)}, **self.claim.to_json()}


@dataclass(frozen=True, kw_only=True)
class ShapeRow:
    """One test of what the ordered classes of one feature lie on, on one side, on prompts that fitted nothing."""

    head: str
    """The head, such as ``L18H6``."""
    name: str
    """The feature."""
    side: Side
    """In query or in key space."""
    measure: Literal["ordered", "irreducible", "closed"]
    """What is tested; each claim asks for those before it."""
    by: str
    """The group that the classes are of, such as ``order``."""
    classes: int
    """How many there are."""
    prompts: int
    """Test prompts."""
    line_share: float
    """How much of the class means' spread their best line holds."""
    p_plane: float
    """How often noise around a line has as large a second dimension, all classes taken together."""
    against: str
    """The null that the claim was held against."""
    against_draws: int
    """How often that was drawn."""
    p_value: float
    """How often the null does as much."""
    q_value: float
    """The same, corrected over the run's shapes."""
    group: str
    """The tests that were corrected together."""
    supported: bool
    """Whether it holds, and the claims before it do."""

    @property
    def claim(self) -> Claim:
        """That the class means are so."""
        return Claim(self.against, self.against_draws, self.p_value, self.q_value, self.group, self.supported)
