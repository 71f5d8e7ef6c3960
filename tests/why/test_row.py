"""A whole row at once: parts of every key sum to its log-odds, and each column is the explanation of its cell."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny
from tiny_banks import random_bank

from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.tracing.table import log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Side
from headwise.why.explain import explain
from headwise.why.row import ROWS, RowExplanation, explain_row

IDS = [3, 14, 15, 9, 2, 6, 5, 35, 8]
SIDES: tuple[Side, ...] = ("query", "key")


def _row(model: Model, **request: Any) -> RowExplanation:
    return explain_row(model, IDS, f"L{model.n_layers - 1}H1", **{"query": -1, "least": 0.0, **request})


def test_parts_of_every_key_sum_to_its_log_odds(variant: str) -> None:
    model = tiny(variant, torch.float64)
    found = _row(model)
    call = model.capture(IDS, queries=found.query, want=("pattern",), logits="last")
    pattern = call.pattern[0, model.heads.index(found.head), 0]
    keys = [*found.explained, *found.rest]
    assert not found.rest and sum(key.attention for key in keys) == pytest.approx(1, abs=1e-9)
    for column, key in enumerate(found.explained):
        # From the model's own attention, which knows nothing of logits, writers or the table.
        share = float(pattern[key.key])
        assert key.attention == pytest.approx(share, abs=1e-9)
        assert key.log_odds == pytest.approx(math.log(share / (1 - share) * (len(keys) - 1)), abs=1e-7)
        for side in SIDES:
            assert sum(row.log_odds[column] for row in found.of(side)) == pytest.approx(
                key.log_odds, abs=1e-9
            )
            totals = key.totals[side]
            assert totals.helping + totals.hindering == pytest.approx(key.log_odds, abs=1e-9)
        assert key.error <= key.tolerance


def test_a_column_is_the_explanation_of_its_cell(variant: str) -> None:
    model = tiny(variant, torch.float64)
    found = _row(model)
    up = PromptWrites(model.split(IDS), 0)
    for column, key in enumerate(found.explained):
        table = log_odds_table(up, Cell(found.head, found.query, key.key))
        for side in SIDES:
            one = table.side(side)
            by_name: dict[str, float] = {}
            for row, value in enumerate(
                one.rows.tolist()
            ):  # heads token by token, as a cell's own table has them
                name = one.writer(row).name
                by_name[name] = by_name.get(name, 0.0) + value
            rows = found.of(side)
            assert sum(row.count for row in rows) == len(by_name)
            for row in rows:
                if row.writer is not None:
                    assert row.log_odds[column] == pytest.approx(by_name[row.name], abs=1e-9)
    first = found.explained[0]
    why = explain(model, IDS, head=found.head, query=found.query, key=first.key, draws=19)
    assert (why.what.attention, why.what.logit, why.what.log_odds) == pytest.approx(
        (first.attention, first.logit, first.log_odds), abs=1e-9
    )


def test_the_row_is_that_of_the_cell_that_would_be_asked_about() -> None:
    model = tiny("llama")
    for head in (None, "L2H1"):
        found, why = explain_row(model, IDS, head), explain(model, IDS, head=head, draws=19)
        assert (found.head, found.query, found.because) == (why.head, why.query, why.question.because)


def test_keys_without_a_column_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama", torch.float64)
    whole, few = _row(model), _row(model, top=2)
    assert few.explained == whole.explained[:2] and few.keys == whole.keys
    assert [key.key for key in few.rest] == [key.key for key in whole.explained[2:]]
    assert few.rest_attention == pytest.approx(1 - sum(key.attention for key in few.explained))
    border = whole.explained[3].attention
    assert len(_row(model, least=border).explained) == 4
    assert len(_row(model, least=1.0).explained) == 1  # the most attention always has a column
    monkeypatch.setattr("headwise.why.row.ROWS", 3)
    merged = _row(model)
    assert ROWS > 3
    for side in SIDES:
        *named, others = merged.of(side)
        assert others.writer is None and others.count == len(whole.of(side)) - len(named)
        for column, key in enumerate(merged.explained):
            assert sum(row.log_odds[column] for row in merged.of(side)) == pytest.approx(
                key.log_odds, abs=1e-9
            )
            # Who helps a key most is never among the others, however little attention the key gets.
            assert merged.strongest(column, side)[:2] == whole.strongest(column, side)[:2]


def test_what_cannot_be_explained_is_refused_in_one_line() -> None:
    model = tiny("llama")
    for request, said in (
        ({"query": 0}, "sees one token at position 0, so there is nothing to explain: choose a later query"),
        ({"query": 40}, "40"),
        ({"top": 0}, "top=0 leaves no key to explain: give 1 or more"),
        ({"least": 2}, "least=2 is not an attention: give a number from 0 to 1"),
    ):
        with pytest.raises(HeadwiseError) as refused:
            _row(model, **request)
        assert said in str(refused.value) and "\n" not in str(refused.value)


def test_the_document_has_every_key_and_the_whole_table() -> None:
    found = _row(tiny("gpt2", torch.float64), top=3)
    document = found.to_json()
    assert json.loads(json.dumps(document)) == document
    assert document["schema"] == 1 and document["keys"] == len(IDS)
    assert [key["key"] for key in document["explained"] + document["rest"]] == [
        key.key for key in (*found.explained, *found.rest)
    ]
    for side in SIDES:
        for column, key in enumerate(document["explained"]):
            parts = [row["log_odds"][column] for row in document["who"] if row["side"] == side]
            assert sum(parts) == pytest.approx(key["log_odds"], abs=1e-9)


def test_features_share_every_keys_log_odds(variant: str) -> None:
    model = tiny(variant, torch.float64)
    head = model.heads[-3]
    bank = random_bank(model, head)
    found = explain_row(model, IDS, head, query=-1, least=0.0, features=bank)
    assert found.features and {one.name for one in found.features} == {f.name for f in bank.of(head)}
    for column, key in enumerate(found.explained):
        # The explanation of the cell alone splits it the same way.
        why = explain(model, IDS, head=head, query=found.query, key=key.key, draws=1, features=bank)
        parts = {part.name: part.value for part in why.what.features}
        for one in found.features:
            assert one.log_odds[column] == pytest.approx(parts[one.name], abs=1e-9)
        assert found.unexplained(column) == pytest.approx(why.what.unexplained, abs=1e-9)
        told = found.to_json()["features"]
        total = sum(one["log_odds"][column] for one in told["parts"]) + told["unexplained"][column]
        assert total == pytest.approx(key.log_odds, abs=1e-9)
    assert explain_row(model, IDS, head).to_json()["features"] is None


def test_the_page_has_every_key_and_nothing_of_a_token_acts_on_it(tmp_path: Path) -> None:
    model = tiny("llama")
    head = model.heads[-3]
    found = explain_row(model, IDS, head, query=-1, least=0.0, features=random_bank(model, head))
    strange = "</script><img src=x onerror=alert(1)>"
    hostile = replace(found, tokens=(*found.tokens[:-1], strange), prompt=strange)
    page = hostile.to_html()
    assert "onerror=alert(1)>" not in page.replace("onerror=alert(1)&gt;", "")
    shown = found.save_html(tmp_path / "row.html").read_text()
    assert "Which keys" in shown and "Named features" in shown and "unexplained" in shown
    for key in found.explained:
        assert f"({key.key})" in shown


@pytest.mark.real
def test_the_command_explains_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = "When John and Mary went to the store, John gave a drink to"
    command = ["explain", prompt, "--head", "L22H4", "--query", "-1", "--row", "--top", "3"]
    saved = tmp_path / "row.json"
    main([*command, "--save", str(saved)])
    printed = capsys.readouterr().out
    document = json.loads(saved.read_text())
    assert document["explained"][0]["token"] == " Mary"
    for key in document["explained"]:
        assert key["error"] <= key["tolerance"] and f"{key['attention']:.3f}" in printed
    assert "The 11 other keys get" in printed and "query side" in printed and "key side" in printed
