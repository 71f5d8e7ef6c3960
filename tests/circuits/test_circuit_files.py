"""Circuit files: what was saved is what is loaded, and nothing else is loaded at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing import NO_FILES, damaged, ends_well, line_is_fit, mutated
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import tiny
from tiny_circuits import largest_circuit

import headwise
from headwise.circuits.circuit import ABSOLUTE, Circuit, Edge, Node
from headwise.circuits.faithfulness import faithfulness
from headwise.circuits.interventions import intervene
from headwise.errors import HeadwiseError

MODEL = tiny("llama-biased", torch.float64)
WHOLE = largest_circuit(MODEL, vectors=True)
INNER = next(e for e in WHOLE.edges if e.channels)
SMALL = WHOLE.between(INNER.source, INNER.target)
"""A few nodes with signals and accounts: enough to have every field, small enough that changes hit each of them."""


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.json"


def inner(data: dict[str, Any]) -> dict[str, Any]:
    """The first edge between components."""
    return next(e for e in data["edges"] if e["channels"])


def head(data: dict[str, Any]) -> dict[str, Any]:
    return next(n for n in data["nodes"] if n["kind"] == "head")


def test_files_are_byte_stable_and_complete(path: Path, tmp_path: Path) -> None:
    second = tmp_path / "b.json"
    WHOLE.save(path)
    loaded = Circuit.load(path, MODEL)
    loaded.save(second)
    assert path.read_bytes() == second.read_bytes()
    assert set(loaded.nodes) == set(WHOLE.nodes)
    assert {e.id: (e, e.signal) for e in loaded.edges} == {e.id: (e, e.signal) for e in WHOLE.edges}
    assert WHOLE.accounts and {e.id: e for e in loaded.accounts} == {e.id: e for e in WHOLE.accounts}
    bare = {"nodes": (), "edges": (), "accounts": ()}
    assert replace(loaded, **bare) == replace(WHOLE, **bare)


def test_a_file_of_the_first_release_is_read(path: Path) -> None:
    """It had no strengths, difference, top or start yet, and no accounts."""
    data = WHOLE.causal().to_json()
    del data["difference"], data["top"], data["start"]
    for edge in data["edges"]:
        del edge["strengths"], edge["kind"], edge["unit"]
    path.write_bytes(as_json(data))
    loaded = Circuit.load(path, MODEL)
    assert {e.id: e.unit for e in loaded.edges} == {e.id: e.unit for e in WHOLE.causal().edges}
    assert loaded.accounts == () and {e.kind for e in loaded.edges} == {"causal"}
    assert loaded.difference is None and loaded.edges[0].strengths == ()
    assert loaded.start == 0


def test_a_circuit_keeps_where_its_prompt_began(path: Path) -> None:
    moved = replace(WHOLE, start=54)
    moved.save(path)
    assert Circuit.load(path, MODEL).start == 54
    replace(WHOLE, start=55).save(path)
    with pytest.raises(HeadwiseError, match="start=55 and 10 tokens pass the model's context of 64"):
        Circuit.load(path, MODEL)


NOT_A_SHAPE: list[tuple[Change, str]] = [
    (lambda d: d.update(schema=2), "has schema 2, this headwise reads up to 1: upgrade"),
    (lambda d: d.update(schema=None), "has schema null"),
    (lambda d: d.update(schema=True), "has schema true"),
    (lambda d: d.update(schema=0), "has schema 0, this headwise reads up to 1: trace it again"),
    (
        lambda d: d.pop("kind"),
        "is not a circuit: give a file that Circuit.save or `headwise trace --save FILE` wrote",
    ),
    (lambda d: d.pop("nodes"), "the field 'nodes' is missing: trace it again"),
    (lambda d: d["model"].pop("weight_hash"), "the field 'model.weight_hash' is missing"),
    (lambda d: d["model"].update(weight_hash=""), "model.weight_hash is '', not 64 hexadecimal digits"),
    (lambda d: d["model"].update(weight_hash=None), "model.weight_hash is null, not text"),
    (lambda d: d["edges"][0].update(source="L9H9@0<-0"), "'L9H9@0<-0' is not one of the nodes"),
    (lambda d: inner(d).update(side="junk"), "side is 'junk', not 'query' or 'key'"),
    (lambda d: inner(d).update(channels=[-1]), r"channels\[0\] is -1, which is less than 0"),
    (lambda d: inner(d).update(channels=[0.5]), r"channels\[0\] is 0.5, not a whole number"),
    (lambda d: inner(d).update(channels=[1, 1, 1]), "channel 1 is listed twice"),
    (lambda d: inner(d).update(channels="1"), "channels is '1', not a list"),
    (lambda d: inner(d).update(channels=[]), "strengths for 0 channels"),
    (lambda d: inner(d).update(channels=[], strengths=[]), "has no channels into"),
    (lambda d: inner(d).update(weight="heavy"), "weight is 'heavy', not a number"),
    (lambda d: inner(d).update(onerror="x"), r"unknown field 'edges\[\d+\].onerror'"),
    (lambda d: d["edges"].append(inner(d)), "is listed twice"),
    (lambda d: d["nodes"].append(head(d)), "is listed twice"),
    (lambda d: head(d).update(layer=-1), "layer is -1, which no node of kind 'head' has"),
    (lambda d: head(d).update(head=None), "head is null"),
    (lambda d: head(d).update(head=-1), "head is -1, which is less than 0"),
    (lambda d: head(d).update(query=-1), "query is -1, which is less than 0"),
    (lambda d: head(d).update(key=99), "the id should be 'L"),
    (lambda d: head(d).update(kind="sink"), "kind is 'sink', not 'head'"),
    (lambda d: head(d).update(attention=7), "attention is 7, which is more than 1.001"),
    (lambda d: d.update(start=-1), "start is -1, which is less than 0"),
    (lambda d: d.update(start=1.5), "start is 1.5, not a whole number"),
    (lambda d: d.update(answer_id=-1), "answer_id is -1, which is less than 0"),
    (lambda d: d.update(mode="fast"), "mode is 'fast', not 'exact' or 'published'"),
    (lambda d: d.update(token_ids=[]), "token_ids is empty"),
    (lambda d: d.update(tokens=d["tokens"][1:]), "there are 9 tokens for 10 token_ids"),
    (lambda d: d.update(tokens=d["tokens"][:1], token_ids=d["token_ids"][:1]), "is outside the prompt"),
    (lambda d: d.update(seconds=-1), "seconds is -1, which is less than 0"),
]


@pytest.mark.parametrize(("change", "message"), NOT_A_SHAPE)
def test_a_file_that_is_no_circuit_is_refused_in_one_line(path: Path, change: Change, message: str) -> None:
    data = copy.deepcopy(WHOLE.to_json())
    change(data)
    path.write_bytes(as_json(data))
    with pytest.raises(HeadwiseError, match=message) as error:
        Circuit.load(path)
    line_is_fit(str(error.value))


def moved(data: dict[str, Any], name: str, value: int) -> None:
    """A head at another place, with everything that names it."""
    node = head(data)
    old = node["id"]
    node[name] = value
    node["id"] = Node("head", node["layer"], node["head"], node["query"], node["key"]).id
    for edge in data["edges"]:
        for end in ("source", "target"):
            edge[end] = node["id"] if edge[end] == old else edge[end]
    data["edges"] = [e for e in data["edges"] if e["target"] != node["id"] and e["source"] != node["id"]]


NOT_THIS_MODEL: list[tuple[Change, str]] = [
    (
        lambda d: d["model"].update(weight_hash="0" * 64),
        r"is of 'tiny-llama-biased' \(weights 000000000000\), not of",
    ),
    (
        lambda d: moved(d, "head", 99),
        r"node 'L\dH99@.*' is not in 'tiny-llama-biased', which has 4 layers of 4 heads",
    ),
    (lambda d: moved(d, "layer", 4), r"node 'L4H.*' is not in"),
    (lambda d: inner(d).update(channels=[99], strengths=[0.0]), "has channel 99; a head has channels 0 to"),
    (lambda d: inner(d).update(signal=[0.0]), "has 1 numbers, but d_head is"),
    (lambda d: d.update(answer_id=10_000), "answer_id 10000 is not among the model's"),
    (
        lambda d: d["token_ids"].__setitem__(0, 10_000),
        "token 10000 at position 0 of the prompt is not in the model's",
    ),
]


@pytest.mark.parametrize(("change", "message"), NOT_THIS_MODEL)
def test_a_circuit_that_does_not_fit_the_model_is_refused(path: Path, change: Change, message: str) -> None:
    data = copy.deepcopy(WHOLE.to_json())
    change(data)
    path.write_bytes(as_json(data))
    assert Circuit.load(path).nodes  # the file alone cannot tell
    with pytest.raises(HeadwiseError, match=message) as error:
        Circuit.load(path, MODEL)
    line_is_fit(str(error.value))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda d: swap(d["token_ids"], 1, 3),
            r"token_ids are not those of the prompt \(from position 1 on\)",
        ),
        (lambda d: swap(d["tokens"], 1, 3), r"tokens are not those of token_ids \(from position 1 on\)"),
        (lambda d: d.update(answer_id=d["wrong_id"]), "answer is 'A', but answer_id [0-9]+ is 'B': trace it"),
        (lambda d: d.update(wrong="A"), "wrong is 'A', but wrong_id [0-9]+ is 'B'"),
    ],
)
def test_words_and_token_ids_are_held_against_each_other(path: Path, change: Change, line: str) -> None:
    from words import worded_model

    model = worded_model()
    prompt = "The jam is in Box A . The pen is in Box B . The jam is in Box"
    circuit = headwise.trace(model, prompt, answer="A", wrong="B")
    circuit.save(path)
    assert Circuit.load(path, model).token_ids == circuit.token_ids
    several = headwise.trace(model, prompt, top_k=3)
    several.save(path)
    assert Circuit.load(path, model).answer == several.answer
    data = circuit.to_json()
    change(data)
    path.write_bytes(as_json(data))
    with pytest.raises(HeadwiseError, match=line):
        Circuit.load(path, model)


def swap(values: list[Any], first: int, second: int) -> None:
    values[first], values[second] = values[second], values[first]


@pytest.mark.parametrize("content", NO_FILES)
def test_bytes_that_are_no_circuit_are_one_line(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(HeadwiseError, match="is not a circuit") as error:
        Circuit.load(path)
    line_is_fit(str(error.value))


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent.json", "a\0b"):
        with pytest.raises(HeadwiseError, match="cannot read"):
            Circuit.load(place)


def normal(data: dict[str, Any]) -> dict[str, Any]:
    """A document in the order and with the defaults that saving gives it."""
    data = {"difference": None, "top": None, "start": 0, **data}
    data["basis"] = data.get("basis") or ABSOLUTE.to_json()
    data["nodes"] = sorted(data["nodes"], key=lambda n: n["id"])
    data["edges"] = sorted(
        ({"strengths": [], "signal": None, "kind": "causal", **e, "unit": unit(e)} for e in data["edges"]),
        key=lambda e: (e["source"], e["target"], e["side"], e["unit"]),
    )
    return data


def unit(edge: dict[str, Any]) -> str:
    return edge.get("unit") or ("answer" if edge["target"].startswith("answer@") else "attention")


def same_or_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for model in (None, MODEL):
        loaded = ends_well("circuit files", partial(Circuit.load, path, model))
        if loaded is not None:
            assert normal(loaded.to_json()) == normal(json.loads(content))


quick = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@quick
@given(document=mutated(SMALL.to_json()))
def test_a_changed_file_is_loaded_as_it_is_or_refused(tmp_path: Path, document: Any) -> None:
    same_or_refused(tmp_path / "c.json", as_json(document))


@quick
@given(content=damaged(as_json(SMALL.to_json())))
def test_a_damaged_file_is_loaded_as_it_is_or_refused(tmp_path: Path, content: bytes) -> None:
    same_or_refused(tmp_path / "c.json", content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_hash": ""}, "model.weight_hash is '', not 64 hexadecimal digits"),
        ({"token_ids": ()}, "token_ids is empty"),
        ({"edges": (replace(INNER, weight=float("nan")),)}, r"edges\[0\].weight is null, not a number"),
        ({"edges": (replace(INNER, side="x"),)}, r"edges\[0\].side is 'x'"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(path: Path, change: dict[str, Any], message: str) -> None:
    path.write_text("the earlier file")
    with pytest.raises(HeadwiseError, match=f"this circuit cannot be saved: {message}"):
        replace(WHOLE, **change).save(path)
    assert path.read_text() == "the earlier file" and [*path.parent.iterdir()] == [path]


def test_numbers_that_are_not_finite_are_saved_as_unknown_where_they_may_be(path: Path) -> None:
    replace(WHOLE, difference=float("inf")).save(path)
    assert Circuit.load(path).difference is None


BAD_EDGES = [
    (replace(INNER, channels=(-1,)), "has channel -1; a head has channels 0 to"),
    (replace(INNER, channels=(0.5,)), "has channel 0.5"),  # pyright: ignore[reportArgumentType]
    (replace(INNER, channels=(1, 1)), "has one channel twice"),
    (replace(INNER, channels=(99,)), "has channel 99"),
    (replace(INNER, side="junk"), "side 'junk' of an edge is neither"),  # pyright: ignore[reportArgumentType]
    (Edge("nobody", INNER.target, "key", 1.0, (0,)), "names 'nobody', which is not one of its nodes"),
]


@pytest.mark.parametrize(("edge", "message"), BAD_EDGES)
def test_edges_made_by_hand_are_held_against_the_model(edge: Edge, message: str) -> None:
    with pytest.raises(HeadwiseError, match=message):
        intervene(MODEL, WHOLE, [[edge]], draws=1)
    with pytest.raises(HeadwiseError, match=message):
        faithfulness(MODEL, replace(WHOLE, edges=(edge,)), draws=1)


def test_circuits_of_other_or_unknown_weights_are_not_used() -> None:
    other = tiny("llama-biased", torch.float64, seed=5)
    for use in (lambda m, c: intervene(m, c, [[INNER]], draws=1), lambda m, c: faithfulness(m, c, draws=1)):
        with pytest.raises(HeadwiseError, match="this circuit is of 'tiny-llama-biased'"):
            use(other, WHOLE)
        with pytest.raises(HeadwiseError, match=r"\(weights unknown\)"):
            use(MODEL, replace(WHOLE, weight_hash=""))


@given(names=st.lists(st.text(), min_size=4, max_size=4))
@quick
def test_graphml_can_be_parsed_whatever_the_texts_are(tmp_path: Path, names: list[str]) -> None:
    import xml.etree.ElementTree as tree

    model, mode, answer, token = names
    file = tmp_path / "c.graphml"
    tokens = (token + "\x00\x1b\ud800\ufffe", *SMALL.tokens[1:])
    replace(
        SMALL, model=model + "\x0b", mode=mode + "\x01", answer=answer + "\x08", tokens=tokens
    ).to_graphml(file)
    assert tree.parse(file).getroot().tag.endswith("graphml")


def test_a_file_in_another_order_is_the_same_circuit(path: Path, tmp_path: Path) -> None:
    WHOLE.save(path)
    data = json.loads(path.read_bytes())
    data["nodes"].reverse()
    data["edges"].reverse()
    other = tmp_path / "other.json"
    other.write_bytes(as_json(data))
    assert Circuit.load(other, MODEL) == Circuit.load(path, MODEL)
