"""What the files of a run hold: the columns of its tables, and its JSON documents as types."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, JsonValue

from headwise.contrast.rows import ROWS
from headwise.scale.manifest import ModelShape
from headwise.scale.tables import Column, Columns
from headwise.validation import Sha256, Shape

# A share of what swapping whole keys does, which may be nothing at all; a spread over a single prompt.
_RATIO = Column(pa.float64(), finite=False)
# A mean over prompts of what a softmax gives.
_ATTENTION = Column(pa.float64(), low=0, high=1.001)

_KINDS: tuple[tuple[Column, tuple[str, ...]], ...] = (
    (Column(pa.string()), ("head", "name", "condition", "first", "second", "varies", "token", "feature")),
    (Column(pa.string()), ("against", "group", "by")),
    (Column(pa.bool_()), ("chosen", "union", "saturated", "supported")),
    (
        Column(pa.int64(), low=0),
        ("rank", "rank_energy", "rank_null", "draw", "index", "prompts", "position", "clusters", "classes"),
    ),
    (Column(pa.int64(), low=0, null=True), ("rank_interaction", "rank_low", "rank_high", "bound")),
    (Column(pa.int64(), low=0, null=True), ("rank_prompts", "values")),
    (Column(pa.float64()), ("score", "low", "high", "ratio", "sigma", "null", "change", "logit", "centred")),
    (Column(pa.float64()), ("logit_difference", "edited_logit_difference", "explained")),
    (Column(pa.float64()), ("log_odds", "log_odds_low", "log_odds_high")),
    (Column(pa.float64()), ("value", "shuffled_value", "placebo_value")),
    (Column(pa.int64(), low=0), ("against_draws",)),
    (Column(pa.float64(), null=True), ("stable_rank", "superposition", "error")),
    (Column(pa.float64(), null=True), ("test_score", "test_low", "test_high")),
    (Column(pa.float64(), null=True), ("superposition_null", "superposition_high")),
    (Column(pa.float64(), null=True), ("explained_null", "explained_high")),
    (
        Column(pa.float64(), low=0, high=1),
        ("p_placebo", "p_covariance", "p_uniform", "p_shuffled", "p_plane"),
    ),
    (Column(pa.float64(), low=0, high=1.001), ("line_share",)),
    (Column(pa.float64(), low=0, high=1), ("p_value", "q_value", "accuracy", "interaction_share", "dose")),
    (Column(pa.float64(), low=0, high=1), ("prefers_original", "flips")),
    (_ATTENTION, ("mass", "random_original", "random_target")),
    (_ATTENTION, ("original", "original_low", "original_high", "target", "target_low", "target_high")),
    (_RATIO, ("share", "share_of_full", "share_low", "share_high", "random_share_99", "change_se")),
    (_RATIO, ("placebo_share", "placebo_high")),
    (Column(pa.float64(), low=0, high=100), ("percentile",)),
    (Column(pa.float64(), low=0, high=90.001), ("degrees",)),
    (Column(pa.string(), among=("query", "key")), ("side",)),
    (Column(pa.string(), among=("sequential", "shapley")), ("method",)),
    (
        Column(pa.string(), among=("retrieval", "correlation", "ordered", "irreducible", "closed")),
        ("measure",),
    ),
)
"""What a column may hold; a name means the same in every table."""
_COLUMNS = {name: column for column, names in _KINDS for name in names}

TABLES: dict[str, Columns] = {
    table: {field.name: _COLUMNS[field.name] for field in fields(row)} for table, row in ROWS.items()
}
"""The columns of every table, in the order of its rows' fields."""

Amount = Annotated[int, Field(ge=0)]


class FeaturesConfig(Shape):
    """What was asked: the ``config`` of the manifest."""

    model: str
    weight_hash: Sha256
    shape: ModelShape
    dtype: str
    task: str
    settings: dict[str, JsonValue]
    examples: Sha256
    shard: Annotated[int, Field(ge=2)]
    heads: Literal["auto"] | list[str]
    draws: Amount
    energy: float
    max_rank: Amount
    through_model: Amount
    seed: int


class FeaturesDocument(Shape):
    """``features.json``: the result as JSON but for the time, and what the run is of."""

    schema_: Literal[4] = Field(alias="schema")
    task: str
    model: str
    rule: Literal["accuracy", "ratio"]
    settings: dict[str, JsonValue]
    heads: list[dict[str, JsonValue]]
    features: list[dict[str, JsonValue]]
    alignment: list[dict[str, JsonValue]]
    shapes: list[dict[str, JsonValue]]
    warnings: list[str]
    through_model: list[dict[str, JsonValue]] = Field(default_factory=list)


class GalleryLabels(Shape):
    """The record of ``vectors.safetensors``."""

    query: dict[str, list[str]]
    keys: dict[str, list[list[str]]]
    colours: dict[str, str]
