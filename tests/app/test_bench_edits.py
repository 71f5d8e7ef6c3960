"""Signals, channels, features, swaps, edges and doses on the bench are those of Python, and are foreseen by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from serving import TAB, Served, served
from tiny_banks import random_bank
from toy_answers import answer_lines, small_model

import headwise
from headwise.circuits.interventions import Action, Scope
from headwise.contrast.bank import FeatureBank
from headwise.model.edits import RemoveWithin, SwapWithin
from headwise.why.explanation import Explanation
from headwise.why.what import features_here

LINE = answer_lines(6)[0]
PROMPT = LINE["prompt"]


@pytest.fixture(scope="module")
def bank() -> FeatureBank:
    return random_bank(small_model(), headwise.explain(small_model(), PROMPT, draws=1).head)


@pytest.fixture(scope="module")
def why(bank: FeatureBank) -> Explanation:
    return headwise.explain(small_model(), PROMPT, features=bank)


@pytest.fixture(scope="module")
def app(bank: FeatureBank, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bank")
    bank.save(folder)
    with served(small_model(), (folder,)) as opened:
        opened.enter()
        yield opened


@pytest.fixture(scope="module")
def prompt(app: Served) -> dict[str, Any]:
    return app.read(PROMPT)


def tried(app: Served, why: Explanation, prompt: dict[str, Any], *edits: dict[str, Any], **more: Any) -> Any:
    cell = {"head": str(why.head), "query": why.query, "key": why.key}
    plan = {"tab": TAB, "prompt": prompt["id"], **cell, "edits": edits, "features": [0], **more}
    got = app.ask("POST", "/api/edit", body=plan)
    assert got.status == 200, got.data
    return got.data


def chance(why: Explanation, edits: list[Any]) -> tuple[float, float]:
    """The cell's attention and the answer's probability in Python's own edited pass."""
    made = small_model().edit(PROMPT, edits, heads=why.head, queries=why.query)
    chances = made.logits[0, 0].double().softmax(-1)
    return float(made.pattern[0, 0, 0, why.key]), float(chances[why.answer.token])


def test_the_signals_of_the_cause_have_the_explanations_numbers(
    app: Served, why: Explanation, prompt: dict[str, Any]
) -> None:
    finer = why.proof.signals
    assert finer is not None
    found = [one.signal for one in why.who.signals[finer.side].by_writer()]
    signals = [
        {
            "writer": one.writer.name,
            "reads": one.writer.source if one.writer.kind == "head" else None,
            "channels": one.channels,
        }
        for one in found
    ]
    got = tried(app, why, prompt, {"kind": "signals", "side": finer.side, "signals": signals})
    assert got["predicted"] == pytest.approx(finer.after, abs=1e-6)
    assert got["after"]["attention"] == pytest.approx(finer.after, abs=1e-5)
    assert [one["name"] for one in got["controls"]] == [one.name for one in finer.controls]
    for told, control in zip(got["controls"], finer.controls, strict=True):
        assert told["attention_p"] == pytest.approx(control.p, abs=0.002)
        assert told["attention"]["mean"] == pytest.approx(control.attention.mean, abs=1e-5)


@pytest.mark.parametrize("side", ["query", "key"])
def test_all_channels_together_leave_an_even_row(
    app: Served, why: Explanation, prompt: dict[str, Any], side: str
) -> None:
    every = {"kind": "channels", "side": side, "channels": list(range(small_model().d_head))}
    got = tried(app, why, prompt, every)
    seen = why.what.keys
    assert got["predicted"] == pytest.approx(1 / seen, abs=1e-5)
    assert got["after"]["attention"] == pytest.approx(1 / seen, abs=1e-5)
    some = tried(app, why, prompt, {**every, "channels": [0, 1]})
    assert some["predicted"] == pytest.approx(some["after"]["attention"], abs=1e-5)
    # Nobody in particular wrote a channel: there are no other writers to exchange for them.
    assert [one["name"] for one in some["controls"]] == ["channels", "directions"]


