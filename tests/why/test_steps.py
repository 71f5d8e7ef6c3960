"""An explanation step by step: the same document, known earlier; and it can be stopped in the middle."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import prompts_of, tiny

from headwise import jsons
from headwise.model.forward import Stopped, stoppable
from headwise.why.document import FIELDS
from headwise.why.explain import explain, explain_steps
from headwise.why.question import PromptReading

IDS = prompts_of(11)[0]
NAMES = ["question", "place", "table", "predicted", "observed", "controls", "consequence", "done"]
LAST = {"transfer", "features", "names", "sentence", "seconds"}
"""What is known only when everything is."""


def without_time(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "seconds": 0}


def test_the_steps_grow_into_the_document() -> None:
    steps = explain_steps(tiny("llama"), IDS, draws=40)
    seen: list[str] = []
    known: dict[str, Any] = {}
    whole: dict[str, Any] = {}
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            why = end.value
            break
        seen.append(step.name)
        whole = step.part()
        known |= whole if step.name != "done" else {}
    assert seen == NAMES
    assert jsons.dumps(whole) == jsons.dumps(why.to_json())
    assert tuple(whole) == FIELDS
    assert set(whole) - set(known) == LAST
    assert {name: whole[name] for name in known} == known


def test_controls_are_foreseen_before_the_model_is_run_again() -> None:
    parts = {step.name: step.part() for step in explain_steps(tiny("llama"), IDS, draws=40)}
    before, after = parts["predicted"]["controls"], parts["controls"]["controls"]
    assert before and all(one["answer"] is None for one in before)
    assert all(one["answer"] is not None for one in after)
    assert [one["attention"] for one in before] == [one["attention"] for one in after]


@pytest.mark.parametrize("variant", ["llama", "gpt2", "gemma2"])
def test_a_prompt_that_was_read_once_gives_the_same_explanations(variant: str) -> None:
    model = tiny(variant)
    read = PromptReading.of(model, IDS)
    for head in ("L1H0", "L3H1"):
        *_, last = explain_steps(model, read, head=head, draws=20)
        assert without_time(last.part()) == without_time(explain(model, IDS, head=head, draws=20).to_json())


def test_a_pass_of_the_proof_ends_when_nobody_wants_it() -> None:
    """Within the pass, layer by layer: not only once it is over."""
    model = tiny("llama")
    steps = explain_steps(model, PromptReading.of(model, IDS), draws=20)
    stop, asked = False, 0

    def unwanted() -> bool:
        nonlocal asked
        asked += 1
        return stop and asked > 2

    with stoppable(unwanted):
        names = [next(steps).name for _ in range(4)]
        assert names[-1] == "predicted"
        stop, asked = True, 0
        with pytest.raises(Stopped):
            next(steps)
    assert asked == 3  # two layers were let through
    explain(model, IDS, draws=20)  # and the model is as it was
