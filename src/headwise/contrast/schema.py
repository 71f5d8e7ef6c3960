"""What the files of a contrastive run hold: the columns of its tables, and its JSON documents as types."""

from __future__ import annotations

from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field, JsonValue

from headwise.scale.manifest import ModelShape
from headwise.scale.tables import Column, Columns
from headwise.validation import Sha256, Shape

_TEXT, _FLAG = Column(pa.string()), Column(pa.bool_())
_COUNT, _COUNT_OR_NONE = Column(pa.int64(), low=0), Column(pa.int64(), low=0, null=True)
_NUMBER, _NUMBER_OR_NONE = Column(pa.float64()), Column(pa.float64(), null=True)
_UNIT = Column(pa.float64(), low=0, high=1)
# A mean over prompts of what a softmax gives.
_ATTENTION = Column(pa.float64(), low=0, high=1.001)
# A share of what swapping whole keys does, which may be nothing at all; a spread over a single prompt.
_RATIO = Column(pa.float64(), finite=False)


def _interval(name: str, column: Column) -> dict[str, Column]:
    return {name: column, f"{name}_low": column, f"{name}_high": column}


TABLES: dict[str, Columns] = {
    "heads": {
        "head": _TEXT, "score": _NUMBER, "low": _NUMBER, "high": _NUMBER, "p_value": _UNIT, "q_value": _UNIT,
        "accuracy": _UNIT, "ratio": _NUMBER, "mass": _ATTENTION, "chosen": _FLAG,
    },
    "features": {
        "head": _TEXT, "name": _TEXT, "union": _FLAG, "rank": _COUNT, "rank_energy": _COUNT, "rank_null": _COUNT,
        "rank_interaction": _COUNT_OR_NONE, "rank_low": _COUNT_OR_NONE, "rank_high": _COUNT_OR_NONE,
        "stable_rank": _NUMBER_OR_NONE, "bound": _COUNT_OR_NONE, "saturated": _FLAG, "interaction_share": _UNIT,
        "superposition": _NUMBER_OR_NONE, **_interval("original", _ATTENTION), **_interval("target", _ATTENTION),
        "share_of_full": _RATIO, "share_low": _RATIO, "share_high": _RATIO,
        "percentile": Column(pa.float64(), low=0, high=100), "p_value": _UNIT, "random_original": _ATTENTION,
        "random_target": _ATTENTION, "random_share_99": _RATIO,
    },
    "swaps": {
        "head": _TEXT, "name": _TEXT, "condition": _TEXT, **_interval("original", _ATTENTION),
        **_interval("target", _ATTENTION), **_interval("log_odds", _NUMBER), "share": _RATIO,
    },
    "draws": {
        "head": _TEXT, "name": _TEXT, "draw": _COUNT, "original": _ATTENTION, "target": _ATTENTION, "share": _RATIO,
    },
    "doses": {
        "head": _TEXT, "name": _TEXT, "dose": _UNIT, "original": _ATTENTION, "target": _ATTENTION, "share": _RATIO,
    },
    "spectra": {
        "head": _TEXT, "name": _TEXT, "index": _COUNT, "sigma": _NUMBER, "low": _NUMBER, "high": _NUMBER,
        "null": _NUMBER,
    },
    "angles": {
        "head": _TEXT, "first": _TEXT, "second": _TEXT, "side": Column(pa.string(), among=("query", "key")),
        "index": _COUNT, "degrees": Column(pa.float64(), low=0, high=90.001),
    },
    "growth": {
        "head": _TEXT, "name": _TEXT, "varies": _TEXT, "values": _COUNT, "prompts": _COUNT, "rank_energy": _COUNT,
    },
    "answers": {
        "head": _TEXT, "name": _TEXT, "prompts": _COUNT, "logit_difference": _NUMBER,
        "edited_logit_difference": _NUMBER, "change": _NUMBER, "change_se": _RATIO, "prefers_original": _UNIT,
        "flips": _UNIT, "error": _NUMBER_OR_NONE,
    },
    "attribution": {
        "head": _TEXT, "method": Column(pa.string(), among=("sequential", "shapley")), "position": _COUNT,
        "token": _TEXT, "feature": _TEXT, "logit": _NUMBER, "centred": _NUMBER, "explained": _NUMBER,
    },
}  # fmt: skip

Count = Annotated[int, Field(ge=0)]


class ContrastConfig(Shape):
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
    draws: Count
    energy: float
    max_rank: Count
    through_model: Count
    seed: int


class ContrastDocument(Shape):
    """``run.json``: what ``headwise contrast --json`` prints but for the time, and what the run is of."""

    schema_: Literal[2] = Field(alias="schema")
    task: str
    model: str
    rule: Literal["accuracy", "ratio"]
    settings: dict[str, JsonValue]
    heads: list[dict[str, JsonValue]]
    features: list[dict[str, JsonValue]]
    warnings: list[str]
    through_model: list[dict[str, JsonValue]] = Field(default_factory=list)


class GalleryLabels(Shape):
    """The record of ``vectors.safetensors``."""

    query: dict[str, list[str]]
    keys: dict[str, list[list[str]]]
    colours: dict[str, str]
