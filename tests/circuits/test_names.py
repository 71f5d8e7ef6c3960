"""Names of a circuit's heads and signals: on its page, in its file and in every export, never without a verdict."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import networkx
import pytest
from known import TEXT, names_folder, names_known
from rich.console import Console
from tiny import prompts_of, tiny

import headwise
from headwise.basis_names import BasisName
from headwise.circuits.circuit import Circuit
from headwise.circuits.named import best, edge_names, node_names
from headwise.errors import HeadwiseError
from headwise.known_names import channel_id, pole_of, signal_id, writer_id
from headwise.naming.signals import Subject
from headwise.naming.sources import signals_of
from headwise.show.circuits.page import circuit_page
from headwise.show.circuits.terminal import circuit_summary

MODEL = tiny("llama")


@pytest.fixture(scope="module")
def circuit() -> Circuit:
    made = headwise.trace(MODEL, prompts_of(9)[0])
    assert sum(bool(edge.channels) for edge in made.edges) > 4
    return made


@pytest.fixture(scope="module")
def named(circuit: Circuit) -> Circuit:
    """Its signals are named, its heads beyond chance, and one writer is too rare."""
    edge = next(edge for edge in circuit.edges if edge.channels)
    signal = circuit.signal(edge)
    verdicts = {str(one): "named" for one in signals_of([circuit])[0]}
    verdicts |= {str(node.cell.head): "beyond chance" for node in circuit.heads}
    verdicts[writer_id(signal.head, signal.side, signal.writer)] = "too rare"
    return circuit.with_names(names_known(MODEL, verdicts))


def test_every_traced_signal_is_found_as_naming_writes_it(circuit: Circuit) -> None:
    subjects = {str(one) for one in signals_of([circuit])[0]}
    edges = [edge for edge in circuit.edges if edge.channels]
    assert {signal_id(circuit.signal(edge), edge.strengths) for edge in edges} == subjects
    for edge in edges:
        subject = Subject.parse(signal_id(circuit.signal(edge), edge.strengths))
        made = channel_id(circuit.signal(edge).head, edge.channels, pole_of(edge.strengths))
        assert made == str(subject.channel)


def test_the_particular_comes_before_the_general(named: Circuit) -> None:
    edge = next(edge for edge in named.edges if edge.channels)
    found = edge_names(named, edge)
    assert [one.level for one in found.values()] == ["signal", "writer"]
    one = best(found)
    assert one is not None and one.verdict == "named"
    assert edge_names(named, next(edge for edge in named.edges if not edge.channels)) == {}
    head = named.heads[0]
    assert list(node_names(named, head)) == [str(head.cell.head)]


def test_the_file_keeps_them_and_one_without_is_as_before(
    named: Circuit, circuit: Circuit, tmp_path: Path
) -> None:
    named.save(tmp_path / "named.json")
    again = Circuit.load(tmp_path / "named.json", MODEL)
    assert again.to_json() == named.to_json()
    assert again.names is not None and again.names.weight_hash == MODEL.weight_hash
    plain = circuit.to_json()
    assert "names" not in plain and not any("names" in one for one in (*plain["nodes"], *plain["edges"]))
    document = named.to_json()
    listed = document["names"]["signals"]
    assert all(set(one.get("names", ())) <= set(listed) for one in (*document["nodes"], *document["edges"]))
    assert {one["verdict"] for one in listed.values()} == {"named", "beyond chance", "too rare"}


def test_every_export_says_the_verdict_beside_the_name(named: Circuit, tmp_path: Path) -> None:
    named.to_graphml(tmp_path / "c.graphml")
    graph = networkx.read_graphml(tmp_path / "c.graphml")
    fields = [data for *_, data in graph.edges(data=True)] + [data for _, data in graph.nodes(data=True)]
    held = [data for data in fields if "name" in data]
    assert {data["name"] for data in held} == {TEXT}
    assert {data["name_verdict"] for data in held} == {"named", "beyond chance"}
    assert all("name_accuracy" in data and data["name_evidence"] for data in held)
    viewed = named.to_attribution_graph()
    heads = [node for node in viewed["nodes"] if node["feature_type"] == "attention head"]
    assert all(node["clerp"].endswith(f": {TEXT} (beyond chance, accuracy 0.81)") for node in heads)
    links = [link for link in viewed["links"] if link["channels"]]
    assert all(link["name"] == TEXT and link["name_verdict"] == "named" for link in links)


def test_terminal_and_page_show_them(named: Circuit, tmp_path: Path) -> None:
    out = Console(file=io.StringIO(), width=200)
    out.print(circuit_summary(named, 5))
    assert isinstance(out.file, io.StringIO)
    said = out.file.getvalue()
    rows = [line for line in said.splitlines() if TEXT in line]
    assert len(rows) == 5 and all("named" in row for row in rows)
    assert "evidence: not saved" in said
    folder = names_folder(tmp_path / "names", MODEL, {"L3H1": "named"})
    page = circuit_page(named.with_names(folder), tmp_path / "pages")
    assert '"link":"../names"' in page


def test_names_of_another_model_and_of_another_basis(circuit: Circuit) -> None:
    with pytest.raises(HeadwiseError, match="these names are of 'tiny-gpt2'"):
        circuit.with_names(names_known(tiny("gpt2"), {"L3H1": "named"}))
    known = names_known(MODEL, {str(one): "named" for one in signals_of([circuit])[0]})
    other = replace(circuit, basis=BasisName("balanced", "query", "0" * 16)).with_names(known)
    assert other.to_json()["names"]["signals"] == {}
    assert other.to_json()["names"]["other_basis"] == len(known)
