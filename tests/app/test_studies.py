"""Studies begun in the app: processes of their own that stop, continue, and lose nothing when the app is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import Served, served
from toy_answers import answer_lines, small_model

from headwise.app import wire_runs as wire
from headwise.app.studies import Studies
from headwise.circuits.trace import trace
from headwise.errors import HeadwiseError

PROMPT = answer_lines(3)[0]["prompt"]
SINKS = {"kind": "sinks", "prompts": 60}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model where another process can load it."""
    made = tmp_path_factory.mktemp("model")
    model = small_model()
    model.hf.save_pretrained(made)
    model.tokenizer.save_pretrained(made)
    return made


def until(holds: Callable[[], Any], seconds: float = 90) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def entry(app: Served, name: str) -> dict[str, Any]:
    found = [one for one in app.ask("GET", "/api/runs").data["runs"] if one["study"]]
    return next(one for one in found if one["study"]["id"] == name)


def begun(app: Served, study: dict[str, Any]) -> str:
    got = app.ask("POST", "/api/studies", body={"study": study})
    assert got.status == 202, got.content
    return got.data["id"]


@pytest.mark.slow
def test_a_whole_circuit_is_traced_by_a_process_of_its_own(folder: Path, tmp_path: Path) -> None:
    with served(small_model(), studies=tmp_path / "studies", source=str(folder)) as app:
        app.enter()
        name = begun(app, {"kind": "trace", "text": PROMPT})
        assert entry(app, name)["study"]["state"] == "running"
        until(lambda: entry(app, name)["study"]["state"] == "finished")
        found = entry(app, name)
        assert found["entry"]["pages"] == ["circuit.html"]
        got = app.ask("GET", f"/api/runs/{found['entry']['index']}/circuits/0").data
        wanted = trace(small_model(), PROMPT).to_json()
        assert [one["id"] for one in got["nodes"]] == [one["id"] for one in wanted["nodes"]]
        assert len(got["edges"]) == len(wanted["edges"]) and got["prompt"] == PROMPT


@pytest.mark.slow
def test_a_study_is_stopped_and_continued(folder: Path, tmp_path: Path) -> None:
    with served(small_model(), studies=tmp_path, source=str(folder)) as app:
        app.enter()
        name = begun(app, SINKS)
        assert app.ask("DELETE", f"/api/studies/{name}").data["state"] == "stopped"
        assert entry(app, name)["study"]["state"] == "stopped"
        assert app.ask("POST", f"/api/studies/{name}", body={}).data["state"] == "running"
        until(lambda: entry(app, name)["study"]["state"] == "finished")
        found = entry(app, name)
        assert found["entry"]["kind"] == "sinks" and found["entry"]["pages"] == ["report.html"]
        assert {"sinks", "heads"} <= {one["name"] for one in found["tables"]}
        table = app.ask("GET", f"/api/runs/{found['entry']['index']}/tables/heads?sort=head").data
        assert table["matching"] == table["total"] > 0
        # what is finished is not begun again
        assert app.ask("POST", f"/api/studies/{name}", body={}).data["state"] == "finished"


@pytest.mark.slow
def test_an_app_that_is_killed_loses_nothing_and_continues_the_study(folder: Path, tmp_path: Path) -> None:
    studies = tmp_path / "studies"

    def opened() -> tuple[subprocess.Popen[bytes], Served]:
        command = ["app", "--model", str(folder), "--studies", str(studies), "--no-browser"]
        process = subprocess.Popen(
            [sys.executable, "-m", "headwise.cli.main", *command], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        app = Served(found[0], session=None)  # type: ignore[arg-type]
        app.enter()
        return process, app

    process, app = opened()
    name = begun(app, SINKS)
    children = until(lambda: _children(process.pid))
    until(lambda: (studies / name / "run" / "manifest.json").exists())
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(map(_alive, children)), 20)  # nothing works on unseen
    manifest = json.loads((studies / name / "run" / "manifest.json").read_text())
    again, app = opened()
    try:
        found = entry(app, name)["study"]
        assert found["state"] == "stopped" or "files" in manifest
        app.ask("POST", f"/api/studies/{name}", body={})
        until(lambda: entry(app, name)["study"]["state"] == "finished")
    finally:
        again.terminate()
        again.wait()
    whole = tmp_path / "whole"
    asked = ["sinks", "--prompts", "60", "--seed", "0", "--model", str(folder), "--out", str(whole), "-q"]
    command = [sys.executable, "-m", "headwise.cli.main", *asked]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    run = studies / name / "run"
    assert (run / "sinks.json").read_bytes() == (whole / "sinks.json").read_bytes()
    assert (run / "result.safetensors").read_bytes() == (whole / "result.safetensors").read_bytes()


def _children(process: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{process}/stat").exists() or (
        Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    )


# --- what a folder may say -------------------------------------------------------------------------------------------


def left(folder: Path, asked: Any, name: str = "20260101-000000-sinks") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "study.json").write_text(asked if isinstance(asked, str) else json.dumps(asked))


@pytest.mark.parametrize(
    "asked",
    [
        "not json",
        {"kind": "rm", "runs": ["/"]},
        {"kind": "sinks", "prompts": 60, "model": "http://evil.example"},
        {"kind": "circuits", "task": "/etc/passwd"},
        {"kind": "circuits", "task": "--help"},
        {"kind": "name", "source": "/etc/passwd"},
        {"kind": "name", "source": "--out=/tmp/x"},
        {"kind": "families", "runs": []},
    ],
)
def test_a_folder_with_strange_studies_is_left_alone(tmp_path: Path, asked: Any) -> None:
    left(tmp_path, asked)
    left(tmp_path, SINKS, "../../strange"[6:])
    assert [one.id for one in Studies(tmp_path, None)] == []


def test_a_study_that_was_left_is_found_and_reads_only_folders_of_the_app(tmp_path: Path) -> None:
    left(tmp_path, SINKS)
    left(tmp_path, {"kind": "families", "runs": [str(tmp_path / "elsewhere")]}, "20260101-000001-families")
    with served(small_model(), studies=tmp_path) as app:
        app.enter()
        states = [one["study"]["state"] for one in app.ask("GET", "/api/runs").data["runs"]]
        assert states == ["stopped", "stopped"]
        got = app.ask("POST", "/api/studies/20260101-000001-families", body={})
        assert got.status == 422 and "not among the run folders" in got.data["error"]
        asked = {"study": {"kind": "families", "runs": ["--out=/tmp/x"]}}
        assert app.ask("POST", "/api/studies", body=asked).status == 422
        assert app.ask("POST", "/api/studies/../x", body={}).status in (404, 422)
        assert app.ask("DELETE", "/api/studies/nothing").status == 422


def test_a_study_says_how_far_it_is(tmp_path: Path) -> None:
    left(tmp_path, SINKS)
    log = tmp_path / "20260101-000000-sinks" / "log.txt"
    log.write_text(
        "headwise: attention: 3 of 60 prompts, 20 s left\nheadwise: firings: 12 of 24 prompts\n\x1b[2Jx\n"
    )
    (study,) = Studies(tmp_path, None)
    told = study.entry()
    assert (told.stage, told.done, told.total, told.left) == ("firings", 12, 24, None)
    log.write_bytes(b"\xff\x00" * 5000)
    assert study.entry().total is None


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(HeadwiseError, match="cannot be written"):
        Studies(tmp_path / "file" / "studies", None).begin(wire.SinksStudy(kind="sinks"))
