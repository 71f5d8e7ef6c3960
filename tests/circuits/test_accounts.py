"""Accounts through MLPs in a circuit: what they say, and that nothing counts them as causal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import prompts_of, tiny
from tiny_circuits import largest_circuit, two_answers

import headwise
from headwise.circuits.circuit import Circuit, Edge, Node
from headwise.circuits.faithfulness import faithfulness
from headwise.circuits.interventions import choose_edges
from headwise.errors import HeadwiseError
from headwise.show.circuits.terminal import circuit_summary
from headwise.show.kit.terminal import console

MODEL = tiny("llama-biased", torch.float64)


@pytest.fixture(scope="module")
def circuit() -> Circuit:
    return largest_circuit(MODEL)


def _of(model: headwise.Model, **request: Any) -> Circuit:
    prompt = prompts_of(10, seed=2)[0]
    answer, wrong = two_answers(model, prompt)
    return headwise.trace(model, [prompt], answer=answer, wrong=wrong, **request)[0]


def test_without_its_accounts_a_circuit_is_the_one_whose_mlps_are_leaves(variant: str) -> None:
    model = tiny(variant, torch.float64)
    through, leaves = _of(model), _of(model, mlp_depth=0)
    assert leaves.accounts == ()
    causal = through.causal()
    assert causal.accounts == ()
    assert {n.id for n in causal.nodes} == {n.id for n in leaves.nodes}
    assert {e.id: e.channels for e in causal.edges} == {e.id: e.channels for e in leaves.edges}
    assert {e.id: e.weight for e in causal.edges} == pytest.approx({e.id: e.weight for e in leaves.edges})
    assert {c.target for c in causal.counterfactuals} == {c.target for c in leaves.counterfactuals}


def test_an_account_goes_into_an_mlp_that_the_circuit_reads(variant: str) -> None:
    circuit = _of(tiny(variant, torch.float64))
    assert circuit.accounts
    readers: dict[tuple[str, str, str], float] = {}
    for edge in (*circuit.edges, *circuit.accounts):
        key = (edge.source, edge.side, edge.unit)
        readers[key] = readers.get(key, 0.0) + edge.weight
    for edge in circuit.accounts:
        source, target = circuit.node(edge.source), circuit.node(edge.target)
        assert edge.kind == "account" and edge.channels == () and edge.weight >= 0.02
        assert target.kind == "mlp" and source.query == target.query
        assert source.layer < target.layer or (source.layer == target.layer and source.kind != "mlp")
        # Somebody above reads that MLP on this side, for this.
        assert readers[edge.target, edge.side, edge.unit] > 0
    assert {edge.kind for edge in circuit.edges} == {"causal"}
    assert len({edge.id for edge in circuit.accounts}) == len(circuit.accounts)


def test_options_choose_among_the_same_accounts() -> None:
    """The answer's own readers are the same whatever is followed; heads found through MLPs read more of the others."""
    model = tiny("llama", torch.float64)
    every, some = (
        _of(model, mlp_cover=1.0, mlp_least=1e-6, mlp_floor=1e-9, mlp_depth=1),
        _of(model, mlp_depth=1),
    )
    weights = {e.id: e.weight for e in every.accounts}
    to_answer = {e.id: e.weight for e in some.accounts if e.unit == "answer"}
    assert to_answer == pytest.approx({id: weights[id] for id in to_answer})
    assert 0 < len(to_answer) < sum(e.unit == "answer" for e in every.accounts)
    assert len(some.accounts) < len(every.accounts)


def test_the_published_mode_has_no_accounts() -> None:
    assert _of(MODEL, mode="published").accounts == ()


def test_ablation_tests_what_is_causal_alone(circuit: Circuit) -> None:
    causal = circuit.causal()
    assert len(causal.heads) < len(circuit.heads)
    assert faithfulness(MODEL, circuit, draws=2) == faithfulness(MODEL, causal, draws=2)


def test_an_account_is_nothing_to_intervene_on(circuit: Circuit) -> None:
    edge = circuit.accounts[0]
    for name in (edge.id, f"{edge.source} -> {edge.target}", edge.target):
        with pytest.raises(
            HeadwiseError, match="accounts for what an MLP read, which is no signal to take away"
        ):
            choose_edges(circuit, [name])
    assert all(edge.channels for edge in choose_edges(circuit, top=1000))


