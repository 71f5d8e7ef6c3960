"""Two prompts: differences sum exactly, and signals put in are what the other prompt's writers wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny

import headwise
from headwise.circuits.counterfactual import edited_attention
from headwise.circuits.patching import OtherRun
from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.tracing.causes import attention
from headwise.tracing.table import log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.types import Signal
from headwise.why.pair.explain import explain_difference
from headwise.why.pair.paired import PairedSide, alignment
from headwise.why.pair.patch import log_odds_of
from headwise.why.pair.result import PromptDifference

HERE = [3, 14, 15, 9, 2, 6, 5, 35, 8]
THERE = [40, 3, 14, 33, 9, 2, 6, 5, 35, 8]
PROMPT = "When John and Mary went to the store, John gave a drink to"
OTHER = "When John and Mary went to the store, Tom gave a drink to"


def _found(model: Model, other: list[int] = THERE, **request: Any) -> PromptDifference:
    return explain_difference(model, HERE, other, draws=39, **request)


def test_differences_sum_to_that_of_the_log_odds(variant: str) -> None:
    model = tiny(variant, torch.float64)
    found = _found(model)
    here, there = found.here, found.there
    for one in (here, there):
        assert log_odds_of(one.attention, one.keys) == pytest.approx(one.log_odds, abs=1e-9)
    assert (there.cell.query, there.cell.key) == (here.cell.query + 1, here.cell.key + 1)
    total = here.log_odds - there.log_odds
    assert found.error < 1e-9
    # The whole table, from tables that know nothing of one another.
    tables = (
        log_odds_table(PromptWrites(model.split(HERE), 0), here.cell),
        log_odds_table(PromptWrites(model.split(THERE), 0), there.cell),
    )
    document = found.to_json()
    for side in ("query", "key"):
        paired = PairedSide.of(*tables, side, found.alignment)
        assert float(paired.differences.sum()) == pytest.approx(total, abs=1e-9)
        for column, table in enumerate(tables):  # every writer of either prompt is in one pair
            rows = paired.pairs[:, column]
            assert sorted(rows[rows >= 0].tolist()) == list(range(len(table.side(side))))
        rows = [row for row in document["who"] if row["side"] == side]
        for word, whole in (("here", here.log_odds), ("there", there.log_odds), ("difference", total)):
            assert sum(row[word] for row in rows) == pytest.approx(whole, abs=1e-9)
        for row in rows:
            assert sum(part["difference"] for part in row["channels"]) == pytest.approx(
                row["difference"], abs=1e-9
            )
            if row["through"]:
                assert sum(part["difference"] for part in row["through"]) == pytest.approx(
                    row["difference"], abs=1e-9
                )
    assert sum(part["difference"] for part in document["what"]) == pytest.approx(total, abs=1e-9)
    assert json.loads(json.dumps(document)) == document


def test_signals_put_in_are_what_the_other_prompts_writers_wrote(variant: str) -> None:
    model = tiny(variant, torch.float64)
    found = _found(model, [*HERE[:3], 33, *HERE[4:]])  # every writer has one that stands for it
    if found.patch is None or found.back is None or found.side is None:
        return
    ups = [PromptWrites(model.split(ids), 0) for ids in (HERE, [*HERE[:3], 33, *HERE[4:]])]
    cells = [found.here.cell, found.there.cell]
    width = model.d_head
    for patch in (found.patch, found.back):
        own = 0 if patch.into == "here" else 1
        signals = [
            Signal(cells[own].head, found.side, writer, tuple(range(width)))
            for row in found.patched
            if (writer := (row.here, row.there)[own]) is not None
        ]
        # The slow way: signals with all their channels, from the room that patches circuits.
        removal = OtherRun(ups[1 - own], found.alignment).difference(ups[own], cells[own], signals)
        assert patch.predicted == pytest.approx(removal.predicted(ups[own]), abs=1e-9)
        ids = ups[own].stream.token_ids[0]
        assert patch.after.attention == pytest.approx(edited_attention(model, ids, [removal])[0], abs=1e-9)
        moved = log_odds_of(patch.after.attention, found.here.keys)
        before, wanted = (log_odds_of(one.attention, found.here.keys) for one in (patch.before, patch.other))
        assert patch.attention.value == pytest.approx((moved - before) / (wanted - before), abs=1e-6)
        assert patch.attention.p == max(control.p for control in patch.controls)
    # Chosen to take half of the difference along; the way back was not.
    assert found.patch.attention.value is not None and found.patch.attention.value >= 0.5 - 1e-9


def test_a_whole_side_put_in_is_the_other_prompts_query_or_keys() -> None:
    model = tiny("llama", torch.float64)
    found = _found(model)
    ups = [PromptWrites(model.split(ids), 0) for ids in (HERE, THERE)]
    own = 0 if found.into == "here" else 1
    up, other = ups[own], ups[1 - own]
    (head, d, s), there = (found.here.cell, found.there.cell)[own], (found.there.cell, found.here.cell)[own]
    layer, group, scale = head.layer, head.index // up.group, float(up.scale[head.layer])
    rotations = [one.stream.rotary(layer, 0) for one in (up, other)]
    assert rotations[0] is not None and rotations[1] is not None
    turned = (
        rotations[1]
        .at_positions([there.query])
        .undo(other.q[layer, head.index, there.query][None, None, None])
    )
    query = rotations[0].at_positions([d]).turn(turned)[0, 0, 0]
    row = attention(scale * up.k[layer, group] @ query, up.visible(layer)[d], up.cap)
    assert found.whole["query"] == pytest.approx(float(row[s]), abs=1e-9)


def test_the_same_prompt_differs_in_nothing() -> None:
    found = _found(tiny("llama"), HERE)
    assert found.log_odds.difference == 0 and found.patch is None and found.back is None
    assert all(row.log_odds.difference == 0 for row in found.who)
    assert "hardly differ" in found.sentence
    assert found.to_json()["patch"] is None and "hardly differ" in found.to_html()


def test_positions_are_aligned_and_can_be_corrected() -> None:
    assert alignment(HERE, THERE)[8] == 9
    # Ends of other lengths: the last tokens are where the next one is made.
    assert alignment([5, 6, 7], [5, 8, 9, 9])[2] == 3
    model = tiny("llama")
    assert _found(model, align={4: 6}, head="L3H1", query=8, key=4).there.cell.key == 6
    for align, said in (
        ({1: 3, 2: 3}, "position 3 of the other prompt is aligned twice"),
        ({}, "names no positions"),
        ({99: 0}, "99"),
        ({4: 9}, r"nothing in the other prompt .* stands for the query at position 8: say with align="),
    ):
        with pytest.raises(HeadwiseError, match=said):
            _found(model, align=align, head="L3H1", query=8, key=4)
    with pytest.raises(
        HeadwiseError, match=r"nothing in the other prompt .* stands for the key at position 1"
    ):
        explain_difference(model, [3, 4, 5, 6], [3, 7, 8, 9, 5, 6], head="L3H1", query=3, key=1)
    with pytest.raises(
        HeadwiseError, match=r"L3H1 at position 2 of the other prompt .* cannot see position 4"
    ):
        _found(model, align={8: 2, 7: 4}, head="L3H1", query=8, key=7)
    with pytest.raises(HeadwiseError, match="sees one token at position 0"):
        _found(model, HERE, head="L3H1", query=0, key=0)


def test_a_key_that_nobody_asked_for_is_one_that_stands_for_something() -> None:
    model = tiny("llama", torch.float64)
    here, there = [3, 14, 15, 9, 2, 6], [3, 40, 41, 42, 9, 2, 6]  # positions 1 and 2 have nobody
    pattern = model.capture(here, want=("pattern",)).pattern[0]
    for head in model.heads[-4:]:
        found = explain_difference(model, here, there, head=head, query=-1, draws=19)
        row = pattern[model.heads.index(head), -1].clone()
        row[:3] = -1  # the first token, where heads rest, and those that nobody stands for
        wanted = int(row.argmax())
        assert found.here.cell.key == wanted and found.there.cell.key == found.alignment[wanted]
    with pytest.raises(HeadwiseError, match="stands for the key at position 1"):
        explain_difference(model, here, there, head="L3H1", query=-1, key=1)
    with pytest.raises(HeadwiseError, match="there is nothing to compare"):
        explain_difference(model, [3, 4, 5], [6, 7, 8, 9], head="L3H1", draws=19, align={2: 0})


@pytest.mark.real
def test_the_default_model_tells_two_prompts_apart(
    smollm2: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = headwise.explain_difference(smollm2, PROMPT, OTHER, head="L20H0", query=-1)
    # A name that was said before is read more, for L19H2 has seen at the query that it was.
    assert found.here.attention > 1.4 * found.there.attention and found.error < 1e-4
    assert found.side == "query" and [str(row.writer) for row in found.patched] == ["L19H2<-9"]
    assert found.patch is not None and found.back is not None
    assert found.patch.attention.said and found.back.attention.said
    for patch in (found.patch, found.back):
        assert patch.predicted == pytest.approx(patch.after.attention, abs=1e-4)
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: smollm2)
    page = tmp_path / "page.html"
    asked = ["explain", PROMPT, "--against", OTHER, "--head", "L20H0", "--query", "-1", "-q"]
    assert main([*asked, "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "L19H2 reading ' John' here" in printed and "page:" in printed
    assert max(map(len, printed.splitlines()[:-1])) <= 100
    assert "Both prompts" in page.read_text(encoding="utf-8")


def test_a_head_named_alone_is_asked_where_the_prompts_part_it_most() -> None:
    model, other = tiny("llama"), [*HERE[:6], 44, *HERE[7:]]
    found = explain_difference(model, HERE, other, head="L2H1", draws=19)
    heads = [headwise.Head(2, 1)]
    patterns = [model.capture([ids], heads=heads, want=("pattern",)).pattern[0, 0] for ids in (HERE, other)]
    apart = (patterns[0] - patterns[1]).abs()[1:, 1:]
    row, key = divmod(int(apart.argmax()), apart.shape[1])
    assert (found.here.cell.query, found.here.cell.key) == (row + 1, key + 1)
    # Before the prompts part there is nothing to compare.
    assert found.here.cell.query >= 6 and "differs most" in found.question.because
