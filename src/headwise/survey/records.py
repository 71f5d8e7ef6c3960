"""The run folder of ``headwise circuits``: one record a prompt, in tables that need no headwise to be read.

    manifest.json    what was asked: model, weight hash, task, settings
    schema.json      every table's columns, with type and meaning
    prompts.parquet  one row a prompt, also of those that were set aside
    edges.parquet    the circuits' edges
    firings.parquet  the circuits' head firings

Rows are in the order of prompts. Nothing in the tables tells time or machine, so that the same run gives the same
bytes. The prompts are written last: a folder that has them is finished.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwise.circuits.circuit import Circuit, Counterfactual, Edge, Node
from headwise.errors import HeadwiseError
from headwise.runs import RunFolder
from headwise.survey.schema import TABLES, schema_document, schema_of, table_of

if TYPE_CHECKING:
    from headwise.types import Side

KIND = "circuits"
MAKE = "make it with `headwise circuits TASK --out DIR`"


# --- a circuit as rows, and back -----------------------------------------------------------------------------------


def circuit_rows(prompt: int, circuit: Circuit) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of edges and of firings, in a fixed order: from the answer downwards."""
    after = {(c.target, c.side): c.predicted for c in circuit.counterfactuals}
    firings = [
        {"prompt": prompt, "layer": n.layer, "head": n.head, "query": n.query, "key": n.key, "attention": n.attention,
         "after_query": after.get((n.id, "query")), "after_key": after.get((n.id, "key"))}
        for n in sorted(circuit.heads, key=lambda n: (-n.layer, n.head or 0, n.query, n.key))
    ]  # fmt: skip
    edges = []
    for edge in circuit.edges:
        source, target = circuit.by_id[edge.source], circuit.by_id[edge.target]
        edges.append(
            {"prompt": prompt, "source": source.name, "source_kind": source.kind, "source_layer": source.layer,
             "source_head": source.head, "source_query": source.query, "source_key": source.key,
             "target": target.name, "target_layer": target.layer, "target_head": target.head,
             "target_query": target.query, "target_key": target.key, "side": edge.side, "weight": edge.weight,
             "channels": edge.channels, "strengths": edge.strengths}
        )  # fmt: skip
    edges.sort(
        key=lambda e: (
            -e["target_layer"], e["target_head"] or 0, e["target_query"], e["target_key"], e["side"] == "key",
            -e["weight"], e["source_layer"], e["source_kind"], e["source_head"] or 0, e["source_query"],
            e["source_key"],
        )
    )  # fmt: skip
    return edges, firings


def _rebuilt(
    prompt: Mapping[str, Any], edges: Iterable[Mapping[str, Any]], firings: Iterable[Mapping[str, Any]],
    config: Mapping[str, Any],
) -> Circuit:  # fmt: skip
    nodes: dict[str, Node] = {}
    made: list[Edge] = []
    removed: dict[tuple[str, str], int] = {}
    left: list[tuple[Node, Side, float]] = []
    for f in firings:
        node = Node("head", f["layer"], f["head"], f["query"], f["key"], f["attention"])
        nodes[node.id] = node
        for side in ("query", "key"):
            if f[f"after_{side}"] is not None:
                left.append((node, side, f[f"after_{side}"]))
    for e in edges:
        kind = "answer" if e["target_head"] is None else "head"
        ends = (
            Node(e["source_kind"], e["source_layer"], e["source_head"], e["source_query"], e["source_key"]),
            Node(kind, e["target_layer"], e["target_head"], e["target_query"], e["target_key"]),
        )
        source, target = (nodes.setdefault(node.id, node).id for node in ends)
        channels = tuple(e["channels"])
        removed[target, e["side"]] = removed.get((target, e["side"]), 0) + len(channels)
        made.append(Edge(source, target, e["side"], e["weight"], channels, strengths=tuple(e["strengths"])))
    return Circuit(
        nodes=tuple(nodes.values()),
        edges=tuple(made),
        tokens=tuple(prompt["tokens"]),
        token_ids=tuple(prompt["token_ids"]),
        prompt=prompt["text"],
        answer=prompt["answer"],
        wrong=prompt["wrong"],
        answer_id=prompt["answer_id"],
        wrong_id=prompt["wrong_id"],
        mode=config["mode"],
        model=config["model"],
        weight_hash=config["weight_hash"],
        counterfactuals=tuple(
            Counterfactual(n.id, side, removed.get((n.id, side), 0), n.attention or 0.0, after)
            for n, side, after in left
        ),
        notes=tuple(prompt["notes"]),
        difference=prompt["difference"],
        top=prompt["top"],
    )


# --- writing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PromptRecord:
    """What became of one prompt: its row without what the circuit gives, and the circuit if there is one."""

    row: Mapping[str, Any]
    circuit: Circuit | None = None


