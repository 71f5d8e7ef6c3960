"""The rows of a study's tables: one frozen type per table, whose fields are the table's columns.

They become plain dictionaries at the border to parquet and JSON, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from headwise.types import Side

if TYPE_CHECKING:
    from headwise.contrast.heads import HeadScore

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
    score: float
    low: float
    high: float
    p_value: float
    q_value: float
    accuracy: float
    ratio: float
    mass: float
    chosen: bool

    @classmethod
    def of(cls, score: HeadScore, *, chosen: bool) -> HeadRow:
        return cls(
            head=str(score.head),
            score=score.score.mean,
            low=score.score.low,
            high=score.score.high,
            p_value=score.p_value,
            q_value=score.q_value,
            accuracy=score.accuracy,
            ratio=score.ratio,
            mass=score.mass,
            chosen=chosen,
        )


@dataclass(frozen=True, kw_only=True)
class FeatureRow:
    """One feature or union of one head: its ranks, and its swap against random subspaces of the same rank.

    ``rank`` is the rank that is swapped. What only a fitted feature has is None for a union.
    """

    head: str
    name: str
    union: bool
    rank: int
    rank_energy: int
    rank_null: int
    rank_interaction: int | None
    rank_low: int | None
    rank_high: int | None
    stable_rank: float | None
    bound: int | None
    saturated: bool
    interaction_share: float
    superposition: float | None
    original: float
    original_low: float
    original_high: float
    target: float
    target_low: float
    target_high: float
    share_of_full: float
    share_low: float
    share_high: float
    percentile: float
    p_value: float
    random_original: float
    random_target: float
    random_share_99: float

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
    name: str
    condition: str
    original: float
    original_low: float
    original_high: float
    target: float
    target_low: float
    target_high: float
    log_odds: float
    log_odds_low: float
    log_odds_high: float
    share: float


@dataclass(frozen=True, kw_only=True)
class DrawRow:
    """One random subspace."""

    head: str
    name: str
    draw: int
    original: float
    target: float
    share: float


@dataclass(frozen=True, kw_only=True)
class DoseRow:
    """A swap made in part."""

    head: str
    name: str
    dose: float
    original: float
    target: float
    share: float


@dataclass(frozen=True, kw_only=True)
class SpectrumRow:
    """One singular value of ΔC with its interval and its null; ``index`` counts from 1."""

    head: str
    name: str
    index: int
    sigma: float
    low: float
    high: float
    null: float


@dataclass(frozen=True, kw_only=True)
class AngleRow:
    """One principal angle between two features, or between random halves of one."""

    head: str
    first: str
    second: str
    side: Side
    index: int
    degrees: float


@dataclass(frozen=True, kw_only=True)
class GrowthRow:
    """The energy rank with some of the query values of the design."""

    head: str
    name: str
    varies: str
    values: int
    prompts: int
    rank_energy: int


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """One swap made in the running model.

    ``logit_difference`` is logit(original's answer) − logit(target's answer); ``flips`` the share of prompts in
    which the order of the two turned around; ``error`` the largest difference between the attention of the edited
    pass and the analytic one.
    """

    head: str
    name: str
    prompts: int
    logit_difference: float
    edited_logit_difference: float
    change: float
    change_se: float
    prefers_original: float
    flips: float
    error: float | None


@dataclass(frozen=True, kw_only=True)
class AttributionRow:
    """One token's logit from one feature; ``residual`` and ``total`` are features too."""

    head: str
    method: Literal["sequential", "shapley"]
    position: int
    token: str
    feature: str
    logit: float
    centred: float
    explained: float


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
