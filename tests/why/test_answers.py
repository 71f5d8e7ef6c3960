"""Answers of several tokens, and tokens that the model wrote: log-probabilities are the model's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import tiny
from words import worded_model

import headwise
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.tracing.table import log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.why.answers import after_answers, after_writing
from headwise.why.consequence import set_row, without_cell
from headwise.why.explain import explain
from headwise.why.proof import removal_of

IDS = [3, 14, 15, 9, 2, 6]


def _own(model: Model, ids: list[int], answer: list[int]) -> float:
    """Summed log-probability, one untouched pass per token."""
    total = 0.0
    for i, token in enumerate(answer):
        with torch.no_grad():
            logits = model.hf(torch.tensor([[*ids, *answer[:i]]])).logits[0, -1]
        total += float(logits.double().log_softmax(-1)[token])
    return total


def test_an_answer_has_the_models_own_log_probability(variant: str) -> None:
    model = tiny(variant, torch.float64)
    found = after_answers(model, IDS, [5, 8, 9], [5, 8, 30, 31])
    said = found.continued
    assert said is not None and said.answer is not None and said.wrong is not None
    assert said.answer.log_probability == pytest.approx(_own(model, IDS, [5, 8, 9]), rel=1e-7)
    assert said.wrong.log_probability == pytest.approx(_own(model, IDS, [5, 8, 30, 31]), rel=1e-7)
    # They part at their third tokens, so the two before are read.
    assert (found.token_ids, found.answer, found.wrong) == ([*IDS, 5, 8], 9, 30) and said.at == 2
    written = after_writing(model, IDS, 4)
    assert written.continued is not None and written.continued.answer is not None
    tokens = list(written.continued.answer.token_ids)
    assert written.continued.answer.log_probability == pytest.approx(_own(model, IDS, tokens), rel=1e-7)


def test_the_question_is_asked_where_the_answers_part() -> None:
    model = tiny("llama", torch.float64)
    why = explain(model, IDS, answer=[5, 8, 9], wrong=[5, 8, 30], head="L3H1", query=-1, draws=19)
    same = explain(model, [*IDS, 5, 8], answer=9, wrong=30, head="L3H1", query=-1, draws=19)
    assert why.answer == same.answer and why.question.cell == same.question.cell
    assert why.tokens == same.tokens and why.what.log_odds == same.what.log_odds
    assert why.proof.after == same.proof.after
    assert why.continued is not None and why.continued.notice in why.question.notices
    assert same.continued is None and same.to_json()["continued"] is None
    document = why.to_json()["continued"]
    assert document["at"] == 2 and not document["written"]
    assert document["answer"]["log_probability"] == pytest.approx(
        sum(document["answer"]["log_probabilities"])
    )
    # Alone, an answer parts from what the model would say.
    own = list(after_writing(model, IDS, 3).continued.answer.token_ids)  # type: ignore[union-attr]
    other = next(token for token in range(3, 61) if token != own[1])
    found = after_answers(model, IDS, [own[0], other], None)
    assert (found.token_ids, found.answer) == ([*IDS, own[0]], other)
    assert after_answers(model, IDS, own, None).token_ids == IDS  # never: it is asked at the first
    assert after_answers(model, IDS, [7], 8).continued is None


def _edited(model: Model, ids: list[int], answer: list[int], edits: list[Any]) -> float:
    """Summed log-probability with edits made, one pass per token."""
    total = 0.0
    for i, token in enumerate(answer):
        made = [one for one in edits if _last(one) < len(ids) + i]  # what comes after a token cannot reach it
        logits = model.edit([[*ids, *answer[:i]]], made).logits[0, -1]
        total += float(logits.double().log_softmax(-1)[token])
    return total


def _last(edit: Any) -> int:
    return edit.positions if isinstance(edit.positions, int) else max(edit.positions)


@pytest.mark.parametrize("query", [-1, 4])
def test_whole_answers_without_the_cell_and_without_its_cause(variant: str, query: int) -> None:
    model = tiny(variant, torch.float64)
    answer, wrong = [5, 8, 9, 17], [5, 8, 30]
    why = explain(model, IDS, answer=answer, wrong=wrong, head="L2H1", query=query, draws=19)
    assert why.continued is not None and why.continued.answer is not None
    up = PromptWrites(model.split([[*IDS, 5, 8]]), 0)
    table, cause = log_odds_table(up, why.question.cell), why.who.headline
    row = without_cell(table)
    assert row is not None
    for one, tokens in zip(why.consequence.summed, (answer, wrong), strict=True):
        assert one.before == pytest.approx(_own(model, IDS, tokens), rel=1e-7)
        plan = [set_row(up, why.question.cell, row)]
        assert one.path == pytest.approx(_edited(model, IDS, tokens, plan), rel=1e-7)
        assert one.path != pytest.approx(one.before, abs=1e-9)
        if cause is None:
            assert one.after is None
        else:
            edits = removal_of(up, why.question.cell, cause).edits()
            assert one.after == pytest.approx(_edited(model, IDS, tokens, edits), rel=1e-7)
    document = why.to_json()["consequence"]["summed"]
    assert [one["before"] for one in document] == [one.before for one in why.consequence.summed]
    # The whole of a short answer is its one token, whose effect the proof has.
    single = explain(model, [*IDS, 5, 8], answer=9, wrong=[30, 31], head="L2H1", query=-1, draws=19)
    assert single.consequence.path is not None
    assert single.consequence.summed[0].path == pytest.approx(
        single.consequence.path.log_probability, abs=1e-7
    )
    assert explain(model, IDS, answer=5, head="L2H1", draws=19).consequence.summed == ()


def test_a_token_that_the_model_wrote_is_explained() -> None:
    model = tiny("llama", torch.float64)
    written = after_writing(model, IDS, 5).continued
    assert written is not None and written.answer is not None and written.at == 4
    tokens = list(written.answer.token_ids)
    why = explain(model, IDS, generate=5, written=2, head="L3H1", query=-1, draws=19)
    same = explain(model, [*IDS, *tokens[:2]], answer=tokens[2], head="L3H1", query=-1, draws=19)
    assert why.answer.token == tokens[2] and why.answer.text == why.answer.predicted
    assert why.answer == same.answer and why.what.log_odds == same.what.log_odds
    assert "The model wrote" in why.question.notices[0]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"answer": [5, 8], "wrong": [5, 8, 9]}, "begins with .* so the two answers do not part"),
        ({"answer": []}, "names no tokens"),
        ({"answer": [5, 999]}, "answer 999 is not in the vocabulary"),
        ({"generate": 0}, "generate=0 writes nothing"),
        ({"generate": 3, "written": 9}, "9"),
        ({"generate": 3, "answer": 5}, "leave answer= out"),
        ({"written": 2}, "give generate="),
    ],
)
def test_what_cannot_be_asked_is_one_line(request_: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadwiseError, match=said) as error:
        explain(tiny("llama"), IDS, **request_)
    assert "\n" not in str(error.value)


def test_text_goes_on_with_what_was_read() -> None:
    model = worded_model()
    why = headwise.explain(model, "The hat is in Box", answer=" Box A", wrong=" Box B", draws=19)
    assert why.prompt is not None and why.prompt.startswith("The hat is in Box")
    assert why.continued is not None and why.continued.at == 1
    assert len(why.tokens) == len(model.tokens("The hat is in Box")) + 1


@pytest.mark.real
def test_the_default_model_explains_later_tokens(smollm2: Model) -> None:
    why = headwise.explain(smollm2, "The Eiffel Tower is in", generate=4, written=" France", draws=99)
    assert why.prompt == "The Eiffel Tower is in Paris," and why.answer.text == " France"
    assert why.tokens[why.key] in {" Paris", "iffel"}
    parted = headwise.explain(
        smollm2, "The Statue of Liberty is in", answer=" New York City", wrong=" New Jersey", draws=99
    )
    assert (parted.answer.text, parted.answer.wrong_text, parted.tokens[-1]) == (" York", " Jersey", " New")
    assert parted.continued is not None and parted.continued.answer is not None
    ids = smollm2.prompt_ids("The Statue of Liberty is in")
    own = _own(smollm2, ids, list(parted.continued.answer.token_ids))
    assert parted.continued.answer.log_probability == pytest.approx(own, abs=1e-3)
