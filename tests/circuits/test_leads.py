"""What becomes of edited copies, in one pass that leaves the unembedding for later: that of a pass of its own each."""

from __future__ import annotations

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny

from headwise.circuits.counterfactual import leads, outcomes, outcomes_and_leads
from headwise.model.edits import Edit, Silence
from headwise.model.stream import split
from headwise.types import AnswerIds, Cell


@pytest.mark.parametrize("name", VARIANTS)
def test_outcomes_and_leads_of_one_pass_are_those_of_passes_of_their_own(name: str) -> None:
    model = tiny(name, torch.float64)
    (ids,) = prompts_of(9)
    plans: list[list[Edit]] = [[], *([Silence(head=head, positions=[6, 8])] for head in model.heads[-3:])]
    cell = Cell(model.heads[-1], 8, 2)
    alone = [
        model.edit(ids, plan, heads=[cell.head], queries=[8], want=("pattern",), logits="last")
        for plan in plans
    ]
    clean = split(model, ids).clean_pass(0)
    for answer in (AnswerIds(3, 5), AnswerIds(5, 3), AnswerIds(3, None)):
        lead = [float(answer.difference(one.logits[0, 0])) for one in alone]
        assert len({round(one, 9) for one in lead}) == len(plans)
        likely = [float(one.logits[0, 0].softmax(-1)[answer.token]) for one in alone]
        seen = [float(one.pattern[0, 0, 0, 2]) for one in alone]
        for known in (None, clean):
            assert leads(model, ids, plans, answer, clean=known) == pytest.approx(lead, abs=1e-9)
            for cut in (0, 1, 2, len(plans)):
                made, reached = outcomes_and_leads(
                    model, ids, plans[:cut], plans[cut:], answer, [cell], clean=known
                )
                assert [one.lead for one in made] + reached == pytest.approx(lead, abs=1e-9)
                assert [one.probability for one in made] == pytest.approx(likely[:cut], abs=1e-9)
                assert [one.attention for one in made] == pytest.approx(seen[:cut], abs=1e-9)
        # one copy alone is not packed
        assert leads(model, ids, plans[1:2], answer) == pytest.approx(lead[1:2], abs=1e-9)
        assert [one.lead for one in outcomes(model, ids, plans[2:3], answer)] == pytest.approx(
            lead[2:3], abs=1e-9
        )
