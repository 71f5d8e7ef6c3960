"""The bench changes the model as Python does, foresees what the algebra can, and compares with as much of others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from serving import TAB, Served
from toy_answers import answer_lines, small_model

from headwise.model.edits import SetOutput, Silence
from headwise.why.explain import explain
from headwise.why.explanation import Explanation

LINES = answer_lines(6)
PROMPT = LINES[0]["prompt"]


@pytest.fixture(scope="module")
def why() -> Explanation:
    found = explain(small_model(), PROMPT)
    assert found.who.headline is not None
    return found


@pytest.fixture(scope="module")
def prompt(app: Served) -> dict[str, Any]:
    return app.read(PROMPT)


def tried(app: Served, why: Explanation, prompt: dict[str, Any], *edits: dict[str, Any], **more: Any) -> Any:
    cell = {"head": str(why.head), "query": why.query, "key": why.key}
    return app.ask(
        "POST", "/api/edit", body={"tab": TAB, "prompt": prompt["id"], **cell, "edits": edits, **more}
    )


def headline(why: Explanation) -> dict[str, Any]:
    found = why.who.headline
    assert found is not None
    writers = [
        {"writer": one.name, "reads": one.source if one.kind == "head" else None} for one in found.members
    ]
    return {"kind": "remove", "side": found.side, "writers": writers}


def test_the_cause_taken_away_on_the_bench_is_the_proof(
    app: Served, why: Explanation, prompt: dict[str, Any]
) -> None:
    got = tried(app, why, prompt, headline(why)).data
    proof = why.proof
    assert proof.after is not None
    assert got["predicted"] == pytest.approx(proof.predicted, abs=1e-9)
    assert got["after"]["attention"] == pytest.approx(proof.after.attention, abs=1e-6)
    assert got["after"]["lead"] == pytest.approx(proof.after.lead, abs=1e-5)
    assert got["before"]["probability"] == pytest.approx(proof.before.probability, abs=1e-6)
    assert [one["name"] for one in got["controls"]] == [one.name for one in proof.controls]
    for told, control in zip(got["controls"], proof.controls, strict=True):
        assert told["attention_p"] == control.p
        assert told["p"] == control.answer_p
        assert told["attention"]["mean"] == pytest.approx(control.attention.mean, abs=1e-9)


def test_a_silent_head_is_pythons_silent_head(app: Served, why: Explanation, prompt: dict[str, Any]) -> None:
    got = tried(app, why, prompt, {"kind": "silence", "head": str(why.head), "position": why.query}).data
    model = small_model()
    edited = model.edit(
        PROMPT, [Silence(head=why.head, positions=why.query)], heads=why.head, queries=why.query
    )
    chances = edited.logits[0, 0].double().softmax(-1)
    assert got["after"]["probability"] == pytest.approx(float(chances[why.answer.token]), abs=1e-6)
    assert got["predicted"] == pytest.approx(
        why.attention, abs=1e-6
    )  # what it writes cannot change what it reads
    assert got["after"]["attention"] == pytest.approx(why.attention, abs=1e-6)
    top = max(got["top"], key=lambda one: one["after"])
    assert top["after"] == pytest.approx(float(chances.max()), abs=1e-6)
    assert [one["name"] for one in got["controls"]] == ["heads"]
    # Every other head of the layer once, and none again: of so few, one does the most by chance too often.
    assert got["controls"][0]["tried"] == model.n_heads - 1
    assert got["controls"][0]["p"] >= 1 / model.n_heads
    everywhere = tried(app, why, prompt, {"kind": "silence", "head": "L0H0"}).data
    assert everywhere["predicted"] is None  # it reaches the cell through the model


def test_a_cut_cell_is_the_path_effect(app: Served, why: Explanation, prompt: dict[str, Any]) -> None:
    got = tried(app, why, prompt, {"kind": "cut"}).data
    path = why.consequence.path
    assert path is not None
    assert (got["predicted"], got["after"]["attention"]) == (0.0, 0.0)
    assert got["after"]["lead"] == pytest.approx(path.lead, abs=1e-5)


def test_a_head_patched_from_the_same_prompt_changes_nothing(
    app: Served, why: Explanation, prompt: dict[str, Any]
) -> None:
    patch = {"kind": "patch", "head": str(why.head), "position": why.query, "source": prompt["id"]}
    got = tried(app, why, prompt, patch).data
    assert got["change"] == pytest.approx(0, abs=1e-5)
    assert got["claim"]["supported"] is False and got["claim"]["null"]
    others = [app.read(line["prompt"]) for line in LINES[1:]]
    same = next(one for one in others if len(one["tokens"]) == len(prompt["tokens"]))
    got = tried(app, why, prompt, {**patch, "source": same["id"]}).data
    # The same by hand: what the head writes there, put here.
    model = small_model()
    stream = model.split(torch.tensor(same["ids"]))
    row = stream.pattern(why.head.layer, why.query)[why.head.index].double()
    value = row @ stream.layers[why.head.layer].call.value[0, why.head.index // model.anatomy.group].double()
    by_hand = model.edit(PROMPT, [SetOutput(head=why.head, positions=why.query, value=value)], heads=why.head)
    chances = by_hand.logits[0, 0].double().softmax(-1)
    assert got["after"]["probability"] == pytest.approx(float(chances[why.answer.token]), abs=1e-6)


@pytest.mark.parametrize("kind", ["silence", "cut", "patch"])
def test_half_a_change_of_a_head_writes_half_of_both(
    app: Served, why: Explanation, prompt: dict[str, Any], kind: str
) -> None:
    model, head, query = small_model(), why.head, why.query
    others = [app.read(line["prompt"]) for line in LINES[1:]]
    other = next(one for one in others if len(one["tokens"]) == len(prompt["tokens"]))

    def written(ids: Any, key: int | None = None) -> torch.Tensor:
        """What the head writes there, by hand; without a key, if one is given."""
        stream = model.split(torch.tensor(ids))
        row = stream.pattern(head.layer, query)[head.index].double()
        if key is not None:
            row[key] = 0.0
            row /= row.sum()
        return row @ stream.layers[head.layer].call.value[0, head.index // model.anatomy.group].double()

    own = written(prompt["ids"])
    edit, changed = {
        "silence": ({"head": str(head), "position": query}, torch.zeros_like(own)),
        "cut": ({}, written(prompt["ids"], why.key)),
        "patch": ({"head": str(head), "position": query, "source": other["id"]}, written(other["ids"])),
    }[kind]
    half = {"kind": kind, **edit, "dose": 0.5}
    got = tried(app, why, prompt, half).data
    by_hand = model.edit(
        PROMPT, [SetOutput(head=head, positions=query, value=(own + changed) / 2)], heads=head
    )
    chance = float(by_hand.logits[0, 0].double().softmax(-1)[why.answer.token])
    assert got["after"]["probability"] == pytest.approx(chance, abs=1e-6)
    left = why.attention / 2 if kind == "cut" else why.attention
    assert got["predicted"] == pytest.approx(left, abs=1e-6) == got["after"]["attention"]
    none = tried(app, why, prompt, {**half, "dose": 0}).data
    assert none["change"] == pytest.approx(0, abs=1e-6)
    whole = tried(app, why, prompt, {**half, "dose": 1}, half, dose=0.5).data  # of all of it together
    twice = tried(app, why, prompt, half, {**half, "dose": 0.25}).data
    assert whole["after"] == pytest.approx(twice["after"])
    assert tried(app, why, prompt, {**half, "dose": -1}).status == (200 if kind == "silence" else 422)


def test_edits_stack(app: Served, why: Explanation, prompt: dict[str, Any]) -> None:
    one = tried(app, why, prompt, headline(why)).data
    two = tried(app, why, prompt, headline(why), {"kind": "silence", "head": str(why.head)}).data
    assert two["predicted"] == pytest.approx(one["predicted"])
    assert two["after"]["lead"] != pytest.approx(one["after"]["lead"], abs=1e-4)
    assert len(two["controls"]) == 3


@pytest.mark.parametrize(
    ("edits", "line"),
    [
        ([{"kind": "remove", "side": "query", "writers": [{"writer": "MLP99"}]}], "could read"),
        ([{"kind": "remove", "side": "query", "writers": [{"writer": "L0H0"}]}], "say which token"),
        (
            [{"kind": "remove", "side": "query", "writers": [{"writer": "L0H0", "reads": 999}]}],
            "say which token",
        ),
        ([{"kind": "remove", "side": "query", "writers": [{"writer": "nobody"}]}], "nobody"),
        ([{"kind": "silence", "head": "L99H0"}], "L99H0 does not exist"),
        ([{"kind": "silence", "head": "L0H0", "position": 999}], "position 999"),
        ([{"kind": "explode"}], "edits"),
        ([], "edits"),
    ],
)
def test_what_cannot_be_changed_is_one_line(
    app: Served, why: Explanation, prompt: dict[str, Any], edits: list[Any], line: str
) -> None:
    got = tried(app, why, prompt, *edits)
    assert got.status == 422
    assert line in got.data["error"]


def test_prompts_of_other_lengths_are_not_patched_from(
    app: Served, why: Explanation, prompt: dict[str, Any]
) -> None:
    longer = app.read(PROMPT + " " + PROMPT)
    patch = {"kind": "patch", "head": str(why.head), "position": 1, "source": longer["id"]}
    got = tried(app, why, prompt, patch)
    assert got.status == 422 and "a prompt of as many" in got.data["error"]
    assert tried(app, why, prompt, {**patch, "source": "0" * 32}).status == 410
