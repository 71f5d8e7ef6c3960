"""Explanations of the default model: what is found, and what is said of questions that are odd or ambiguous."""

from __future__ import annotations

import pytest
from tiny import prompts_of

import headwise
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.types import Side
from headwise.why.explanation import Explanation

IDS = prompts_of(11)[0]
SIDES: tuple[Side, ...] = ("query", "key")
PROMPT = "When John and Mary went to the store, John gave a drink to"


@pytest.fixture(scope="module")
def ioi(smollm2: Model) -> Explanation:
    return headwise.explain(smollm2, PROMPT, wrong=" John")


@pytest.mark.real
def test_the_question_is_found_from_the_answer(ioi: Explanation, smollm2: Model) -> None:
    assert ioi.answer.text == " Mary"
    assert ioi.query == len(ioi.tokens) - 1
    assert ioi.key != ioi.query
    assert str(ioi.head) in ioi.question.because
    assert len(ioi.question.runners_up) == 4
    scores = [runner.score for runner in ioi.question.runners_up]
    assert scores == sorted(scores, reverse=True)
    without = headwise.explain(smollm2, PROMPT)
    assert ioi.tokens[without.key] == " Mary"


@pytest.mark.real
def test_the_cause_is_what_it_is_said_to_be_on_the_default_model(ioi: Explanation) -> None:
    assert ioi.proof.error < 1e-5
    cause, after = ioi.who.headline, ioi.proof.after
    assert cause is not None and after is not None
    assert after.attention < ioi.who.threshold < ioi.attention
    assert [control.name for control in ioi.proof.controls] == ["channels", "writers", "directions"]
    assert all(control.attention.draws == 999 for control in ioi.proof.controls)
    assert ioi.verdict.specific.said
    assert after.lead < ioi.proof.before.lead - 1
    assert "instead of 0.71" in ioi.sentence
    assert "falls from 4.6" in ioi.sentence
    # It reads ' John' for what it is, and lowers it.
    assert ioi.place.reason == "content"
    assert ioi.consequence.lowered[0].token == " John"
    assert ioi.consequence.direct is not None and ioi.consequence.direct.lead > 2
    assert ioi.consequence.path is not None and ioi.consequence.path.lead < ioi.proof.before.lead - 2


@pytest.mark.real
def test_what_is_odd_about_a_question_is_said_of_real_prompts(smollm2: Model) -> None:
    space = headwise.explain(smollm2, "12 + 7 =", draws=19)
    assert space.answer.text == " "
    assert [said.split()[0] for said in space.question.notices] == ["The", "No"]
    assert "is only a space or a new line" in space.question.notices[0]
    unloved = headwise.explain(smollm2, PROMPT, answer=" John", draws=19)
    assert "The model does not prefer ' John': ' Mary' leads by" in unloved.question.notices[0]
    assert headwise.explain(smollm2, PROMPT, draws=19).question.notices == ()


@pytest.mark.real
def test_brackets_are_measured_by_their_probability(smollm2: Model) -> None:
    """Both contenders close the bracket: a lead over the other one would call this head useless."""
    why = headwise.explain(smollm2, "The list (apples, pears [green ones only", draws=19)
    assert str(why.head) == "L26H6" and why.tokens[why.key] == " ["
    assert why.answer.measured_by == "log_probability"
    assert "the probability of '],' falls from" in why.sentence


@pytest.mark.real
def test_two_tokens_before_a_prompt_leave_it_a_circuit(smollm2: Model) -> None:
    circuit = headwise.trace(smollm2, "Well. " + PROMPT, answer=" Mary", wrong=" John")
    assert "L23H3" in {node.name for node in circuit.nodes} and circuit.edges
    assert all("of the answer passes" in note for note in circuit.notes)


@pytest.mark.real
def test_ambiguous_tokens_are_listed(smollm2: Model) -> None:
    with pytest.raises(HeadwiseError, match=r"^key ' John' occurs at positions 1 and 9: pass one of them$"):
        headwise.explain(smollm2, PROMPT, head="L23H3", key=" John")
    with pytest.raises(HeadwiseError, match=r"^key 'Bob' is not in the prompt"):
        headwise.explain(smollm2, PROMPT, head="L23H3", key="Bob")
