"""The columns of a circuit run's tables, with types and meanings: what ``schema.json`` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

# table -> column -> (type, may be null, meaning)
COLUMNS: dict[str, dict[str, tuple[pa.DataType, bool, str]]] = {
    "prompts": {
        "prompt": (pa.int32(), False, "number of the prompt, from 0"),
        "text": (pa.string(), False, "what the model reads"),
        "token_ids": (pa.list_(pa.int32()), False, "its tokens"),
        "tokens": (pa.list_(pa.string()), False, "its tokens as text"),
        "answer": (pa.string(), False, "the right answer, one token"),
        "wrong": (pa.string(), True, "the token it is compared with"),
        "answer_id": (pa.int32(), False, "token id of the answer"),
        "wrong_id": (pa.int32(), True, "token id of the wrong answer"),
        "labels": (pa.string(), False, "JSON object of labels, e.g. order and wording"),
        "status": (pa.string(), False, "traced; wrong: the model prefers another answer; empty: no circuit; failed"),
        "reason": (pa.string(), True, "why there is no circuit"),
        "difference": (pa.float32(), True, "logit of the answer minus that of wrong (without wrong: the best other)"),
        "top": (pa.string(), True, "the most likely next token"),
        "n_firings": (pa.int32(), False, "head firings in the circuit"),
        "n_edges": (pa.int32(), False, "edges in the circuit"),
        "notes": (pa.list_(pa.string()), False, "lines a reader of the circuit should see"),
    },
    "edges": {
        "prompt": (pa.int32(), False, "number of the prompt"),
        "source": (pa.string(), False, "the component that writes: L9H6, MLP2, embedding, bias3, offset"),
        "source_kind": (pa.string(), False, "head, mlp, embedding, bias or offset"),
        "source_layer": (pa.int16(), False, "its layer; -1 for embedding and offset"),
        "source_head": (pa.int16(), True, "its head"),
        "source_query": (pa.int16(), False, "the token at which it writes"),
        "source_key": (pa.int16(), False, "the token it attends to; the same token for what is no head"),
        "target": (pa.string(), False, "the head that reads, or answer"),
        "target_layer": (pa.int16(), False, "its layer; the number of layers for the answer"),
        "target_head": (pa.int16(), True, "its head"),
        "target_query": (pa.int16(), False, "the token that attends"),
        "target_key": (pa.int16(), False, "the token attended to"),
        "side": (pa.string(), False, "the side that reads: query or key"),
        "weight": (pa.float32(), False, "attention that its removal takes; into the answer: share of the answer"),
        "channels": (pa.list_(pa.int16()), False, "channels of the target head, in the order of removal"),
        "strengths": (pa.list_(pa.float32()), False, "what was written along each channel's unit direction"),
    },
    "firings": {
        "prompt": (pa.int32(), False, "number of the prompt"),
        "layer": (pa.int16(), False, "the head's layer"),
        "head": (pa.int16(), False, "the head"),
        "query": (pa.int16(), False, "the token that attends"),
        "key": (pa.int16(), False, "the token attended to"),
        "attention": (pa.float32(), False, "how much it attends"),
        "after_query": (pa.float32(), True, "attention left when the signals of the query side leave"),
        "after_key": (pa.float32(), True, "attention left when the signals of the key side leave"),
    },
}  # fmt: skip
TABLES = ("edges", "firings", "prompts")
"""In the order in which they are finished."""


def schema_of(table: str) -> pa.Schema:
    """The columns of a table as parquet keeps them."""
    return pa.schema([pa.field(name, kind, null) for name, (kind, null, _) in COLUMNS[table].items()])


def schema_document() -> dict[str, Any]:
    """What ``schema.json`` says: every table's columns with type and meaning."""
    return {
        f"{table}.parquet": {
            name: {"type": _named(kind), "null": null, "meaning": meaning}
            for name, (kind, null, meaning) in columns.items()
        }
        for table, columns in COLUMNS.items()
    }


def table_of(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of that kind; a row must have every column."""
    schema = schema_of(table)
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _named(kind: pa.DataType) -> str:
    return f"list<{kind.value_type}>" if pa.types.is_list(kind) else str(kind)
