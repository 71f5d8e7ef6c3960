"""Behaviour against movement over a task: counted by hand, beside its controls, and told in terminal, JSON and page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from toy_answers import small_ioi

import headwise
from headwise.circuits.interventions import choose_edges, intervene
from headwise.circuits.task_effects import PromptEffect, TaskEffects, _judged, intervene_task
from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.show.circuits.task_effects import claim_lines, task_effects_report
from headwise.tasks.answers.types import AnswerSet
from headwise.toy.small_lm import DATA


@pytest.fixture(scope="module")
def small() -> Model:
    return headwise.load(DATA)


@pytest.fixture(scope="module")
def task(small: Model) -> AnswerSet:
    return small_ioi(small, 6, "task effects")


@pytest.fixture(scope="module")
def found(small: Model, task: AnswerSet) -> TaskEffects:
    return intervene_task(small, task, top=3, draws=3)


def test_a_prompt_is_what_intervening_on_it_says(small: Model, task: AnswerSet, found: TaskEffects) -> None:
    one = next(p for p in task.prompts if p.prompt == found.prompts[0].prompt)
    circuit = headwise.trace(small, one.prompt, answer=one.answer_id, wrong=one.wrong_id)
    (effect,) = intervene(small, circuit, [choose_edges(circuit, top=3)], scope="global", draws=3)
    got = found.prompts[0]
    assert got.change == pytest.approx(effect.edited.lead - effect.clean.lead, abs=1e-6)
    assert got.moved == effect.moved and len(effect.control_moved) == 3
    assert got.control_moved == pytest.approx(sum(effect.control_moved) / 3)
    # A change of length m·|x| leaves a cosine of no less than √(1 − m²).
    assert 0 < effect.moved < 1 and effect.cosine >= (1 - effect.moved**2) ** 0.5 - 0.05
    assert len(found.prompts) + found.without == len(task)
    sizes = torch.tensor([abs(p.change) for p in found.prompts])
    assert found.estimates["change"].mean == pytest.approx(float(sizes.mean()), rel=1e-5)


def test_claims_hold_where_edges_do_more_and_not_where_they_only_move_more() -> None:
    def prompt(change: float, control: float, moved: float, control_moved: float) -> PromptEffect:
        return PromptEffect("a", 1, 2.0, change, control, -0.1, 0.0, False, 0.0, moved, control_moved)

    each = torch.arange(10)
    _, strong = _judged([prompt(-1.0, 0.1 + 0.001 * i, 0.05, 0.05) for i in range(10)], each, 0)
    assert strong["behaviour"].supported and strong["per_length"].supported
    assert strong["behaviour"].null == "edges and controls exchanged by prompt"
    _, moved = _judged([prompt(-1.0, 0.1, 0.5, 0.05) for _ in range(10)], each, 0)
    assert moved["behaviour"].supported and not moved["per_length"].supported
    _, alike = _judged([prompt(-0.1, 0.1, 0.05, 0.05) for _ in range(10)], each, 0)
    assert not alike["behaviour"].supported
    # Ten prompts of one wording are one unit.
    _, one = _judged([prompt(-1.0, 0.1, 0.05, 0.05) for _ in range(10)], torch.zeros(10, dtype=torch.long), 0)
    assert one["behaviour"].p == 0.5


def test_two_wordings_are_two_units_however_many_prompts_they_have(small: Model, task: AnswerSet) -> None:
    """Six prompts counted one by one could support a claim: two wordings cannot."""
    labelled = [replace(p, labels={"wording": str(i % 2)}) for i, p in enumerate(task.prompts)]
    found = intervene_task(small, replace(task, prompts=tuple(labelled)), top=1, draws=1)
    assert found.unit == "wording" and found.estimates["change"].clusters == 2
    assert all(one.p >= 0.25 and one.draws == 4 and not one.supported for one in found.claims.values())


def test_terminal_and_page_say_the_same(found: TaskEffects) -> None:
    page = task_effects_report(found).html()
    assert found.estimates["flipped"].low >= 0 and found.estimates["flipped"].high <= 1
    assert "barely moves" in page and "stream moved by" in page
    assert all(
        ("not supported" in line) != one.supported
        for line, one in zip(claim_lines(found), found.claims.values(), strict=True)
    )
    assert json.dumps(found.to_json()) and len(found.to_json()["prompts"]) == len(found.prompts)


def test_the_command_writes_page_and_table(
    task: AnswerSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"prompt": p.prompt, "answer": p.answer, "wrong": p.wrong} for p in task.prompts[:3]]
    file = tmp_path / "task.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    out = tmp_path / "run"
    asked = [
        "intervene",
        "--task",
        str(file),
        "--top",
        "2",
        "--draws",
        "1",
        "--model",
        str(DATA),
        "--out",
        str(out),
    ]
    assert main([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    stored = json.loads((out / "effects.json").read_text())
    assert stored["claims"] == document["claims"] and (out / "report.html").exists()
    assert set(document["claims"]) == {"behaviour", "per_length"}


def test_no_controls_are_refused(small: Model, task: AnswerSet) -> None:
    with pytest.raises(HeadwiseError, match="draws=0"):
        intervene_task(small, task, draws=0)
