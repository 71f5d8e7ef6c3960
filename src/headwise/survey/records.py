"""The run folder of ``headwise circuits``: one record per prompt, in tables that need no headwise to be read.

    manifest.json    what was asked: model, weight hash, task, settings; the digest of every other file
    schema.json      every table's columns, with type and meaning
    prompts.parquet  one row per prompt, also for those that were set aside
    edges.parquet    the circuits' edges
    firings.parquet  the circuits' head firings

Rows are in the order of prompts. Nothing in the tables tells time or machine, so that the same run gives the same
bytes. A folder whose manifest lists the files is finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwise.basis_names import BasisName
from headwise.circuits.circuit import ABSOLUTE, Circuit, Counterfactual, Edge, Node
from headwise.errors import HeadwiseError
from headwise.scale.folder import RunFolder
from headwise.scale.manifest import Manifest, ModelShape
from headwise.scale.tables import write_tables
from headwise.survey.reading import FILES, KIND, read_labels, read_manifest, read_part, read_prompts
from headwise.survey.schema import COLUMNS, TABLES, schema_document, table_of

if TYPE_CHECKING:
    from pandas import DataFrame  # pyright: ignore[reportMissingImports]

    from headwise.types import Side

# --- a circuit as rows, and back -----------------------------------------------------------------------------------


def circuit_rows(prompt: int, circuit: Circuit) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of edges and of firings, in a fixed order: from the answer downwards. Accounts have no place in them."""
    circuit = circuit.causal()
    after = {(c.target, c.side): c.predicted for c in circuit.counterfactuals}
    firings = [
        {
            "prompt": prompt,
            "layer": n.layer,
            "head": n.head,
            "query": n.query,
            "key": n.key,
            "attention": n.attention,
            "after_query": after.get((n.id, "query")),
            "after_key": after.get((n.id, "key")),
        }
        for n in sorted(circuit.heads, key=lambda n: (-n.layer, n.head or 0, n.query, n.key))
    ]
    edges = []
    for edge in circuit.edges:
        source, target = circuit.by_id[edge.source], circuit.by_id[edge.target]
        edges.append(
            {
                "prompt": prompt,
                "source": source.name,
                "source_kind": source.kind,
                "source_layer": source.layer,
                "source_head": source.head,
                "source_query": source.query,
                "source_key": source.key,
                "target": target.name,
                "target_layer": target.layer,
                "target_head": target.head,
                "target_query": target.query,
                "target_key": target.key,
                "side": edge.side,
                "weight": edge.weight,
                "channels": edge.channels,
                "strengths": edge.strengths,
            }
        )
    edges.sort(
        key=lambda e: (
            -e["target_layer"],
            e["target_head"] or 0,
            e["target_query"],
            e["target_key"],
            e["side"] == "key",
            -e["weight"],
            e["source_layer"],
            e["source_kind"],
            e["source_head"] or 0,
            e["source_query"],
            e["source_key"],
        )
    )
    return edges, firings


def _rebuilt(
    prompt: Mapping[str, Any],
    edges: Iterable[Mapping[str, Any]],
    firings: Iterable[Mapping[str, Any]],
    config: Mapping[str, Any],
) -> Circuit:
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
        basis=basis_of(config),
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


def basis_of(config: Mapping[str, Any]) -> BasisName:
    """Which channels a run speaks of; one that does not say was made by 0.1."""
    named = config.get("basis")
    return ABSOLUTE if named is None else BasisName(named["kind"], named["frame"], named["hash"])


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


def write_run(folder: RunFolder, pieces: Iterable[Mapping[str, pa.Table]]) -> None:
    """Write a run's files into its open folder, and finish it; memory holds one piece of the tables at a time."""
    write_tables({name: folder.place(f"{name}.parquet") for name in TABLES}, COLUMNS, pieces)
    folder.write_json("schema.json", schema_document())
    folder.finish(*FILES)


def save_run(path: str | Path, config: Mapping[str, Any], records: Sequence[PromptRecord]) -> CircuitRun:
    """Write a whole run at once: for circuits that were not made by ``headwise circuits``."""
    with RunFolder(path, KIND, config) as folder:
        write_run(folder, [record_tables(records)])
    return CircuitRun.load(path)


