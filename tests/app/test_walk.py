"""The circuit over the wire: as far as it was opened, what Python walks and traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx
import pytest
from serving import TAB, Served, served
from toy_answers import answer_lines, small_model

from headwise.circuits.trace import trace
from headwise.survey.collect import trace_many
from headwise.toy.small_lm import DATA

PROMPT = answer_lines(6)[0]["prompt"]


@pytest.fixture(scope="module")
def prompt(app: Served) -> dict[str, Any]:
    return app.read(PROMPT)


def walked(app: Served, of: dict[str, Any], *opened: str, **more: Any) -> Any:
    return app.ask("POST", "/api/walk", body={"tab": TAB, "prompt": of["id"], "opened": list(opened), **more})


def test_a_walk_that_opens_everything_is_the_traced_circuit(app: Served, prompt: dict[str, Any]) -> None:
    circuit = trace(small_model(), PROMPT, mlp_depth=99, influence=0)
    document = circuit.to_json()
    first = walked(app, prompt).data
    assert first["kind"] == document["kind"] and first["prompt"] == PROMPT
    assert {edge["target"] for edge in first["edges"]} == {
        edge["target"] for edge in document["edges"] if edge["unit"] == "answer" and edge["kind"] == "causal"
    }
    opened = {edge["target"] for edge in document["edges"] if not edge["target"].startswith("answer@")}
    whole = walked(app, prompt, *opened).data
    assert [node["id"] for node in whole["nodes"]] == [node["id"] for node in document["nodes"]]
    told = {
        (edge["source"], edge["target"], edge["side"], edge["kind"], edge["unit"]): edge
        for edge in whole["edges"]
    }
    assert len(told) == len(document["edges"])
    for edge in document["edges"]:
        mine = told[edge["source"], edge["target"], edge["side"], edge["kind"], edge["unit"]]
        assert mine["weight"] == pytest.approx(edge["weight"], abs=1e-6)
        assert mine["channels"] == edge["channels"]
    assert whole["counterfactuals"] and len(whole["counterfactuals"]) == len(document["counterfactuals"])


def test_a_walk_takes_the_answer_that_it_is_given(app: Served, prompt: dict[str, Any]) -> None:
    second = prompt["answer"][1]["token"]
    got = walked(app, prompt, answer=prompt["answer"][0]["token"], wrong=second).data
    assert got["wrong"] == second
    assert got["difference"] == pytest.approx(
        trace(small_model(), PROMPT, answer=prompt["answer"][0]["token"], wrong=second).difference, abs=1e-5
    )


@pytest.mark.parametrize(
    ("asked", "status", "line"),
    [
        ({"opened": ["L99H0@1<-0"]}, 422, "L99H0"),
        ({"opened": ["<script>"]}, 422, "cannot be opened"),
        ({"opened": ["MLP0@999"]}, 422, "is not there"),
        ({"opened": ["MLP0@1"] * 401}, 422, "opened"),
        ({"opened": [5]}, 422, "opened"),
        ({"root": "L1H0@0<-5"}, 422, "no cell"),
        ({"answer": "not one token at all"}, 422, "answer"),
        ({"prompt": "0" * 32}, 410, "no longer in memory"),
    ],
)
def test_what_cannot_be_walked_is_one_line(
    app: Served, prompt: dict[str, Any], asked: dict[str, Any], status: int, line: str
) -> None:
    got = walked(app, prompt, **asked)
    assert got.status == status and line in got.data["error"]


def test_a_walk_is_saved_as_its_document_its_page_and_as_graphml(app: Served, prompt: dict[str, Any]) -> None:
    job = "abcd" * 4
    document = walked(app, prompt, "L1H1@13<-4", job=job).data
    assert walked(app, prompt, job=job).status == 422  # a name is used once
    assert app.ask("GET", f"/api/export/{job}.json").data == document
    page = app.ask("GET", f"/api/export/{job}.html")
    assert page.headers["content-type"] == "application/octet-stream" and b"<script" in page.content
    graph = networkx.parse_graphml(app.ask("GET", f"/api/export/{job}.graphml").content.decode())
    assert set(graph.nodes) == {node["id"] for node in document["nodes"]}
    told = sorted((edge["source"], edge["target"], edge["weight"]) for edge in document["edges"])
    assert sorted((a, b, data["weight"]) for a, b, data in graph.edges(data=True)) == told
    refused = app.ask("GET", f"/api/export/{job}.exe")
    assert refused.status == 404 and refused.data["hint"] == "take json, html, graphml or py"


def test_a_circuit_of_a_run_is_saved_too(tmp_path: Path) -> None:
    circuit = trace(small_model(), PROMPT)
    circuit.save(tmp_path / "circuit.json")
    with served(small_model(), (tmp_path,), source=str(DATA)) as app:
        app.enter()
        document = app.ask("GET", "/api/runs/0/circuits/0").data
        assert app.ask("GET", "/api/runs/0/circuits/0.json").data == document
        graph = networkx.parse_graphml(app.ask("GET", "/api/runs/0/circuits/0.graphml").content.decode())
        assert len(graph.nodes) == len(document["nodes"])
        python = app.ask("GET", "/api/runs/0/circuits/0.py").content.decode()
        again = repeated(python)
        for part in ("nodes", "edges", "counterfactuals", "answer_id", "wrong_id"):
            assert again[part] == document[part]


def repeated(python: str) -> Any:
    """The document that a script makes."""
    names: dict[str, Any] = {}
    exec(python, names)
    return json.loads(json.dumps(names["circuit"].to_json()))


def test_a_circuit_of_many_is_saved_as_a_script_with_the_runs_settings(tmp_path: Path) -> None:
    lines = tmp_path / "answers.jsonl"
    lines.write_text("".join(json.dumps(one) + "\n" for one in answer_lines(3)))
    trace_many(small_model(), lines, out=tmp_path / "run", mode="published", tau=0.2)
    with served(small_model(), (tmp_path / "run",), source=str(DATA)) as app:
        app.enter()
        document = app.ask("GET", "/api/runs/0/circuits/1").data
        assert document["edges"]
        python = app.ask("GET", "/api/runs/0/circuits/1.py").content.decode()
        assert "mode='published', tau=0.2" in python
        again = repeated(python)
        assert {one["id"] for one in again["nodes"]} == {one["id"] for one in document["nodes"]}
        ends = ("source", "target", "side", "channels")
        mine, told = (
            sorted((*(str(one[end]) for end in ends), one["weight"]) for one in of["edges"])
            for of in (again, document)
        )
        assert [one[:-1] for one in mine] == [one[:-1] for one in told]
        assert [one[-1] for one in mine] == pytest.approx([one[-1] for one in told], abs=1e-5)


def test_a_circuit_of_a_probability_has_no_script(tmp_path: Path) -> None:
    trace(small_model(), PROMPT, top_k=2).save(tmp_path / "circuit.json")
    with served(small_model(), (tmp_path,)) as app:
        app.enter()
        refused = app.ask("GET", "/api/runs/0/circuits/0.py")
        assert refused.status == 404 and refused.data["hint"] == "take json, html or graphml"