def test_smaller_circuits_keep_the_accounts_that_lead_to_the_answer(circuit: Circuit) -> None:
    heavy = sorted(edge.weight for edge in circuit.accounts)[len(circuit.accounts) // 2]
    smaller = circuit.filter(min_weight=heavy)
    assert smaller.accounts and all(edge.weight >= heavy for edge in smaller.accounts)
    assert set(smaller.accounts) < set(circuit.accounts)
    assert all(e.side == "key" for e in circuit.filter(sides=["key"]).accounts)
    edge = circuit.accounts[0]
    between = circuit.between(edge.source, edge.target)
    assert edge in between.accounts
    assert edge in circuit.into(edge.target) and edge in circuit.out_of(edge.source)
    pruned = circuit.prune_tokens([0])
    assert all(pruned.node(e.source).kind != "head" or pruned.node(e.source).key for e in pruned.accounts)


def test_an_mlps_own_constants_are_a_node_of_its_layer(tmp_path: Path) -> None:
    circuit = _of(tiny("gpt2", torch.float64))
    own = [n for n in circuit.nodes if n.kind == "offset" and n.layer >= 0]
    assert own
    for node in own:
        assert node.id == f"offset{node.layer}@{node.query}"
        assert {e.target for e in circuit.out_of(node.id)} == {f"MLP{node.layer}@{node.query}"}
    circuit.save(tmp_path / "c.json")
    assert set(Circuit.load(tmp_path / "c.json").accounts) == set(circuit.accounts)


def test_the_terminal_tells_accounts_apart(circuit: Circuit, capsys: pytest.CaptureFixture[str]) -> None:
    console().print(circuit_summary(circuit, 3))
    shown = capsys.readouterr().out
    assert "through MLPs (an account: nothing was removed to find it)" in shown
    assert f"{len(circuit.accounts)} accounts of what MLPs had read" in shown
    console().print(circuit_summary(circuit.causal(), 3))
    assert "account" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mlp_cover": 0}, "mlp_cover=0 is not a share: give a number above 0 and up to 1"),
        ({"mlp_least": 2}, "mlp_least=2 is not a share: give a number above 0 and up to 1"),
        ({"mlp_floor": 0}, "mlp_floor=0 is not a weight: give a number above 0 and up to 1"),
        ({"mlp_depth": -1}, "mlp_depth=-1 is no depth: give 0 or more"),
        ({"mlp_depth": 1.5}, "mlp_depth=1.5 is not a whole number: give 0 or more"),
    ],
)
def test_options_that_mean_nothing_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadwiseError, match=message):
        _of(MODEL, **options)


# --- files ---

EMBEDDING, HEAD, MLP = (
    Node("embedding", -1, None, 3, 3),
    Node("head", 2, 1, 3, 1, 0.5),
    Node("mlp", 2, None, 3, 3),
)
TOP, END = Node("head", 3, 0, 3, 3, 0.6), Node("answer", 4, None, 3, 3)
ELSEWHERE, LATER, OWN = Node("mlp", 1, None, 2, 2), Node("mlp", 3, None, 3, 3), Node("offset", 1, None, 3, 3)
GOOD = Edge(HEAD.id, MLP.id, "query", 0.1, account_of="attention")


@pytest.mark.parametrize(
    ("edge", "message"),
    [
        (
            Edge(HEAD.id, TOP.id, "query", 0.1, account_of="attention"),
            "is an account, but 'L3H0@3<-3' is not an MLP",
        ),
        (Edge(HEAD.id, MLP.id, "query", 0.1, (1,), account_of="attention"), "neither channels nor a signal"),
        (Edge(LATER.id, MLP.id, "query", 0.1, account_of="attention"), "'MLP3@3' is not read by 'MLP2@3'"),
        (Edge(MLP.id, MLP.id, "query", 0.1, account_of="attention"), "'MLP2@3' is not read by 'MLP2@3'"),
        (Edge(OWN.id, MLP.id, "query", 0.1, account_of="attention"), "'offset1@3' is not read by 'MLP2@3'"),
        (Edge(ELSEWHERE.id, MLP.id, "query", 0.1, account_of="attention"), "'MLP1@2' is not at position 3"),
        (GOOD, "is listed twice"),
    ],
)
def test_a_file_with_an_impossible_account_is_refused(tmp_path: Path, edge: Edge, message: str) -> None:
    causal = (Edge(MLP.id, TOP.id, "query", 0.4, (0,)), Edge(TOP.id, END.id, "query", 1.0))

    def made(*accounts: Edge) -> Circuit:
        return Circuit(
            (EMBEDDING, HEAD, MLP, TOP, END, ELSEWHERE, LATER, OWN),
            causal,
            accounts=accounts,
            tokens=tuple("abcd"),
            token_ids=(4, 5, 6, 7),
            weight_hash="0" * 64,
        )

    other_side = Edge(HEAD.id, MLP.id, "key", 0.1, account_of="attention")
    made(GOOD, other_side, Edge(HEAD.id, MLP.id, "query", 0.1, account_of="answer")).save(tmp_path / "c.json")
    with pytest.raises(HeadwiseError, match=message):
        made(GOOD, edge).save(tmp_path / "d.json")
