"""What the files of a circuit run hold: the columns of its tables (``schema.json`` describes them), its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, JsonValue

from headwise.scale import tables
from headwise.scale.manifest import BasisShape, ModelShape
from headwise.scale.tables import Column, Columns
from headwise.validation import Sha256, Shape, ShortText

KINDS = ("head", "mlp", "embedding", "bias", "offset")
STATUS = ("traced", "wrong", "empty", "failed")
# A softmax in single precision may come out a little above 1.
_ONE = 1.001


def _text(meaning: str, *, null: bool = False, among: tuple[str, ...] = ()) -> Column:
    return Column(pa.string(), meaning, null=null, among=among)


def _count(meaning: str, *, null: bool = False) -> Column:
    return Column(pa.int32(), meaning, null=null, low=0)


def _index(meaning: str, *, null: bool = False, low: int = 0) -> Column:
    return Column(pa.int16(), meaning, null=null, low=low)


def _attention(meaning: str, *, null: bool = False) -> Column:
    return Column(pa.float32(), meaning, null=null, low=0, high=_ONE)


COLUMNS: dict[str, Columns] = {
    "prompts": {
        "prompt": _count("number of the prompt, from 0"),
        "text": _text("what the model reads"),
        "token_ids": Column(pa.list_(pa.int32()), "its tokens", low=0),
        "tokens": Column(pa.list_(pa.string()), "its tokens as text"),
        "answer": _text("the right answer, one token"),
        "wrong": _text("the token it is compared with", null=True),
        "answer_id": _count("token id of the answer"),
        "wrong_id": _count("token id of the wrong answer", null=True),
        "labels": _text("JSON object of labels, e.g. order and wording"),
        "status": _text(
            "traced; wrong: the model prefers another answer; empty: no circuit; failed", among=STATUS
        ),
        "reason": _text("why there is no circuit", null=True),
        "difference": Column(
            pa.float32(), "logit of the answer minus that of wrong (without wrong: the best other)", null=True
        ),
        "top": _text("the most likely next token", null=True),
        "n_firings": _count("head firings in the circuit"),
        "n_edges": _count("edges in the circuit"),
        "notes": Column(pa.list_(pa.string()), "lines a reader of the circuit should see"),
    },
    "edges": {
        "prompt": _count("number of the prompt"),
        "source": _text("the component that writes: L9H6, MLP2, embedding, bias3, offset"),
        "source_kind": _text("head, mlp, embedding, bias or offset", among=KINDS),
        "source_layer": _index("its layer; -1 for embedding and offset", low=-1),
        "source_head": _index("its head", null=True),
        "source_query": _index("the token at which it writes"),
        "source_key": _index("the token it attends to; the same token for what is no head"),
        "target": _text("the head that reads, or answer"),
        "target_layer": _index("its layer; the number of layers for the answer"),
        "target_head": _index("its head", null=True),
        "target_query": _index("the token that attends"),
        "target_key": _index("the token attended to"),
        "side": _text("the side that reads: query or key", among=("query", "key")),
        "weight": Column(
            pa.float32(), "attention that its removal takes; into the answer: share of the answer"
        ),
        "channels": Column(
            pa.list_(pa.int16()), "channels of the target head, in the order of removal", low=0
        ),
        "strengths": Column(pa.list_(pa.float32()), "what was written along each channel's unit direction"),
    },
    "firings": {
        "prompt": _count("number of the prompt"),
        "layer": _index("the head's layer"),
        "head": _index("the head"),
        "query": _index("the token that attends"),
        "key": _index("the token attended to"),
        "attention": _attention("how much it attends"),
        "after_query": _attention("attention left when the signals of the query side leave", null=True),
        "after_key": _attention("attention left when the signals of the key side leave", null=True),
    },
}
TABLES = ("edges", "firings", "prompts")


def schema_of(table: str) -> pa.Schema:
    """The columns of a table as parquet keeps them."""
    return tables.schema_of(COLUMNS[table])


def table_of(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of that kind; a row must have every column."""
    return tables.table_of(COLUMNS[table], rows)


def schema_document() -> dict[str, Any]:
    """What ``schema.json`` says: every table's columns with type and meaning."""
    return {f"{table}.parquet": tables.described(columns) for table, columns in COLUMNS.items()}


class CircuitsConfig(Shape):
    """What was asked: the ``config`` of the manifest.

    ``shape`` is missing in runs of 0.1.0 and in those of circuits that were made elsewhere; ``tau`` is the threshold of
    attention, None for the tracer's own.
    """

    model: ShortText
    weight_hash: Sha256
    dtype: str
    task: str
    settings: dict[str, JsonValue]
    mode: Literal["exact", "published"]
    tau: float | None
    basis: BasisShape | None = None
    """None in runs of 0.1.0, whose channels are singular and in the absolute frame."""
    seed: int
    prompts: Annotated[int, Field(ge=0)]
    shape: ModelShape | None = None
