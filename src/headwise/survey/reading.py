"""A circuit run from its folder: every file held against its digest, its columns, its model and the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.scale.manifest import AGAIN, Manifest, ModelShape, damaged, read_finished
from headwise.scale.manifest import FILE as MANIFEST
from headwise.scale.tables import BadTable, read_table
from headwise.survey.schema import COLUMNS, TABLES, CircuitsConfig
from headwise.validation import Shape, check

KIND = "circuits"
MAKE = "headwise circuits TASK --out DIR"
FILES = (*(f"{table}.parquet" for table in TABLES), "schema.json")
"""All that a finished run consists of, besides its manifest."""


def read_manifest(path: Path) -> tuple[Manifest, CircuitsConfig]:
    """The manifest of a finished run, whose files are those that it states, and what was asked."""
    found = read_finished(path, KIND, MAKE, last="prompts.parquet")
    config = check(CircuitsConfig, found.config, repr(str(path / MANIFEST)), AGAIN)
    found.hold_against(path, FILES if found.files is not None else ())
    return found, config


def read_prompts(path: Path, shape: ModelShape | None) -> pa.Table:
    """The table of prompts, and the other tables as long as it says."""
    table = _read(path, "prompts")
    try:
        if not np.array_equal(table.column("prompt").to_numpy(), np.arange(table.num_rows)):
            raise BadTable("the prompts are not numbered from 0")
        if not np.array_equal(_lengths(table, "token_ids"), _lengths(table, "tokens")):
            raise BadTable("a prompt has other tokens than token ids")
        if shape is not None:
            for name in ("token_ids", "answer_id", "wrong_id"):
                _below(table, name, shape.vocabulary)
    except BadTable as reason:
        raise damaged(path / "prompts.parquet", reason) from None
    for name in ("edges", "firings"):
        rows = _rows(path, name)
        if rows != (said := int(table.column(f"n_{name}").to_numpy().astype(np.int64).sum())):
            raise damaged(path / f"{name}.parquet", f"it has {rows} rows, the prompts say {said}")
    return table


def read_part(path: Path, name: str, prompts: pa.Table, shape: ModelShape | None) -> pa.Table:
    """The table of edges or of firings: each row of the prompt whose turn it is, and within that prompt's tokens."""
    table = _read(path, name)
    try:
        counts = prompts.column(f"n_{name}").to_numpy()
        if not np.array_equal(table.column("prompt").to_numpy(), np.repeat(np.arange(len(counts)), counts)):
            raise BadTable("its rows are not those of the prompts in their order")
        tokens = np.repeat(_lengths(prompts, "token_ids"), counts)
        ends = ("query", "key") if name == "firings" else _EDGE_PLACES
        for column in ends:
            beyond = table.column(column).to_numpy() >= tokens
            if beyond.any():
                raise BadTable(
                    f"{column} is {table.column(column).to_numpy()[beyond][0]}, beyond its prompt's end"
                )
        if name == "edges" and not np.array_equal(_lengths(table, "channels"), _lengths(table, "strengths")):
            raise BadTable("an edge has other strengths than channels")
        if shape is not None:
            for column, limit in _limits(name, shape):
                _below(table, column, limit)
    except BadTable as reason:
        raise damaged(path / f"{name}.parquet", reason) from None
    return table


_EDGE_PLACES = ("source_query", "source_key", "target_query", "target_key")


def _limits(name: str, shape: ModelShape) -> list[tuple[str, int]]:
    if name == "firings":
        return [("layer", shape.layers), ("head", shape.heads)]
    # The answer is a layer above all others.
    return [
        ("source_layer", shape.layers),
        ("source_head", shape.heads),
        ("target_layer", shape.layers + 1),
        ("target_head", shape.heads),
        ("channels", shape.d_head),
    ]


class _StoredLabels(Shape):
    labels: dict[str, str] = Field(default_factory=dict)


def read_labels(texts: Sequence[str], where: str) -> list[dict[str, str]]:
    """The labels of every prompt."""
    found = []
    for number, text in enumerate(texts):
        place = f"{where}: the labels of prompt {number}"
        try:
            value = jsons.parse(text)
        except jsons.NotJson as error:
            raise HeadwiseError(f"{place} are not JSON ({error}): {AGAIN}") from None
        found.append(check(_StoredLabels, {"labels": value}, place, AGAIN).labels)
    return found


def _read(path: Path, name: str) -> pa.Table:
    try:
        return read_table(path / f"{name}.parquet", COLUMNS[name])
    except BadTable as reason:
        raise damaged(path / f"{name}.parquet", reason) from None


def _rows(path: Path, name: str) -> int:
    try:
        return pq.read_metadata(path / f"{name}.parquet").num_rows
    except (OSError, pa.ArrowException):
        raise damaged(path / f"{name}.parquet") from None


def _lengths(table: pa.Table, column: str) -> np.ndarray:
    """How many items the list in each row has."""
    return np.diff(table.column(column).combine_chunks().offsets.to_numpy())


def _below(table: pa.Table, column: str, limit: int) -> None:
    values = table.column(column).combine_chunks()
    if pa.types.is_list(values.type):
        values = values.flatten()
    top = values.drop_null().to_numpy().max(initial=-1)
    if top >= limit:
        raise BadTable(f"{column} is {top}, and the model has {limit}")