def record_tables(records: Sequence[PromptRecord]) -> dict[str, pa.Table]:
    """The three tables of some prompts."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for record in records:
        edges, firings = [], []
        if record.circuit is not None:
            edges, firings = circuit_rows(record.row["prompt"], record.circuit)
        rows["edges"] += edges
        rows["firings"] += firings
        notes = () if record.circuit is None else record.circuit.notes
        counts = {"n_edges": len(edges), "n_firings": len(firings), "notes": notes}
        rows["prompts"].append({**record.row, **counts})
    return {name: table_of(name, rows[name]) for name in TABLES}


class TablesWriter:
    """Writes the tables piece by piece, beside their places; ``finish`` brings them there, the prompts last.

    Pieces are written as they are given, one row group each, so that memory holds one piece.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, IO[bytes]] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        for name in TABLES:
            self._files[name] = self._beside(name).open("wb")
            self._writers[name] = pq.ParquetWriter(self._files[name], schema_of(name), compression="zstd")

    def _beside(self, table: str) -> Path:
        return self.path / f".{table}.parquet.part"

    def add(self, tables: Mapping[str, pa.Table]) -> None:
        for name in TABLES:
            if tables[name].num_rows:
                self._writers[name].write_table(tables[name].combine_chunks())

    def finish(self) -> None:
        for name in TABLES:
            self._writers[name].close()
            self._files[name].flush()
            os.fsync(self._files[name].fileno())
            self._files[name].close()
        for name in TABLES:
            self._beside(name).replace(self.path / f"{name}.parquet")

    def abandon(self) -> None:
        """Take away what was written beside: after a full disk, for instance."""
        for name in TABLES:
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                self._writers[name].close()
            with contextlib.suppress(OSError):
                self._files[name].close()
            with contextlib.suppress(OSError):
                self._beside(name).unlink()


def save_run(path: str | Path, config: Mapping[str, Any], records: Sequence[PromptRecord]) -> CircuitRun:
    """Write a whole run at once: for circuits that were not made by ``headwise circuits``."""
    folder = RunFolder(path, KIND, config)
    folder.write_json("schema.json", schema_document())
    writer = TablesWriter(folder.path)
    writer.add(record_tables(records))
    writer.finish()
    return CircuitRun.load(path)


# --- the folder ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CircuitRun:
    """A finished run of ``headwise circuits``, or several of one model read as one.

    ``prompts``, ``edges`` and ``firings`` are pyarrow tables, read when first asked for; their columns are described
    in ``schema.json``. ``circuit(n)`` is prompt n's circuit as :func:`headwise.trace` gives it, in single precision.
    """

    paths: tuple[Path, ...]
    manifests: tuple[dict[str, Any], ...]

    @classmethod
    def load(cls, *paths: str | Path) -> CircuitRun:
        """Read a finished run. Several are read as one, their prompts numbered on, if their models are the same."""
        if not paths:
            raise HeadwiseError("no run folder was given: name one that `headwise circuits` made")
        found = [_manifest(Path(path)) for path in paths]
        first = found[0]["config"]
        for path, other in zip(paths[1:], found[1:], strict=True):
            config = other["config"]
            if config["weight_hash"] != first["weight_hash"]:
                raise HeadwiseError(
                    f"two runs of different models cannot be read together: {str(paths[0])!r} is of "
                    f"{first['model']!r} (weights {first['weight_hash'][:12]}), {str(path)!r} of {config['model']!r} "
                    f"(weights {config['weight_hash'][:12]})"
                )
            for key in ("mode", "tau"):
                if config.get(key) != first.get(key):
                    raise HeadwiseError(
                        f"runs traced by different rules cannot be read together: {key} is {first.get(key)!r} in "
                        f"{str(paths[0])!r} and {config.get(key)!r} in {str(path)!r}"
                    )
        run = cls(tuple(Path(path) for path in paths), tuple(found))
        for path in run.paths:
            _check_sizes(path)
        return run

    @property
    def manifest(self) -> dict[str, Any]:
        """What was asked (of several runs: of the first)."""
        return self.manifests[0]

    @property
    def config(self) -> dict[str, Any]:
        return self.manifest["config"]

    @cached_property
    def prompts(self) -> pa.Table:
        return self._read("prompts")

    @cached_property
    def edges(self) -> pa.Table:
        return self._read("edges")

    @cached_property
    def firings(self) -> pa.Table:
        return self._read("firings")

    @cached_property
    def traced(self) -> list[int]:
        """Numbers of the prompts that have a circuit."""
        status = self.prompts.column("status").to_pylist()
        return [n for n, s in enumerate(status) if s == "traced"]

    @cached_property
    def labels(self) -> list[dict[str, str]]:
        """The labels of every prompt."""
        return [json.loads(text) for text in self.prompts.column("labels").to_pylist()]

    def circuit(self, prompt: int) -> Circuit:
        """The circuit of a prompt by its number; empty for a prompt that was set aside."""
        if not 0 <= prompt < len(self):
            raise HeadwiseError(f"there is no prompt {prompt}: this run has 0 to {len(self) - 1}")
        row = self.prompts.slice(prompt, 1).to_pylist()[0]
        parts = []
        for table, starts in ((self.edges, self._edge_starts), (self.firings, self._firing_starts)):
            start, stop = int(starts[prompt]), int(starts[prompt + 1])
            parts.append(table.slice(start, stop - start).to_pylist())
        return _rebuilt(row, parts[0], parts[1], self.config)

    @cached_property
    def _edge_starts(self) -> np.ndarray:
        return self._starts("n_edges")

    @cached_property
    def _firing_starts(self) -> np.ndarray:
        return self._starts("n_firings")

    def _starts(self, column: str) -> np.ndarray:
        counts = self.prompts.column(column).to_numpy()
        return np.concatenate(([0], counts.cumsum()))

    def _read(self, table: str) -> pa.Table:
        parts, offset = [], 0
        for path in self.paths:
            part = _read_table(path, table)
            if offset:
                numbers = pa.array(part.column("prompt").to_numpy() + offset, pa.int32())
                part = part.set_column(0, part.schema.field(0), numbers)
            parts.append(part)
            offset += _rows(path, "prompts")
        return pa.concat_tables(parts).combine_chunks()

    def __len__(self) -> int:
        return self.prompts.num_rows

    def __repr__(self) -> str:
        return (
            f"CircuitRun({self.config['task']!r} in {self.config['model']!r}: {len(self.traced)} of {len(self)} "
            f"prompts traced, {self.edges.num_rows} edges)"
        )