# --- the folder ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CircuitRun:
    """A finished run of ``headwise circuits``, or several of one model read as one.

    ``prompts``, ``edges`` and ``firings`` are pyarrow tables; edges and firings are read when first asked for, and
    ``schema.json`` describes their columns. ``circuit(n)`` is prompt n's circuit as :func:`headwise.trace` gives it,
    in single precision.
    """

    paths: tuple[Path, ...]
    """The run folders."""
    manifests: tuple[Manifest, ...]
    """What each was asked, and the digests of its files."""
    shapes: tuple[ModelShape | None, ...] = field(repr=False)
    """What the tables of each can name in the model; None where the run does not say."""

    @classmethod
    def load(cls, *paths: str | Path) -> CircuitRun:
        """Read a finished run. Several are read as one, their prompts numbered on, if their models are the same.

        Every file is held against its digest, and every number against what it can be.
        """
        if not paths:
            raise HeadwiseError("no run folder was given: name one that `headwise circuits` made")
        found = [read_manifest(Path(path)) for path in paths]
        first = found[0][1]
        for path, (_, other) in zip(paths[1:], found[1:], strict=True):
            if other.weight_hash != first.weight_hash:
                raise HeadwiseError(
                    f"two runs of different models cannot be read together: {str(paths[0])!r} is of "
                    f"{first.model!r} (weights {first.weight_hash[:12]}), {str(path)!r} of {other.model!r} "
                    f"(weights {other.weight_hash[:12]})"
                )
            for key in ("mode", "tau", "basis"):
                one, two = getattr(first, key), getattr(other, key)
                if one != two:
                    raise HeadwiseError(
                        f"runs traced by different rules cannot be read together: {key} is {one!r} in "
                        f"{str(paths[0])!r} and {two!r} in {str(path)!r}"
                    )
        run = cls(
            tuple(Path(path) for path in paths),
            tuple(manifest for manifest, _ in found),
            tuple(config.shape for _, config in found),
        )
        _ = run.labels  # with them the prompts are read and checked
        return run

    @property
    def basis(self) -> BasisName:
        """What the channels of its circuits are channels of."""
        return basis_of(self.config)

    @property
    def manifest(self) -> dict[str, Any]:
        """What was asked (of several runs: of the first)."""
        return self.manifests[0].to_json()

    @property
    def config(self) -> dict[str, Any]:
        """What was asked, as the manifest of the first run says it."""
        return self.manifests[0].config

    @cached_property
    def prompts(self) -> pa.Table:
        """One row per prompt: text, labels, answers, and how tracing ended."""
        return self._joined(self._prompts)

    @cached_property
    def edges(self) -> pa.Table:
        """One row per edge of every circuit, with its channels."""
        return self._read("edges")

    @cached_property
    def firings(self) -> pa.Table:
        """One row per firing of every circuit, with its attention."""
        return self._read("firings")

    @cached_property
    def traced(self) -> list[int]:
        """Numbers of the prompts that have a circuit."""
        status = self.prompts.column("status").to_pylist()
        return [n for n, s in enumerate(status) if s == "traced"]

    @cached_property
    def labels(self) -> list[dict[str, str]]:
        """The labels of every prompt."""
        return [
            labels
            for path, table in zip(self.paths, self._prompts, strict=True)
            for labels in read_labels(table.column("labels").to_pylist(), repr(str(path / "prompts.parquet")))
        ]

    def to_pandas(self) -> dict[str, DataFrame]:
        """``prompts``, ``edges`` and ``firings`` as DataFrames; needs the extra ``headwise[pandas]``."""
        from headwise.frames import frame

        tables = {"prompts": self.prompts, "edges": self.edges, "firings": self.firings}
        return {name: frame(table.to_pylist(), table.column_names) for name, table in tables.items()}

    def _repr_html_(self) -> str:
        from headwise.show.notebook import circuit_run

        return circuit_run(self)

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
        return np.concatenate(([0], counts.cumsum(dtype=np.int64)))

    # --- reading ---

    @cached_property
    def _prompts(self) -> list[pa.Table]:
        """The prompts of each folder, numbered from 0."""
        return [read_prompts(path, shape) for path, shape in zip(self.paths, self.shapes, strict=True)]

    def _read(self, table: str) -> pa.Table:
        folders = zip(self.paths, self._prompts, self.shapes, strict=True)
        return self._joined([read_part(path, table, prompts, shape) for path, prompts, shape in folders])

    def _joined(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Tables of each folder as one, their prompts numbered on."""
        made, offset = [], 0
        for part, prompts in zip(parts, self._prompts, strict=True):
            if offset:
                numbers = pa.array(part.column("prompt").to_numpy() + offset, pa.int32())
                part = part.set_column(0, part.schema.field(0), numbers)
            made.append(part)
            offset += prompts.num_rows
        return pa.concat_tables(made).combine_chunks()

    def __len__(self) -> int:
        return sum(prompts.num_rows for prompts in self._prompts)

    def to_json(self) -> dict[str, Any]:
        """The run in a few numbers: counts by status, and medians over the traced circuits."""
        from headwise.survey.summary import run_summary

        return run_summary(self)

    def __repr__(self) -> str:
        return (
            f"CircuitRun({self.config['task']!r} in {self.config['model']!r}: {len(self.traced)} of {len(self)} "
            f"prompts traced, {self.edges.num_rows} edges)"
        )
