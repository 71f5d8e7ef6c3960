"""The circuit type: its JSON, smaller circuits, exports, the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import networkx
import pytest
import torch
from tiny import tiny
from tiny_circuits import largest_circuit

import headwise
from headwise.circuits.circuit import Circuit, Edge, Node
from headwise.errors import HeadwiseError
from headwise.model.stream import split
from headwise.show.circuits.page import circuit_page
from headwise.show.circuits.terminal import circuit_summary
from headwise.show.kit.terminal import console
from headwise.tracing.writes import PromptWrites
from headwise.types import Head


@pytest.fixture(scope="module")
def model() -> headwise.Model:
    return tiny("llama-biased", torch.float64)


@pytest.fixture(scope="module")
def circuit(model: headwise.Model) -> Circuit:
    return largest_circuit(model, vectors=True)


def test_the_json_has_the_documented_shape(circuit: Circuit) -> None:
    data = circuit.to_json()
    assert data["schema"] == 1
    assert set(data["model"]) == {"name", "weight_hash"}
    kinds = {"head", "mlp", "embedding", "bias", "offset", "answer"}
    ids = set()
    for node in data["nodes"]:
        assert set(node) == {"id", "kind", "layer", "head", "query", "key", "attention"}
        assert node["kind"] in kinds
        assert isinstance(node["query"], int) and isinstance(node["key"], int)
        if node["kind"] != "head":
            assert node["query"] == node["key"]
        ids.add(node["id"])
    assert len(ids) == len(data["nodes"])
    for edge in data["edges"]:
        assert edge["side"] in ("query", "key")
        assert {edge["source"], edge["target"]} <= ids
        assert all(isinstance(channel, int) for channel in edge["channels"])


def test_edge_signals_sum_to_what_the_counterfactual_removes(model: headwise.Model, circuit: Circuit) -> None:
    target = next(c.target for c in circuit.counterfactuals if c.side == "query")
    node = circuit.node(target)
    edges = circuit.into(target, "query")
    total = torch.tensor([e.signal for e in edges], dtype=torch.float64).sum(0)
    edit = headwise.AddVectors(
        head=headwise.Head(node.layer, node.head or 0), side="query", positions=node.query, value=-total
    )
    got = model.edit(
        [list(circuit.token_ids)], [edit], heads=[edit.head], queries=[node.query], keys=[node.key]
    )
    predicted = next(c.predicted for c in circuit.counterfactuals if (c.target, c.side) == (target, "query"))
    assert got.pattern is not None
    assert float(got.pattern) == pytest.approx(predicted, abs=1e-9)


def test_smaller_circuits(circuit: Circuit) -> None:
    heaviest = sorted((e.weight for e in circuit.edges if e.channels), reverse=True)[5]
    heavy = circuit.filter(min_weight=heaviest)
    assert 0 < len(heavy.edges) < len(circuit.edges)
    assert all(e.weight >= heaviest for e in heavy.edges if e.channels)
    only_key = circuit.filter(sides=("key",))
    assert {e.side for e in only_key.edges if e.channels} <= {"key"}
    no_sink = circuit.prune_tokens([0])
    assert all(n.key != 0 for n in no_sink.heads)
    assert any(n.key == 0 for n in circuit.heads)
    # whatever is left still leads to the answer
    graph = no_sink.to_networkx()
    (answer,) = [n.id for n in no_sink.nodes if n.kind == "answer"]
    assert set(graph) == networkx.ancestors(graph, answer) | {answer}
    start = next(e.source for e in circuit.edges if e.channels)
    between = circuit.between(start, answer)
    whole = circuit.to_networkx()
    expected = (networkx.descendants(whole, start) | {start}) & (networkx.ancestors(whole, answer) | {answer})
    assert {n.id for n in between.nodes} == expected
    with pytest.raises(HeadwiseError, match="'L3H0@99<-0' is not a node"):
        circuit.between("L3H0@99<-0", answer)


def test_exports(circuit: Circuit, tmp_path: Path) -> None:
    graph = circuit.to_networkx()
    assert circuit.accounts and graph.number_of_edges() == len(circuit.edges) + len(circuit.accounts)
    kinds = [data["kind"] for *_, data in graph.edges(data=True)]
    assert kinds.count("account") == len(circuit.accounts)
    path = tmp_path / "c.graphml"
    replace(circuit, tokens=("\x00", *circuit.tokens[1:])).to_graphml(path)
    again = networkx.read_graphml(path)
    assert set(again) == set(graph)
    edge = next(e for e in circuit.edges if len(e.channels) > 0)
    data = again.get_edge_data(edge.source, edge.target)
    found = [d for d in data.values() if d["side"] == edge.side] if again.is_multigraph() else [data]
    assert found[0]["channels"] == " ".join(map(str, edge.channels))
    exported = json.loads(json.dumps(circuit.to_attribution_graph()))
    assert {"metadata", "qParams", "nodes", "links", "qk_tracing_results"} <= set(exported)
    ids = {n["node_id"] for n in exported["nodes"]}
    assert all({link["source"], link["target"]} <= ids for link in exported["links"])
    for target, result in exported["qk_tracing_results"].items():
        listed = {e["node_id"] for side in ("query", "key") for e in result[side]}
        assert listed == {e.source for e in circuit.into(target)}


def test_the_page_holds_hostile_prompts_safely() -> None:
    evil = "</script><script>alert(1)</script>"
    circuit = Circuit(
        (Node("embedding", -1, None, 0, 0), Node("answer", 2, None, 0, 0)),
        (Edge("embedding@0", "answer@0", "query", 1.0),),
        tokens=(evil,),
        prompt=evil,
        answer=evil,
    )
    page = circuit_page(circuit)
    assert evil not in page
    assert page.count("</script>") == 2
    assert not re.search(r"\{\{\w+\}\}", page)  # no place of the template is left unfilled
    for outside in ("http://", "https://"):
        assert outside not in page.replace("http://www.w3.org/", "")  # names of elements
    assert evil not in circuit._repr_html_()


def test_tables_print_tokens_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    circuit = Circuit(
        (Node("embedding", -1, None, 0, 0), Node("head", 1, 0, 0, 0, 0.5), Node("answer", 2, None, 0, 0)),
        (Edge("embedding@0", "L1H0@0<-0", "key", 0.2, (3,)), Edge("L1H0@0<-0", "answer@0", "query", 1.0)),
        tokens=("[bold]x",),
        answer="[/]",
    )
    console().print(circuit_summary(circuit, 5))
    shown = capsys.readouterr().out
    assert "embedding '[bold]x'" in shown
    assert "answer '[/]'" in shown


@pytest.mark.parametrize("name", ["llama-biased", "gpt2", "qwen3", "gemma2"])
def test_strengths_are_the_signal(name: str) -> None:
    """Along the channels' unit directions a signal is its strengths; in head space it is what an edit removes."""
    model = tiny(name, torch.float64)
    circuit = largest_circuit(model, vectors=True)
    up = PromptWrites(split(model, list(circuit.token_ids)), 0)
    seen = 0
    for edge in circuit.edges:
        if edge.signal is None:
            assert edge.strengths == ()
            continue
        node = circuit.node(edge.target)
        query_map, key_map = up.maps_at(Head(node.layer, node.head or 0), node.query)
        units = up.bases.layer(node.layer).units(edge.side)[node.head, list(edge.channels)]
        strengths, chosen = torch.tensor(edge.strengths, dtype=torch.float64) * units, list(edge.channels)
        rebuilt = strengths @ key_map[chosen] if edge.side == "query" else query_map[:, chosen] @ strengths
        torch.testing.assert_close(
            rebuilt, torch.tensor(edge.signal, dtype=torch.float64), atol=1e-9, rtol=1e-6
        )
        seen += 1
    assert seen >= 3
