"""The run folder: circuits come back as they went in, bytes are stable, and what is wrong is said in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from run_folders import flips, holding, signed_again
from tiny import prompts_of, tiny
from tiny_circuits import largest_circuit, two_answers

import headwise
from headwise.circuits.circuit import Circuit
from headwise.circuits.files import to_json
from headwise.errors import HeadwiseError
from headwise.scale.folder import RunFolder
from headwise.scale.manifest import FILE, ModelShape
from headwise.survey.reading import FILES
from headwise.survey.records import CircuitRun, PromptRecord, save_run
from headwise.survey.schema import COLUMNS

CONFIG = {
    "model": "tiny",
    "weight_hash": "a" * 64,
    "dtype": "float32",
    "task": "t",
    "settings": {},
    "mode": "exact",
    "tau": None,
    "seed": 0,
    "prompts": 3,
}
SHAPE = ModelShape.of(tiny("llama")).model_dump()


def row(number: int, circuit: Circuit, status: str = "traced") -> dict[str, Any]:
    return {
        "prompt": number,
        "text": "text",
        "token_ids": circuit.token_ids,
        "tokens": circuit.tokens,
        "answer": circuit.answer,
        "wrong": circuit.wrong,
        "answer_id": circuit.answer_id,
        "wrong_id": circuit.wrong_id,
        "labels": '{"wording": "1"}',
        "status": status,
        "reason": None if status == "traced" else "why",
        "difference": circuit.difference,
        "top": circuit.top,
    }


@pytest.fixture(scope="module")
def circuits() -> list[Circuit]:
    model = tiny("llama")
    prompts = prompts_of(9, 12, seed=1)
    ends = [two_answers(model, prompt) for prompt in prompts]
    found = headwise.trace(model, prompts, answer=[a for a, _ in ends], wrong=[w for _, w in ends])
    return [largest_circuit(model), *found]


def saved(path: Path, circuits: list[Circuit], **config: Any) -> CircuitRun:
    records = [PromptRecord(row(0, circuits[0]), circuits[0]), PromptRecord(row(1, circuits[1], "wrong"))]
    records.append(PromptRecord(row(2, circuits[2]), circuits[2]))
    return save_run(path, CONFIG | config, records)


def rounded(value: Any) -> Any:
    """Numbers as single precision shows them."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-6, abs=1e-7)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def test_circuits_come_back(tmp_path: Path, circuits: list[Circuit]) -> None:
    run = saved(tmp_path / "run", circuits, basis=circuits[0].basis.to_json())
    assert run.traced == [0, 2]
    assert len(run) == 3
    assert run.labels == [{"wording": "1"}] * 3
    for number in run.traced:
        assert circuits[number].accounts  # which the tables of a run leave out
        was, now = to_json(circuits[number].causal()), to_json(run.circuit(number))
        # what a run says of itself and not of a circuit
        for key in ("seconds", "prompt", "model"):
            del was[key], now[key]
        order = [(c["target"], c["side"]) for c in now["counterfactuals"]]
        was["counterfactuals"].sort(key=lambda c: order.index((c["target"], c["side"])))
        assert now == rounded(was)
        assert any(e["strengths"] for e in now["edges"])
    empty = run.circuit(1)
    assert not empty.nodes
    assert not empty.edges


def test_a_rebuilt_circuit_can_be_intervened_on(tmp_path: Path) -> None:
    model = tiny("llama")
    circuit = largest_circuit(model).causal()
    record = PromptRecord(row(0, circuit), circuit)
    config = CONFIG | {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "basis": circuit.basis.to_json(),
    }
    rebuilt = save_run(tmp_path / "run", config, [record]).circuit(0)
    effects = []
    for one in (circuit, rebuilt):
        chosen = sorted((e for e in one.edges if e.channels), key=lambda e: e.id)[:2]
        effects.append(headwise.intervene(model, one, [chosen], draws=1)[0])
    was, now = effects
    assert was.logit_change != 0
    assert (now.edges, now.targets) == (was.edges, was.targets)
    assert now.edited.lead == pytest.approx(was.edited.lead, rel=1e-6)


