"""The lead of edited copies from two rows of the unembedding: that of the whole vocabulary's logits."""

from __future__ import annotations

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny

from headwise.circuits.counterfactual import leads, outcomes
from headwise.model.edits import Edit, Silence
from headwise.model.stream import split
from headwise.types import AnswerIds


@pytest.mark.parametrize("name", VARIANTS)
def test_a_lead_needs_two_tokens_of_the_vocabulary(name: str) -> None:
    model = tiny(name, torch.float64)
    (ids,) = prompts_of(9)
    plans: list[list[Edit]] = [[], *([Silence(head=head, positions=[6, 8])] for head in model.heads[-3:])]
    clean = split(model, ids).clean_pass(0)
    for answer in (AnswerIds(3, 5), AnswerIds(5, 3), AnswerIds(3, None)):
        slow = [one.lead for one in outcomes(model, ids, plans, answer)]
        assert len({round(one, 9) for one in slow}) == len(plans)
        assert leads(model, ids, plans, answer) == pytest.approx(slow, abs=1e-9)
        assert leads(model, ids, plans, answer, clean=clean) == pytest.approx(slow, abs=1e-9)
    # one copy alone is not packed
    assert leads(model, ids, plans[1:2], AnswerIds(3, 5)) == pytest.approx(
        [outcomes(model, ids, plans[1:2], AnswerIds(3, 5))[0].lead], abs=1e-9
    )