def test_a_named_feature_is_the_explanations_test(
    app: Served, why: Explanation, prompt: dict[str, Any]
) -> None:
    tests = {(one.name, one.kind): one for one in why.proof.features}
    assert {kind for _, kind in tests} == {"ablation", "swap"}
    rival = next(
        one.key for one in why.what.rivals if one.key != 0
    )  # the first token is what heads rest on here
    for (name, kind), test in tests.items():
        edit = (
            {"kind": "feature", "side": "query", "feature": name}
            if kind == "ablation"
            else {"kind": "swap", "other": rival, "feature": name}
        )
        got = tried(app, why, prompt, edit)
        assert got["predicted"] == pytest.approx(test.predicted, abs=1e-9)
        assert got["after"]["attention"] == pytest.approx(test.observed.attention, abs=1e-6)
        assert got["after"]["lead"] == pytest.approx(test.observed.lead, abs=1e-5)
        (control,) = got["controls"]
        assert (control["name"], control["draws"]) == ("subspaces", len(test.controls))
        assert control["attention"]["mean"] == pytest.approx(sum(test.controls) / len(test.controls))


def test_a_dose_is_that_of_pythons_edits(
    app: Served, why: Explanation, prompt: dict[str, Any], bank: FeatureBank
) -> None:
    up = app.session.kept(prompt["id"]).read.up
    feature = features_here([bank], up, why.question.cell)[0]
    other = next(one.key for one in why.what.rivals)
    half = [
        RemoveWithin(head=why.head, side="query", subspace=feature.query, positions=why.query, dose=0.5),
        SwapWithin(head=why.head, first=why.key, second=other, dose=0.25, seen_by=why.query),
    ]
    plan = [
        {"kind": "feature", "side": "query", "feature": feature.name, "dose": 1.0},
        {"kind": "swap", "other": other, "dose": 0.5},
    ]
    got = tried(app, why, prompt, *plan, dose=0.5)
    attention, probability = chance(why, half)
    assert got["predicted"] == pytest.approx(attention, abs=1e-5)
    assert got["after"]["attention"] == pytest.approx(attention, abs=1e-5)
    assert got["after"]["probability"] == pytest.approx(probability, abs=1e-5)
    assert [one["name"] for one in got["controls"]] == ["directions"]  # of query and keys at once
    assert tried(app, why, prompt, *plan, dose=0.0)["change"] == pytest.approx(0, abs=1e-5)


def test_less_of_the_cause_takes_less_and_more_of_it_puts_more_in(
    app: Served, why: Explanation, prompt: dict[str, Any]
) -> None:
    cause = why.who.headline
    assert cause is not None
    writers = [
        {"writer": one.name, "reads": one.source if one.kind == "head" else None} for one in cause.members
    ]
    edit = {"kind": "remove", "side": cause.side, "writers": writers}
    left = []
    for dose in (-1.0, 0.0, 0.5, 1.0):
        got = tried(app, why, prompt, {**edit, "dose": dose})
        assert got["predicted"] == pytest.approx(got["after"]["attention"], abs=1e-5)
        left.append(got["predicted"])
        assert all(0 < one["attention_p"] <= 1 for one in got["controls"])
    assert left == sorted(left, reverse=True)
    assert left[1] == pytest.approx(why.attention, abs=1e-6)


def test_both_sides_at_once_are_foreseen(app: Served, why: Explanation, prompt: dict[str, Any]) -> None:
    edits = [
        {"kind": "remove", "side": side, "writers": [{"writer": "embedding"}], "dose": 0.5}
        for side in ("query", "key")
    ]
    got = tried(app, why, prompt, *edits)
    assert got["predicted"] == pytest.approx(got["after"]["attention"], abs=1e-5)
    assert [one["name"] for one in got["controls"]] == ["directions"]


