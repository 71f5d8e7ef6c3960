"""Parquet tables of known columns: written with a checksum on every page, and read into what the columns promise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwise import jsons
from headwise.files import replacing

PARQUET: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
"""How every table is written."""


class BadTable(ValueError):
    """The bytes are no table of these columns; the message is the reason, short."""


@dataclass(frozen=True)
class Column:
    """What a column may hold. Bounds hold for every number in it, also for those in lists."""

    type: pa.DataType
    meaning: str = ""
    null: bool = False
    low: float | None = None
    high: float | None = None
    among: tuple[str, ...] = ()
    finite: bool = True


Columns = Mapping[str, Column]


def schema_of(columns: Columns) -> pa.Schema:
    """The columns as parquet keeps them."""
    return pa.schema([pa.field(name, column.type, column.null) for name, column in columns.items()])


def described(columns: Columns) -> dict[str, dict[str, Any]]:
    """The columns with type and meaning, for a document beside the table."""
    return {
        name: {"type": _named(column.type), "null": column.null, "meaning": column.meaning}
        for name, column in columns.items()
    }


def table_of(columns: Columns, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table of these columns; a row must have every column."""
    schema = schema_of(columns)
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def table_bytes(table: pa.Table) -> bytes:
    """A table as a parquet file; the same rows give the same bytes."""
    place = BytesIO()
    pq.write_table(table, place, **PARQUET)
    return place.getvalue()


def write_tables(
    places: Mapping[str, Path], columns: Mapping[str, Columns], pieces: Iterable[Mapping[str, pa.Table]]
) -> None:
    """Several tables at once, piece by piece: memory holds one piece, which becomes one row group of each table.

    All become whole together at the end; whatever goes wrong before, none is there.
    """
    with ExitStack() as stack:
        writers: dict[str, pq.ParquetWriter] = {}
        for name, place in places.items():
            file = stack.enter_context(stack.enter_context(replacing(place)).open("wb"))
            writer = pq.ParquetWriter(file, schema_of(columns[name]), **PARQUET)
            writers[name] = stack.enter_context(writer)
        for piece in pieces:
            for name, writer in writers.items():
                if piece[name].num_rows:
                    writer.write_table(piece[name].combine_chunks())


def pack(tables: Mapping[str, pa.Table]) -> bytes:
    """Some tables as one string of bytes, for a chunk."""
    parts = {name: table_bytes(table) for name, table in tables.items()}
    head = jsons.dumps({name: len(part) for name, part in parts.items()}, indent=None)
    return b"\n".join([head.encode(), b"".join(parts.values())])


def unpack(content: bytes, columns: Mapping[str, Columns]) -> dict[str, pa.Table]:
    """The tables of :func:`pack`.

    >>> columns = {"a": {"x": Column(pa.int64())}}
    >>> unpack(pack({"a": table_of(columns["a"], [{"x": 5}])}), columns)["a"].to_pylist()
    [{'x': 5}]
    """
    head, _, body = content.partition(b"\n")
    made, start = {}, 0
    for name, size in jsons.parse(head).items():
        made[name] = read_table(body[start : start + size], columns[name])
        start += size
    return made


def read_table(source: Path | bytes, columns: Columns) -> pa.Table:
    """A table that holds what its columns promise.

    >>> content = table_bytes(pa.table({"attention": [0.5, 7.0]}))
    >>> read_table(content, {"attention": Column(pa.float64(), high=1)})
    Traceback (most recent call last):
    ...
    headwise.scale.tables.BadTable: attention is 7.0, above 1
    """
    wanted = schema_of(columns)
    try:
        file = pa.BufferReader(source) if isinstance(source, bytes) else source
        found = pq.read_table(file, page_checksum_verification=True)
        if found.schema.names != wanted.names:
            raise BadTable("it has other columns")
        for name, kind in zip(wanted.names, wanted.types, strict=True):
            if _named(found.schema.field(name).type) != _named(kind):
                raise BadTable(f"{name} is {found.schema.field(name).type}, not {kind}")
        found.validate(full=True)
        for name, column in columns.items():
            _check(name, found.column(name), column)
        return found.cast(wanted)
    except (OSError, pa.ArrowException, KeyError, MemoryError) as error:
        raise BadTable(f"it cannot be read ({type(error).__name__})") from None


def _named(kind: pa.DataType) -> str:
    """A type without the names that parquet gives to the items of lists."""
    return f"list<{kind.value_type}>" if pa.types.is_list(kind) else str(kind)


def _check(name: str, values: pa.ChunkedArray, column: Column) -> None:
    if values.null_count and not column.null:
        raise BadTable(f"{name} is missing in a row")
    flat = values.combine_chunks()
    if pa.types.is_list(flat.type):
        flat = flat.flatten()
        if flat.null_count:
            raise BadTable(f"an item of {name} is missing")
    flat = flat.drop_null()
    if column.among:
        strange = set(flat.unique().to_pylist()) - set(column.among)
        if strange:
            raise BadTable(f"{name} is none of {', '.join(column.among)}")
    if not pa.types.is_integer(flat.type) and not pa.types.is_floating(flat.type):
        return
    numbers = flat.to_numpy(zero_copy_only=False)
    if column.finite:
        _refuse(name, numbers, ~np.isfinite(numbers), "not a finite number")
    if column.low is not None:
        _refuse(name, numbers, numbers < column.low, f"below {column.low:g}")
    if column.high is not None:
        _refuse(name, numbers, numbers > column.high, f"above {column.high:g}")


def _refuse(name: str, numbers: np.ndarray, wrong: np.ndarray, why: str) -> None:
    if wrong.any():
        raise BadTable(f"{name} is {numbers[wrong][0]}, {why}")
