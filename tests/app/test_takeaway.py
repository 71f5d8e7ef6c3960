"""Whatever a screen shows can be had without the app: its command runs, its Python prints the same numbers."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from known import TEXT, names_folder
from serving import TAB, Served, served
from toy_answers import answer_lines, small_model

import headwise
from headwise.cli.main import main
from headwise.toy.small_lm import DATA

LINES = answer_lines(6)
PROMPT = LINES[0]["prompt"]
CELL = {"head": "L1H1", "query": 13, "key": 4}


@pytest.fixture(scope="module")
def app() -> Iterator[Served]:
    with served(small_model(), source=str(DATA)) as opened:
        opened.enter()
        yield opened


def taken(app: Served, screen: str, text: str = PROMPT, **more: Any) -> dict[str, str]:
    got = app.ask("POST", "/api/takeaway", body={"screen": screen, "text": text, **more})
    assert got.status == 200, got.data
    return got.data


def ran(python: str) -> tuple[str, dict[str, Any]]:
    """What a script prints, and its names."""
    said, names = io.StringIO(), dict[str, Any]()
    with contextlib.redirect_stdout(said):
        exec(python, names)
    return said.getvalue(), names


def test_a_cell_is_the_command_and_python_of_its_explanation(
    app: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    got = taken(app, "cell", **CELL, draws=49, seed=3)
    why = headwise.explain(small_model(), PROMPT, **CELL, draws=49, seed=3)
    said, names = ran(got["python"])
    assert said.strip() == why.sentence
    assert names["why"].to_json()["controls"] == why.to_json()["controls"]
    words = shlex.split(got["command"])
    assert words[:2] == ["headwise", "explain"]
    assert main([*words[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentence"] == why.sentence


def without_time(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "seconds"}


def test_an_explanation_and_a_walk_are_saved_as_scripts_that_repeat_them(
    app: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt, job, walk = app.read(PROMPT), "0" * 15 + "1", "0" * 15 + "2"
    asked = {"tab": TAB, "job": job, "prompt": prompt["id"], **CELL, "draws": 19, "seed": 4}
    assert app.ask("POST", "/api/explain", body=asked).status == 202
    *_, (_, kind, last) = app.events()
    assert kind == "done"
    said, names = ran(app.ask("GET", f"/api/export/{job}.py").content.decode())
    assert said.strip() == last["document"]["sentence"]
    assert names["why"].to_json()["controls"] == last["document"]["controls"]
    opened = ["L1H1@13<-4"]
    place = {"answer": prompt["answer"][0]["token"], "opened": opened, "root": opened[0]}
    asked = {"tab": TAB, "job": walk, "prompt": prompt["id"], **place}
    document = app.ask("POST", "/api/walk", body=asked).data
    for python in (
        app.ask("GET", f"/api/export/{walk}.py").content.decode(),
        taken(app, "circuit", **place)["python"],
    ):
        _, names = ran(python)
        assert json.loads(json.dumps(names["circuit"].to_json())) == document
    walks: list[dict[str, Any]] = [place, {"opened": ["MLP1@13"]}, {"opened": []}]
    for steps in walks:
        asked = {"tab": TAB, "prompt": prompt["id"], **steps}
        told = without_time(app.ask("POST", "/api/walk", body=asked).data)
        command = shlex.split(taken(app, "circuit", **steps)["command"])
        assert main([*command[1:], "--json"]) == 0
        assert without_time(json.loads(capsys.readouterr().out)) == told


def test_the_bench_is_python_with_the_same_numbers(app: Served) -> None:
    prompt, other = (
        app.read(PROMPT),
        next(one for one in (app.read(line["prompt"]) for line in LINES[1:]) if len(one["tokens"]) == 15),
    )
    edits = [
        {"kind": "remove", "side": "query", "writers": [{"writer": "embedding"}], "dose": 0.5},
        {"kind": "channels", "side": "key", "channels": [0, 3]},
        {"kind": "silence", "head": "L2H0"},
        {"kind": "patch", "head": "L1H1", "position": 13, "source": other["id"]},
    ]
    if len(prompt["tokens"]) != len(other["tokens"]):
        edits.pop()
    plan = {"tab": TAB, "prompt": prompt["id"], **CELL, "edits": edits, "dose": 0.75, "draws": 49}
    seen = app.ask("POST", "/api/edit", body=plan).data
    said, names = ran(taken(app, "cell", **CELL, edits=edits, dose=0.75, draws=49)["python"])
    again = names["seen"].model_dump()
    assert again["after"] == pytest.approx(seen["after"], abs=1e-6)
    assert again["change"] == pytest.approx(seen["change"], abs=1e-6)
    assert [one["p"] for one in again["controls"]] == [one["p"] for one in seen["controls"]]
    assert said.count("\n") == 1


def test_two_prompts_are_the_command_and_python_of_their_difference(
    app: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    other = LINES[1]["prompt"]
    got = taken(app, "compare", other=other, head="L1H1", query=13, draws=49, seed=3, align=[[1, 2], [3, 3]])
    found = headwise.explain_difference(
        small_model(), PROMPT, other, head="L1H1", query=13, draws=49, seed=3, align={1: 2, 3: 3}
    )
    said, _ = ran(got["python"])
    assert said.strip() == found.sentence
    assert main([*shlex.split(got["command"])[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["who"] == found.to_json()["who"]


@pytest.mark.parametrize("screen", ["prompt", "heads", "circuit", "compare", "runs"])
def test_every_screen_has_a_command_and_python_that_run(
    app: Served, screen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got = taken(app, screen, other=LINES[1]["prompt"])
    said, _ = ran(got["python"].replace("'the run folder'", "'.'"))
    assert said.strip()
    for line in got["command"].split("\n"):
        words = shlex.split(line)
        assert words[0] == "headwise"
        if words[1] != "app":
            assert main(words[1:]) == 0
            assert capsys.readouterr().out.strip()


def test_who_reads_a_token_is_taken_along(app: Served, capsys: pytest.CaptureFixture[str]) -> None:
    got = taken(app, "heads", key=4)
    said, names = ran(got["python"])
    assert str(names["seen"].pattern[0, :, :, 4]) in said
    assert main(shlex.split(got["command"])[1:]) == 0
    assert "--to 4" in got["command"] and capsys.readouterr().out.strip()


def test_a_hostile_prompt_stays_one_word_and_one_string(app: Served) -> None:
    text = '-- it\'s "$HOME" `id`; \\ \n--model x'
    got = taken(app, "cell", text, **CELL)
    words = shlex.split(got["command"])
    assert words[-1] == text and words[-2] == "--"
    names: dict[str, Any] = {}
    exec(next(line for line in got["python"].splitlines() if line.startswith("prompt = ")), names)
    assert names["prompt"] == text


def test_names_of_a_run_are_in_the_explanation(tmp_path: Path) -> None:
    folder = names_folder(tmp_path / "names", small_model(), {"L1H1": "named"})
    with served(small_model(), (folder,), source=str(DATA)) as app:
        app.enter()
        (entry,) = app.ask("GET", "/api/state").data["runs"]
        assert entry["fits"] and entry["kind"] == "names"
        job, prompt = "0" * 16, app.read(PROMPT)
        asked = {"tab": TAB, "job": job, "prompt": prompt["id"], **CELL, "draws": 19, "names": 0}
        assert app.ask("POST", "/api/explain", body=asked).status == 202
        *_, (_, kind, last) = app.events()
        assert kind == "done"
        assert last["document"]["names"]["signals"]["L1H1"]["text"] == TEXT
        said, _ = ran(taken(app, "cell", **CELL, names=0)["python"])
        assert TEXT in said
