"""What a cell does: its own write at the output, and the model without it, against attention written out."""

from __future__ import annotations

import pytest
import torch
from tiny import prompts_of, tiny

from headwise.circuits.counterfactual import outcomes
from headwise.model.attend import AttentionCall
from headwise.model.edits import ChangeOutput
from headwise.model.model import Model
from headwise.tracing.seeds import answer_shares
from headwise.tracing.table import log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds, Cell, Component, Head
from headwise.why.consequence import consequence, set_row, without_cell

ANSWER = AnswerIds(7, 11)


def _up(model: Model) -> PromptWrites:
    return PromptWrites(model.split(prompts_of(9)), 0)


def test_the_direct_effect_is_the_cells_share_of_the_lead(variant: str) -> None:
    model = tiny(variant, torch.float64)
    up = _up(model)
    cell = Cell(Head(2, 1), 8, 7)
    found = consequence(up, cell, ANSWER, str)
    row = up.row_of(up.n_layers, Component("head", 2, 1, 7))
    assert found.direct is not None
    assert found.direct.lead == pytest.approx(float(answer_shares(up, 7, 11)[row]), abs=1e-9)
    assert found.direct.answer == pytest.approx(float(answer_shares(up, 7, None)[row]), abs=1e-9)
    values = [one.logit for one in found.raised]
    assert values == sorted(values, reverse=True) and min(values) > 0
    assert all(one.logit < 0 for one in found.lowered)
    shares = {one.token: one.logit for one in (*found.raised, *found.lowered)}
    token = int(found.raised[0].token)
    assert shares[str(token)] == pytest.approx(float(answer_shares(up, token, None)[row]), abs=1e-9)


def test_elsewhere_than_at_the_answer_there_is_no_direct_effect() -> None:
    found = consequence(_up(tiny("llama")), Cell(Head(2, 1), 5, 3), ANSWER, str)
    assert found.direct is None and found.raised


def test_a_row_without_the_cell_is_renormalised_and_run_through_the_model(variant: str) -> None:
    model = tiny(variant, torch.float64)
    up = _up(model)
    cell = Cell(Head(1, 2), 7, 6)
    weights = without_cell(log_odds_table(up, cell))
    assert weights is not None
    row = up.stream.whole_pattern(cell.head, 0, rows=[7])[0]
    expected = row.clone()
    expected[6] = 0
    assert torch.allclose(weights, expected / expected.sum(), atol=1e-12)

    def change(call: AttentionCall, output: torch.Tensor) -> torch.Tensor:
        if call.layer == cell.head.layer:
            value = call.value[0, cell.head.index // (call.query.shape[1] // call.value.shape[1])]
            output[0, 7, cell.head.index] = (weights[:, None] * value).sum(0)
        return output

    ids = up.stream.token_ids[0]
    clean, one, other = outcomes(
        model, ids, [[], [set_row(up, cell, weights)], [ChangeOutput(change=change)]], ANSWER
    )
    assert one.lead == pytest.approx(other.lead, abs=1e-9)
    assert one.probability == pytest.approx(other.probability, abs=1e-9)
    assert one.log_probability == pytest.approx(torch.tensor(one.probability).double().log().item())
    assert abs(one.lead - clean.lead) > 1e-8
    same = outcomes(model, ids, [[set_row(up, cell, row)]], ANSWER)[0]
    assert same.lead == pytest.approx(clean.lead, abs=1e-9)


def test_a_row_that_sees_one_key_has_no_path_without_it() -> None:
    table = log_odds_table(_up(tiny("llama")), Cell(Head(2, 1), 0, 0))
    assert without_cell(table) is None