def finished(path: Path) -> bool:
    """Whether a run's last file is there."""
    return (path / "prompts.parquet").is_file()


def _manifest(path: Path) -> dict[str, Any]:
    name = str(path)
    if not path.exists():
        raise HeadwiseError(f"there is no folder {name!r}: {MAKE}")
    if not path.is_dir():
        raise HeadwiseError(f"{name!r} is not a folder: give the --out folder of `headwise circuits`")
    if not any(path.iterdir()):
        raise HeadwiseError(f"the folder {name!r} is empty: {MAKE}")
    try:
        found = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HeadwiseError(f"the folder {name!r} has no manifest.json, so it is not a run: {MAKE}") from None
    except (OSError, ValueError):
        raise HeadwiseError(f"the manifest.json of {name!r} is damaged: make the run again") from None
    kind = found.get("kind") if isinstance(found, dict) else None
    if kind != KIND:
        raise HeadwiseError(f"{name!r} holds a run of another kind ({kind}): {MAKE}")
    config = found.get("config")
    if not isinstance(config, dict) or not {"model", "weight_hash", "mode", "task"} <= set(config):
        raise HeadwiseError(f"the manifest.json of {name!r} is damaged: make the run again")
    if not finished(path):
        raise HeadwiseError(
            f"the run in {name!r} is not finished: run the same `headwise circuits` command again to continue it"
        )
    return found


def _check_sizes(path: Path) -> None:
    """Tables of one run agree in their numbers; a file cut short or taken from another run does not."""
    prompts = _read_table(path, "prompts", columns=["prompt", "n_edges", "n_firings"])
    counts = {name: int(prompts.column(f"n_{name}").to_numpy().sum()) for name in ("edges", "firings")}
    numbered = np.array_equal(prompts.column("prompt").to_numpy(), np.arange(prompts.num_rows))
    for name, count in counts.items():
        if not numbered or _rows(path, name) != count:
            raise _damaged(path, name)


def _rows(path: Path, table: str) -> int:
    try:
        return pq.read_metadata(path / f"{table}.parquet").num_rows
    except (OSError, pa.ArrowException):
        raise _damaged(path, table) from None


def _read_table(path: Path, table: str, columns: list[str] | None = None) -> pa.Table:
    file = path / f"{table}.parquet"
    try:
        found = pq.read_table(file)
        wanted = schema_of(table)
        found = found.select(wanted.names).cast(wanted)
    except (OSError, pa.ArrowException, KeyError, ValueError):
        raise _damaged(path, table) from None
    return found if columns is None else found.select(columns)


def _damaged(path: Path, table: str) -> HeadwiseError:
    return HeadwiseError(
        f"{str(path / table) + '.parquet'!r} is missing, damaged or of another run: make the run again"
    )