def test_an_edge_is_the_intervention_of_a_circuit(
    app: Served, why: Explanation, prompt: dict[str, Any]
) -> None:
    model = small_model()
    answers = {"answer": LINE["answer"], "wrong": LINE["wrong"]}
    circuit = headwise.trace(model, PROMPT, **answers)
    edge = next(
        one for one in circuit.edges if one.channels and circuit.node(one.target).cell.head.layer == 1
    )
    cell, signal = circuit.node(edge.target).cell, circuit.signal(edge)
    asked = {
        "kind": "edge",
        "head": str(cell.head),
        "query": cell.query,
        "key": cell.key,
        "side": edge.side,
        "signal": {
            "writer": signal.writer.name,
            "reads": signal.writer.source if signal.writer.kind == "head" else None,
            "channels": signal.channels,
        },
    }
    actions: tuple[tuple[Action, float], ...] = (("remove", 1.0), ("boost", -1.0))
    scopes: tuple[Scope, ...] = ("local", "global")
    for scope in scopes:
        for action, dose in actions:
            (effect,) = headwise.intervene(model, circuit, [[edge]], scope=scope, action=action, draws=1)
            got = tried(
                app,
                why,
                prompt,
                {**asked, "scope": scope, "dose": dose},
                head=str(cell.head),
                query=cell.query,
                key=cell.key,
                **answers,
            )
            assert got["after"]["attention"] == pytest.approx(effect.edited.attention, abs=1e-5)
            assert got["after"]["lead"] == pytest.approx(effect.edited.lead, abs=1e-4)
            assert (got["predicted"] is None) == (scope == "global")
    # Watched from a cell above, it reaches it through the model.
    watched = max(model.heads)
    assert watched.layer > cell.head.layer
    got = tried(app, why, prompt, asked, head=str(watched))
    assert got["predicted"] is None
    assert [one["name"] for one in got["controls"]] == ["edges"]


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        ({"kind": "channels", "side": "query", "channels": [9999]}, "channel 9999 is not there"),
        ({"kind": "feature", "side": "query", "feature": "nothing"}, "has no feature 'nothing'"),
        ({"kind": "swap", "other": 999}, "position 999 is not another token"),
        ({"kind": "swap", "other": 1, "dose": 2}, "dose"),
        ({"kind": "remove", "side": "query", "writers": [{"writer": "embedding"}], "dose": -2}, "dose"),
        ({"kind": "signals", "side": "query", "signals": [{"writer": "embedding"}]}, "channels"),
        (
            {
                "kind": "edge",
                "head": "L0H0",
                "query": 999,
                "key": 0,
                "side": "key",
                "signal": {"writer": "embedding", "channels": [0]},
            },
            "no cell of a prompt",
        ),
    ],
)
def test_what_cannot_be_changed_is_one_line(
    app: Served, why: Explanation, prompt: dict[str, Any], edit: dict[str, Any], line: str
) -> None:
    cell = {"head": str(why.head), "query": why.query, "key": why.key}
    plan = {"tab": TAB, "prompt": prompt["id"], **cell, "edits": [edit], "features": [0]}
    got = app.ask("POST", "/api/edit", body=plan)
    assert got.status == 422 and line in got.data["error"] and "\n" not in got.data["error"]


def test_a_head_that_no_bank_has_is_explained_and_told_the_heads_that_they_have(
    app: Served, why: Explanation, prompt: dict[str, Any]
) -> None:
    other = next(head for head in small_model().heads if head != why.head)
    asked = {"tab": TAB, "prompt": prompt["id"], "draws": 19, "features": [0]}
    told = {}
    for job, head in (("c" * 16, other), ("d" * 16, why.head)):
        after = app.session.events.tab(TAB).last
        assert app.ask("POST", "/api/explain", body={**asked, "job": job, "head": str(head)}).status == 202
        told[head] = [(kind, data) for _, kind, data in app.events(after=after)]
    parts = {head: [data for _, data in of if data.get("step") == "features"] for head, of in told.items()}
    (refused,) = (data["part"]["refused"] for data in parts[other])
    assert refused["error"].startswith(f"{other} has no features in the bank; it has those of {why.head}")
    assert refused["choices"] == [str(why.head)] and parts[why.head] == []
    assert [of[-1][0] for of in told.values()] == ["done", "done"]
