"""The tables of a run folder, a page at a time: parquet files in slices, and the lists of its document.

Whatever is in a folder, it only ever becomes text and numbers: a file that cannot be read is one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwise import jsons
from headwise.app import cells
from headwise.app import wire_runs as wire
from headwise.app.runs import Run
from headwise.errors import HeadwiseError
from headwise.strings import printable, shortened

PAGE = 50
BATCH = 8192
MOST = 64_000_000
"""Bytes of a document that is read."""
ENVELOPE = ("schema", "kind", "weight_hash")
"""What a document within a document says of itself, the same in every row."""
_HEAD = re.compile(r"L\d{1,4}H\d{1,4}")
_TEST = re.compile(r"(\w+)(<=|>=|<|>|=)(.+)")
Values = dict[str, Any]


def tables_of(run: Run) -> list[wire.TableEntry]:
    """The tables that can be read."""
    return list(_counted(run, _state_of(run.path)))


def _state_of(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """What tells a folder from itself before a change."""
    made = []
    for path in sorted([*folder.glob("*.parquet"), *folder.glob("*.json")]):
        try:
            found = path.stat()
        except OSError:
            continue
        made.append((path.name, found.st_mtime_ns, found.st_size))
    return tuple(made)


@lru_cache(maxsize=64)
def _counted(run: Run, state: tuple[tuple[str, int, int], ...]) -> tuple[wire.TableEntry, ...]:
    """Runs are listed again and again, and a document can be long: it is read once as long as nothing changes."""
    return tuple(wire.TableEntry(name=one.name, rows=one.count) for one in _tables(run))


def table_page(
    run: Run, name: str, *, start: int = 0, sort: str = "", down: bool = False, words: str = ""
) -> wire.TableSeen:
    """Rows of a table that fit some words, in an order, from number ``start``."""
    table = next((one for one in _tables(run) if one.name == name), None)
    if table is None:
        raise HeadwiseError(f"there is no table {shortened(printable(name), 60)!r} in this run folder")
    try:
        if sort and sort not in table.columns:
            raise HeadwiseError(f"the table has no column {shortened(printable(sort), 60)!r} to sort by")
        numbers = _chosen(table, sort, down, words) if sort or words.strip() else range(table.count)
        shown = list(numbers[start : start + PAGE])
        found = table.rows(shown)
        return wire.TableSeen(
            columns=tuple(
                wire.ColumnSeen(name=column, number=_is_number(found, column), meaning=table.meaning(column))
                for column in table.columns
            ),
            rows=tuple(
                wire.RowSeen(cells=tuple(cells.shown(row.get(one)) for one in table.columns), place=place)
                for row, place in zip(found, _places(run, name, shown, found), strict=True)
            ),
            total=table.count,
            matching=len(numbers),
            start=start,
        )
    except (OSError, pa.ArrowException, ValueError, MemoryError) as error:
        raise HeadwiseError(f"the table {name!r} cannot be read ({type(error).__name__})") from None


# --- where tables come from ------------------------------------------------------------------------------------------


class _Parquet:
    """A parquet file, of which only the row groups that are asked for are read."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.file = pq.ParquetFile(path, page_checksum_verification=True)
        self.count, self.columns = self.file.metadata.num_rows, list(self.file.schema_arrow.names)
        self._about = path.parent / "schema.json"

    @cached_property
    def _meanings(self) -> Mapping[str, Any]:
        try:
            data = jsons.read(self._about, "a schema", "") if self._about.is_file() else {}
        except HeadwiseError:
            return {}
        found = data.get(f"{self.name}.parquet") if isinstance(data, dict) else None
        return found if isinstance(found, dict) else {}

    def meaning(self, column: str) -> str:
        told = self._meanings.get(column)
        said = told.get("meaning") if isinstance(told, dict) else None
        return shortened(said, 200) if isinstance(said, str) else ""

    def all(self) -> Iterator[Values]:
        for batch in self.file.iter_batches(BATCH):
            yield from batch.to_pylist()

    def rows(self, numbers: list[int]) -> list[Values]:
        made: dict[int, Values] = {}
        first = 0
        for group in range(self.file.num_row_groups):
            size = self.file.metadata.row_group(group).num_rows
            mine = [one for one in numbers if first <= one < first + size]
            if mine:
                taken = self.file.read_row_group(group).take([one - first for one in mine]).to_pylist()
                made.update(zip(mine, taken, strict=True))
            first += size
        return [made[one] for one in numbers]


@dataclass(frozen=True)
class _Listed:
    """A list of objects in the run's document."""

    name: str
    items: list[Values]

    @property
    def count(self) -> int:
        return len(self.items)

    @cached_property
    def columns(self) -> list[str]:
        keys = dict.fromkeys(str(key) for row in self.items[:200] for key in row)
        return [key for key in keys if key not in ENVELOPE][:60]

    def meaning(self, column: str) -> str:
        return ""

    def all(self) -> Iterator[Values]:
        return iter(self.items)

    def rows(self, numbers: list[int]) -> list[Values]:
        return [self.items[one] for one in numbers]