def test_the_same_run_gives_the_same_bytes(tmp_path: Path, circuits: list[Circuit]) -> None:
    for name in ("one", "two"):
        saved(tmp_path / name, circuits)
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert files == ["edges.parquet", "firings.parquet", "manifest.json", "prompts.parquet", "schema.json"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_schema_describes_every_column(tmp_path: Path, circuits: list[Circuit]) -> None:
    saved(tmp_path / "run", circuits)
    schema = json.loads((tmp_path / "run" / "schema.json").read_text())
    for table in COLUMNS:
        found = pq.read_table(tmp_path / "run" / f"{table}.parquet").schema
        described = schema[f"{table}.parquet"]
        assert found.names == list(described)
        assert all(about["meaning"] for about in described.values())
    assert schema["edges.parquet"]["channels"]["type"] == "list<int16>"


def test_runs_of_one_model_are_read_as_one(tmp_path: Path, circuits: list[Circuit]) -> None:
    one, two = (saved(tmp_path / name, circuits, task=name) for name in ("one", "two"))
    both = CircuitRun.load(tmp_path / "one", tmp_path / "two")
    assert both.traced == [0, 2, 3, 5]
    assert both.prompts.column("prompt").to_pylist() == list(range(6))
    assert set(both.edges.column("prompt").to_pylist()) == {0, 2, 3, 5}
    assert both.edges.num_rows == one.edges.num_rows + two.edges.num_rows
    assert both.circuit(5) == two.circuit(2)


def read_all(*paths: Path) -> tuple[Any, ...]:
    run = CircuitRun.load(*paths)
    return run.prompts, run.edges, run.firings


def refused(*paths: Path) -> str:
    with pytest.raises(HeadwiseError) as caught:
        read_all(*paths)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_runs_of_different_models_are_not_mixed(tmp_path: Path, circuits: list[Circuit]) -> None:
    saved(tmp_path / "one", circuits)
    saved(tmp_path / "two", circuits, model="other", weight_hash="b" * 64)
    message = refused(tmp_path / "one", tmp_path / "two")
    for part in ("different models", "'tiny'", "'other'", "one", "two"):
        assert part in message
    saved(tmp_path / "three", circuits, mode="published")
    assert "'published'" in refused(tmp_path / "one", tmp_path / "three")


def test_what_is_not_a_finished_run_is_refused(tmp_path: Path, circuits: list[Circuit]) -> None:
    assert "no folder" in refused(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "is empty" in refused(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    assert "not a folder" in refused(tmp_path / "file")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    assert "no manifest.json" in refused(tmp_path / "notes")
    with RunFolder(tmp_path / "other", "features", {"seed": 0}):
        assert "another kind (features)" in refused(tmp_path / "other")
    with RunFolder(tmp_path / "begun", "circuits", CONFIG):
        assert "not finished" in refused(tmp_path / "begun")
    assert "no run folder" in refused()


@pytest.mark.parametrize("table", ["prompts", "edges", "firings"])
def test_damaged_tables_are_refused(tmp_path: Path, circuits: list[Circuit], table: str) -> None:
    saved(tmp_path / "run", circuits)
    file = tmp_path / "run" / f"{table}.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert f"{table}.parquet" in refused(tmp_path / "run")
    # rows of another run
    rows = pq.read_table(saved(tmp_path / "other", circuits).paths[0] / f"{table}.parquet")
    pq.write_table(rows.slice(1), file)
    assert "damaged or of another run" in refused(tmp_path / "run")
    file.unlink()
    assert f"{table}.parquet" in refused(tmp_path / "run")


def test_a_damaged_manifest_is_refused(tmp_path: Path, circuits: list[Circuit]) -> None:
    saved(tmp_path / "run", circuits)
    (tmp_path / "run" / "manifest.json").write_text("{")
    assert "manifest.json" in refused(tmp_path / "run")


def test_a_prompt_that_is_not_there(tmp_path: Path, circuits: list[Circuit]) -> None:
    with pytest.raises(HeadwiseError, match="no prompt 3: this run has 0 to 2"):
        saved(tmp_path / "run", circuits).circuit(3)


# --- what digests and columns catch ---


def test_every_flipped_bit_is_noticed(tmp_path: Path, circuits: list[Circuit]) -> None:
    saved(tmp_path / "run", circuits)
    for name in (*FILES, FILE):
        file = tmp_path / "run" / name
        for other in flips(file.read_bytes(), 40, name):
            with holding(file, other):
                refused(tmp_path / "run")
    read_all(tmp_path / "run")


def test_flipped_bits_in_pages_are_noticed_without_a_digest(tmp_path: Path, circuits: list[Circuit]) -> None:
    """Between a run's loading and the reading of its edges, only the pages' checksums guard them."""
    saved(tmp_path / "run", circuits)
    file = tmp_path / "run" / "edges.parquet"
    before, whole = read_all(tmp_path / "run")[1], file.read_bytes()
    # Everything before the footer is pages.
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    noticed = 0
    for other in flips(whole[4:end], 60, "pages"):
        run = CircuitRun.load(tmp_path / "run")
        with holding(file, whole[:4] + other + whole[end:]):
            try:
                # A bit of a page's header may matter to nobody; the numbers are never others.
                assert run.edges.equals(before)
            except HeadwiseError:
                noticed += 1
    assert noticed > 40


def changed(path: Path, table: str, column: str, value: Any, at: int = 0) -> None:
    """Somebody changes a cell of a table on purpose, and states the digests anew."""
    place = path / f"{table}.parquet"
    found = pq.read_table(place)
    rows = found.to_pylist()
    rows[at][column] = value
    pq.write_table(found.from_pylist(rows, schema=found.schema), place)
    assert refused(path)
    signed_again(path)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("edges", "weight", float("nan")),
        ("edges", "weight", float("inf")),
        ("edges", "prompt", 2),
        ("edges", "side", "both"),
        ("edges", "source_kind", "junk"),
        ("edges", "channels", [-1]),
        ("edges", "channels", [0, 1, 2, 3, 4, 5, 6]),
        ("edges", "channels", [999]),
        ("edges", "source_layer", -2),
        ("edges", "source_layer", 99),
        ("edges", "target_head", 99),
        ("edges", "target_layer", 99),
        ("edges", "source_query", 200),
        ("edges", "target_key", -1),
        ("edges", "strengths", [float("nan")]),
        ("firings", "attention", 7.0),
        ("firings", "attention", float("nan")),
        ("firings", "after_key", -0.5),
        ("firings", "layer", 99),
        ("firings", "head", -1),
        ("firings", "query", 200),
        ("firings", "prompt", 2),
        ("prompts", "n_edges", -5),
        ("prompts", "n_firings", 10**6),
        ("prompts", "prompt", 1),
        ("prompts", "labels", "5"),
        ("prompts", "labels", "{"),
        ("prompts", "labels", '{"a": 5}'),
        ("prompts", "labels", "[" * 100_000),
        ("prompts", "status", "fine"),
        ("prompts", "difference", float("inf")),
        ("prompts", "token_ids", [1, 2]),
        ("prompts", "token_ids", [-1] * 9),
        ("prompts", "answer_id", 10**6),
        ("prompts", "wrong_id", -3),
    ],
)
def test_tables_changed_on_purpose_are_refused(
    tmp_path: Path, circuits: list[Circuit], table: str, column: str, value: Any
) -> None:
    saved(tmp_path / "run", circuits, shape=SHAPE)
    read_all(tmp_path / "run")
    changed(tmp_path / "run", table, column, value)
    assert f"{table}.parquet" in refused(tmp_path / "run") or column.startswith("n_")


def test_counts_that_balance_do_not_hide_a_negative_one(tmp_path: Path, circuits: list[Circuit]) -> None:
    saved(tmp_path / "run", circuits)
    counts = pq.read_table(tmp_path / "run" / "prompts.parquet").column("n_edges").to_pylist()
    changed(tmp_path / "run", "prompts", "n_edges", -5, at=1)
    changed(tmp_path / "run", "prompts", "n_edges", counts[2] + 5, at=2)
    assert "n_edges is -5" in refused(tmp_path / "run")


@pytest.mark.parametrize(
    "config",
    [
        {"weight_hash": None},
        {"weight_hash": ""},
        {"weight_hash": 5},
        {"weight_hash": "a" * 63},
        {"model": None},
        {"mode": "fast"},
        {"shape": 3},
        {"shape": {**SHAPE, "layers": 0}},
        {"prompts": -1},
        {"more": 1},
    ],
)
def test_manifests_of_other_shape_are_refused(
    tmp_path: Path, circuits: list[Circuit], config: dict[str, Any]
) -> None:
    saved(tmp_path / "run", circuits)
    signed_again(tmp_path / "run", **config)
    assert next(iter(config)) in refused(tmp_path / "run")


@pytest.mark.parametrize("text", ["[]", "5", "null", "{", "[" * 100_000, '{"schema": 2}'])
def test_manifests_that_are_none_are_refused(tmp_path: Path, circuits: list[Circuit], text: str) -> None:
    saved(tmp_path / "run", circuits)
    file = tmp_path / "run" / FILE
    with holding(file, text.encode()):
        assert FILE in refused(tmp_path / "run")
    with holding(file, file.read_bytes().replace(b'"schema": 2', b'"schema": 99')):
        assert "schema 99" in refused(tmp_path / "run")
    file.unlink()
    file.mkdir()
    assert FILE in refused(tmp_path / "run")


def as_first_written(path: Path) -> None:
    """The folder as version 0.1.0 wrote it: no digests, no checksums."""
    found = json.loads((path / FILE).read_text())
    old = {"schema": 1, "kind": "circuits", "config": found["config"], "versions": found["versions"]}
    (path / FILE).write_text(json.dumps(old, indent=1) + "\n")
    for table in COLUMNS:
        pq.write_table(
            pq.read_table(path / f"{table}.parquet"), path / f"{table}.parquet", compression="zstd"
        )


def test_runs_of_the_first_version_are_read(tmp_path: Path, circuits: list[Circuit]) -> None:
    before = read_all(saved(tmp_path / "run", circuits).paths[0])
    as_first_written(tmp_path / "run")
    assert all(one.equals(other) for one, other in zip(read_all(tmp_path / "run"), before, strict=True))
    # To write into them is refused, and changes nothing.
    with pytest.raises(HeadwiseError, match="older version"):
        saved(tmp_path / "run", circuits)
    file = tmp_path / "run" / "edges.parquet"
    rows = pq.read_table(file)
    pq.write_table(rows.slice(1), file)
    assert "edges.parquet" in refused(tmp_path / "run")
    (tmp_path / "run" / "prompts.parquet").unlink()
    assert "not finished" in refused(tmp_path / "run")
