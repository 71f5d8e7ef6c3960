"""``headwise families`` as a user runs it, on folders that are right and on folders that are not."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from family_runs import edge, planted_run, prompt_row, write_run
from tiny import tiny

import headwise
from headwise.cli.main import main
from headwise.model.model import Model


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny("llama")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Path:
    path = tmp_path_factory.mktemp("families") / "run"
    planted_run(path, weight_hash=model.weight_hash)
    return path


@pytest.fixture(autouse=True)
def _loaded(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: model)


def test_the_whole_command_writes_tables_a_document_and_a_report(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["families", str(run), "--sample", "3", "--json", "--model", "mine"]) == 0
    document = json.loads(capsys.readouterr().out)
    wanted = {
        "n_prompts",
        "n_wrong",
        "n_families",
        "silhouette",
        "p_value",
        "ami",
        "families",
        "heads",
        "causality",
    }
    assert wanted <= set(document)
    assert (document["n_prompts"], document["n_wrong"], document["n_families"]) == (90, 4, 2)
    assert document["p_value"] == pytest.approx(0.01)
    assert document["ami"]["kind"] == pytest.approx(1)
    assert {"size", "representative", "labels"} <= set(document["families"][0])
    assert {"head", "side", "cosine", "ci"} <= set(document["heads"][0])
    tests = document["causality"]
    assert [t["kind"] for t in tests] == ["signals", "signals", "heads", "heads"]
    for t in tests[:2]:
        assert t["features"] > 0 and t["own"]["prompts"] == 3 and t["chosen_on"] > 20
        for one in t["claims"].values():
            assert set(one) == {"null", "draws", "p", "q", "group", "supported"}
    assert not any(t["features"] or t["claims"] for t in tests[2:])  # both families use the same heads
    out = run / "families"
    names = {path.name for path in out.iterdir()}
    assert names >= {
        "manifest.json",
        "families.json",
        "members.parquet",
        "union.parquet",
        "cuts.parquet",
        "heads.parquet",
        "causality.parquet",
        "report.html",
    }
    members = pq.read_table(out / "members.parquet").to_pylist()
    assert len(members) == 86 and {m["family"] for m in members} == {0, 1}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 2_000_000
    assert "Are they causal for their own?" in page and 'src="http' not in page
    assert len(page) < 6_000_000
    assert json.loads((out / "families.json").read_text())["n_families"] == 2


def test_the_same_command_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert (
            main(
                ["families", str(run), "--out", str(tmp_path / name), "--no-causality", "--distance", "heads"]
            )
            == 0
        )
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert "causality.parquet" not in files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


@pytest.mark.slow
def test_grouped_by_a_label_and_in_words(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["families", str(run), "--out", str(tmp_path / "o"), "--no-causality", "--by", "noise"]) == 0
    said = capsys.readouterr().out
    assert "fall into 2 families" in said and "grouped by noise" in said
    assert max(map(len, said.splitlines())) <= 100 or "report:" in said.splitlines()[-1]
    # an older analysis gives way to a new one
    assert main(["families", str(run), "--out", str(tmp_path / "o"), "--no-causality"]) == 0


@pytest.mark.slow
def test_in_python(run: Path) -> None:
    found = headwise.find_families(run)
    assert found.n_families == 2 and not found.causality
    assert "2 families by clustering" in repr(found)
    # The same heads are joined in both; only the channels differ.
    assert headwise.find_families(run, distance="edges").n_families == 1


def _complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["families", *arguments]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    return said[0]


def test_bad_input_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "is empty" in _complaint(capsys, str(empty))
    assert "does not exist" in _complaint(capsys, str(tmp_path / "nowhere"))
    few = tmp_path / "few"
    rows = [prompt_row(i, {"kind": "a"}, status="traced" if i < 2 else "wrong") for i in range(9)]
    write_run(few, rows, [edge(i, "L0H0", "L1H0", "query", (1,)) for i in range(2)])
    assert "holds 2 circuits of 9 prompts: families need at least 3" in _complaint(
        capsys, str(few), "--no-causality"
    )
    other = tmp_path / "other"
    planted_run(other, 20, weight_hash="f" * 64, model="another")
    assert "two runs of different models" in _complaint(capsys, str(run), str(other))
    assert "this run of circuits is of 'another' (weights ffffffffffff), not of 'tiny-llama'" in _complaint(
        capsys, str(other), "--model", "mine"
    )
    assert "'words' is not one of" in _complaint(capsys, str(run), "--distance", "words")
    assert "no label 'colour'; available labels: kind, noise, name" in _complaint(
        capsys, str(run), "--by", "colour"
    )
    assert "holds another run (circuits, not families)" in _complaint(
        capsys, str(run), "--no-causality", "--out", str(run)
    )


@pytest.mark.parametrize("name", ["owner/model", "gpt2", "another"])
def test_a_run_does_not_send_its_reader_to_the_hub(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headwise.model.loading.load.load", lambda *_, **__: pytest.fail("asked for a model unasked")
    )
    planted_run(tmp_path / "run", 20, model=name)
    said = _complaint(capsys, str(tmp_path / "run"))
    assert f"the run names {name!r}, which is neither a known model nor a folder here" in said
    assert "--model" in said


def test_circuits_that_are_all_alike_are_one_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "alike"
    rows = [prompt_row(i, {"kind": str(i % 2)}) for i in range(30)]
    write_run(path, rows, [edge(i, "L0H0", "L1H0", "query", (1, 2)) for i in range(30)])
    assert main(["families", str(path), "--no-causality", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["n_families"] == 1 and document["ami"] == {"kind": 0.0}
    assert document["heads"] == [] and len(document["families"]) == 1


@pytest.mark.slow
def test_runs_of_one_model_are_read_as_one(run: Path, tmp_path: Path, model: Model) -> None:
    more = planted_run(tmp_path / "more", 40, seed=5, weight_hash=model.weight_hash)
    found = headwise.find_families([run, tmp_path / "more"])
    assert len(found.labels) == 86 + len(more.traced)
    assert found.n_families == 2