def _tables(run: Run) -> list[_Parquet | _Listed]:
    made: list[_Parquet | _Listed] = []
    for path in sorted(run.path.glob("*.parquet")):
        if run.file(path.name) is None:
            continue
        try:
            made.append(_Parquet(path))
        except (OSError, pa.ArrowException, ValueError):
            continue  # it is not a table, or damaged
    known = {one.name for one in made}
    return made + [one for one in _lists(run) if one.name not in known]


def _lists(run: Run) -> Iterable[_Listed]:
    path = None if run.kind is None else run.file(f"{run.kind}.json")
    if path is None or path.stat().st_size > MOST:
        return
    try:
        document = jsons.read(path, "a document", "")
    except HeadwiseError:
        return
    for name, value in document.items() if isinstance(document, dict) else ():
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield _Listed(str(name), value)


# --- choosing --------------------------------------------------------------------------------------------------------


def _chosen(table: _Parquet | _Listed, sort: str, down: bool, words: str) -> list[int]:
    """Numbers of the rows that fit, in order; of every row only what it is sorted by is kept."""
    tests = [_test(word, table.columns) for word in words.split()]
    fits = ((number, row) for number, row in enumerate(table.all()) if all(test(row) for test in tests))
    keys = {number: cells.order(row.get(sort)) if sort else (0, 0.0, "") for number, row in fits}
    return sorted(keys, key=lambda number: keys[number], reverse=down)


def _test(word: str, columns: list[str]) -> Callable[[Values], bool]:
    """``weight>0.5``, ``side=query``, or a word that occurs somewhere in the row."""
    found = _TEST.fullmatch(word)
    if found is None or found[1] not in columns:
        low = word.lower()
        return lambda row: any(low in str(value).lower() for value in row.values())
    column, sign, given = found.groups()
    limit = _number(given)

    def holds(row: Values) -> bool:
        value = row.get(column)
        if sign == "=":
            return str(value).lower() == given.lower() or (limit is not None and cells.number(value) == limit)
        mine = cells.number(value)
        if limit is None or mine is None:
            return False
        return {"<": mine < limit, ">": mine > limit, "<=": mine <= limit, ">=": mine >= limit}[sign]

    return holds


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# --- showing ---------------------------------------------------------------------------------------------------------


def _is_number(rows: list[Values], column: str) -> bool:
    values = [row.get(column) for row in rows if row.get(column) is not None]
    return bool(values) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def _places(run: Run, name: str, numbers_of_rows: list[int], rows: list[Values]) -> list[dict[str, str]]:
    """Where in the app each row leads; of a run of circuits also the number of its circuit."""
    if run.kind == "circuits" and name == "prompts":
        made = [_place(row, {}) for row in rows]
        return [
            {**one, "c": str(number)} if one else one
            for one, number in zip(made, numbers_of_rows, strict=True)
        ]
    numbers = sorted({row["prompt"] for row in rows if isinstance(row.get("prompt"), int)})
    prompts = _prompts(run, numbers) if run.kind == "circuits" else {}
    made = [_place(row, prompts.get(row.get("prompt"), {})) for row in rows]
    for row, place in zip(rows, made, strict=True):
        if row.get("prompt") in prompts and "p" in place:
            place["c"] = str(row["prompt"])
    return made


def _prompts(run: Run, numbers: list[int]) -> dict[Any, Values]:
    """Prompts of a run of circuits, whose rows are in their order."""
    if not numbers or run.file("prompts.parquet") is None:
        return {}
    table = _Parquet(run.path / "prompts.parquet")
    inside = [one for one in numbers if 0 <= one < table.count]
    return dict(zip(inside, table.rows(inside), strict=True))


def _place(row: Values, prompt: Values) -> dict[str, str]:
    text = {key: row.get(key) or prompt.get(key) for key in ("text", "answer", "wrong")}
    made = {
        name: value
        for name, value in zip("paw", text.values(), strict=True)
        if isinstance(value, str) and value and len(value) < 4000
    }
    if "p" not in made:
        made = {}
    head, layer, index = row.get("head"), row.get("layer", row.get("target_layer")), row.get("target_head")
    index = head if isinstance(head, int) else index
    if isinstance(head, str) and _HEAD.fullmatch(head):
        made["h"] = head
    elif isinstance(layer, int) and isinstance(index, int):
        made["h"] = f"L{layer}H{index}"
    for name, keys in {"q": ("query", "target_query"), "k": ("key", "target_key")}.items():
        found = next((row[key] for key in keys if isinstance(row.get(key), int)), None)
        if found is not None and "h" in made and "p" in made:
            made[name] = str(found)
    return made
