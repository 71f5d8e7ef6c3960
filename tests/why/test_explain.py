"""The answer to the one question: sums are exact, prediction is observation, and the question is found as said."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny
from tiny_banks import random_bank

from headwise.contrast.subspaces import random_subspaces
from headwise.errors import HeadwiseError
from headwise.model.attend import soft_cap
from headwise.model.edits import RemoveWithin, SwapWithin
from headwise.randomness import keyed
from headwise.tracing.seeds import Readout, last_of, likelihood_shares
from headwise.tracing.table import log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Head, Side, Subspace
from headwise.why import feature_tests
from headwise.why.attention import sinks_of
from headwise.why.explain import explain
from headwise.why.proof import ControlTest, NextBest, Outcome, Proof, Verdict, verdict
from headwise.why.question import _about, find_answer
from headwise.why.what import swap_partner, what

IDS = prompts_of(11)[0]
SIDES: tuple[Side, ...] = ("query", "key")
PROMPT = "When John and Mary went to the store, John gave a drink to"


def test_an_explanation_may_begin_anywhere() -> None:
    model = tiny("qwen3", torch.float64)
    clean, moved = (explain(model, IDS, head="L3H1", query=-1, start=start) for start in (0, 20))
    assert (clean.to_json()["start"], moved.to_json()["start"]) == (0, 20)
    assert moved.question.cell == clean.question.cell
    assert moved.attention == pytest.approx(clean.attention, rel=1e-5)
    assert moved.what.logit == pytest.approx(clean.what.logit, rel=1e-5)
    assert moved.proof.error < 1e-6  # the edited passes begin where the explained one did
    assert moved.proof.before.lead == pytest.approx(clean.proof.before.lead, rel=1e-5)
    with pytest.raises(HeadwiseError, match="start=60 and 11 tokens pass the model's context of 64"):
        explain(model, IDS, start=60)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_part_sums_and_prediction_is_observation_on_every_family(name: str) -> None:
    model = tiny(name, torch.float64)
    head = Head(3, 1)
    why = explain(model, IDS, head=head, query=-1, features=random_bank(model, head))
    seen = model.capture([IDS], heads=[head], queries=-1, want=("scores", "pattern", "q", "k"))
    what, who = why.what, why.who
    scale, q, k = float(seen.scale[0]), seen.q[0, 0, 0], seen.k[0, 0]
    logits = scale * (k @ q)
    visible = seen.visible[0, 0, 0]
    others = visible.clone()
    others[why.key] = False
    a, n = float(seen.pattern[0, 0, 0, why.key]), int(visible.sum())
    assert what.attention == pytest.approx(a, abs=1e-9)
    assert what.log_odds == pytest.approx(math.log(a / (1 - a)) + math.log(n - 1), abs=1e-9)
    assert what.logit == pytest.approx(float(logits[why.key]), abs=1e-9)
    assert what.relative == pytest.approx(float(logits[why.key] - logits[others].mean()), abs=1e-9)
    assert sum(part.log_odds for part in what.channels) == pytest.approx(what.log_odds, abs=1e-9)
    assert sum(part.logit for part in what.channels) == pytest.approx(what.logit, abs=1e-9)
    assert sum(part.value for part in what.features) + what.unexplained == pytest.approx(
        what.log_odds, abs=1e-9
    )
    assert why.place.total == pytest.approx(what.log_odds, abs=1e-9)
    for rival in what.rivals:
        assert rival.gap == pytest.approx(float(logits[why.key] - logits[rival.key]), abs=1e-9)
    for written, part in zip(who.features, what.features, strict=True):
        assert written.log_odds == pytest.approx(part.value, abs=1e-9)
        for side in SIDES:
            total = sum(writer.log_odds for writer in written.writers if writer.side == side)
            assert total == pytest.approx(part.value, abs=1e-9)
    for side in SIDES:
        found, table = who.sets[side], why.table(side)
        assert sum(row.log_odds for row in who.of(side)) == pytest.approx(what.log_odds, abs=1e-9)
        assert float(table.rows.sum()) == pytest.approx(what.log_odds, abs=1e-9)
        totals = who.totals[side]
        assert totals.helping + totals.hindering == pytest.approx(what.log_odds, abs=1e-9)
        assert found.after < who.threshold or not found.resolved
        assert {row.writer for row in who.of(side) if row.cause} == set(found.members)
    assert torch.allclose(why.table("query").columns, why.table("key").columns, atol=1e-9)
    assert why.proof.after is not None
    assert why.proof.predicted == pytest.approx(why.proof.after.attention, abs=1e-9)
    assert why.proof.features
    for test in why.proof.features:
        assert test.predicted == pytest.approx(test.observed.attention, abs=1e-9)
    assert why.proof.before.attention == pytest.approx(what.attention, abs=1e-9)
    json.dumps(why.to_json(), allow_nan=False)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_controls_of_features_are_the_same_edits_in_random_subspaces(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, head = tiny(name, torch.float64), Head(3, 1)
    up = PromptWrites(model.split([IDS]), 0)
    cell, rival = Cell(head, len(IDS) - 1, 4), 7
    bases = random_subspaces(model.d_head, 2, 20, generator=keyed(0, "controls"))
    monkeypatch.setattr(feature_tests, "CELLS", 6 * len(IDS))  # in four parts
    for against in (None, rival):
        edits = [
            RemoveWithin(head=head, side="query", subspace=within, positions=cell.query)
            if against is None
            else SwapWithin(head=head, first=cell.key, second=rival, subspace=within, seen_by=cell.query)
            for within in map(Subspace, bases)
        ]
        found = feature_tests._edited_within(up, cell, bases, against)
        assert found == pytest.approx(
            [feature_tests._edited_cell(up, cell, edit) for edit in edits], abs=1e-12
        )
        assert max(found) - min(found) > 1e-4  # they are not all alike


@pytest.mark.parametrize("name", VARIANTS)
def test_the_document_adds_up(name: str) -> None:
    """Rows of each side and columns sum to the same total, what an MLP read and its neurons to its row."""
    model = tiny(name, torch.float64)
    for head in ("L3H1", "L1H2", "L0H0"):
        document = explain(model, IDS, head=head, query=-1).to_json()
        total = document["log_odds"]["total"]
        assert sum(part["log_odds"] for part in document["what"]) == pytest.approx(total, abs=1e-9)
        assert sum(document["place"].values()) == pytest.approx(total, abs=1e-9)
        names = [part["channel"] for part in document["what"]]
        for side in SIDES:
            rows = [row for row in document["who"] if row["side"] == side]
            assert sum(row["log_odds"] for row in rows) == pytest.approx(total, abs=1e-9)
            signed = document["log_odds"][side]
            assert signed["helps"] + signed["hinders"] == pytest.approx(total, abs=1e-9)
            for column, part in zip(
                document["what"], zip(*(row["channels"] for row in rows), strict=True), strict=True
            ):
                assert sum(cell["log_odds"] for cell in part) == pytest.approx(column["log_odds"], abs=1e-9)
            for row in rows:
                assert [cell["channel"] for cell in row["channels"]] == names
                assert sum(cell["log_odds"] for cell in row["channels"]) == pytest.approx(
                    row["log_odds"], abs=1e-9
                )
                for parts in (row["through"], row["neurons"]):
                    if parts:
                        assert row["writer"].startswith("MLP")
                        assert sum(one["log_odds"] for one in parts) == pytest.approx(
                            row["log_odds"], abs=1e-9
                        )
            cause = document["cause"][side]["writers"]
            marked = [{"writer": row["writer"], "reads": row["reads"]} for row in rows if row["cause"]]
            assert sorted(marked, key=str) == sorted(cause, key=str)


def test_rows_are_the_same_in_every_basis(variant: str) -> None:
    model = tiny(variant, torch.float64)
    documents = [
        explain(model, IDS, head="L3H1", query=-1, basis=basis).to_json() for basis in ("singular", "rotated")
    ]
    first, second = documents
    assert first["basis"] != second["basis"] and first["what"] != second["what"]
    assert first["cause"]["query"]["writers"] == second["cause"]["query"]["writers"]
    for one, other in zip(first["who"], second["who"], strict=True):
        assert (one["side"], one["writer"], one["reads"]) == (other["side"], other["writer"], other["reads"])
        assert one["log_odds"] == pytest.approx(other["log_odds"], abs=1e-9)
    words = [document["verdict"] for document in documents]
    assert words[0]["redundant"] == pytest.approx(words[1]["redundant"])


def test_the_document_has_the_keys_that_were_promised() -> None:
    document = explain(tiny("llama"), IDS).to_json()
    promised = {"prompt", "tokens", "head", "query", "key", "attention", "logit", "chosen_because", "seconds"}
    promised |= {"log_odds", "what", "who", "cause", "place", "consequence", "proof", "verdict", "basis"}
    assert promised <= set(document)
    assert {"total", "baseline"} <= set(document["log_odds"])
    assert set(document["what"][0]) == {"channel", "log_odds", "stable", "pole", "name", "vocabulary"}
    row = {"side", "writer", "reads", "log_odds", "channels", "through", "neurons"}
    assert all(row <= set(one) for one in document["who"])
    for side in SIDES:
        assert {"writers", "signals", "after"} <= set(document["cause"][side])
    assert set(document["place"]) == {"content", "place", "interaction", "level"}
    assert set(document["consequence"]) == {"raised", "lowered", "direct", "path", "summed"}
    assert all(set(word) == {"said", "value", "p", "claim"} for word in document["verdict"].values())
    tested = [word for word in document["verdict"].values() if word["p"] is not None]
    assert tested and all(word["claim"]["p"] == word["p"] for word in tested)
    assert set(document["verdict"]) == {"specific", "redundant", "matters"}
    assert set(document["basis"]) == {"kind", "frame", "hash"}


def test_a_weak_attention_is_explained_by_half_of_it() -> None:
    model = tiny("llama")
    pattern = model.capture([IDS], heads=["L2H0"], queries=-1, want=("pattern",)).pattern[0, 0, 0]
    weak = int(pattern.argmin())
    why = explain(model, IDS, head="L2H0", query=-1, key=weak)
    assert why.who.threshold == pytest.approx(why.attention / 2)


def test_a_threshold_above_the_attention_becomes_half_of_it() -> None:
    why = explain(tiny("llama"), IDS, head="L3H1", query=-1, tau=0.99)
    assert why.attention < 0.99 and why.who.threshold == pytest.approx(why.attention / 2)
    assert why.who.headline is not None and why.who.headline.after < why.attention / 2
    assert "No set of writers" not in why.sentence


def test_layer_zero_is_written_by_the_embedding_alone() -> None:
    why = explain(tiny("llama"), IDS, head="L0H2", query=-1)
    assert {row.writer.kind for row in why.who.rows if row.writer} == {"embedding"}
    assert "the embedding" in why.sentence


def test_same_seed_same_answer() -> None:
    model = tiny("qwen3")
    first, second = (explain(model, IDS, head="L3H0", seed=5).to_json() for _ in range(2))
    for document in (first, second):
        document.pop("seconds")
    assert first == second


def test_of_one_visible_key_there_is_nothing_to_explain() -> None:
    why = explain(tiny("llama"), IDS, head="L2H1", query=0, key=0)
    assert (why.attention, why.what.log_odds, why.what.keys) == (1.0, 0.0, 1)
    assert why.who.headline is None and why.proof.after is None and why.consequence.path is None
    assert why.verdict == Verdict()
    assert why.sentence.endswith("it is the only token it sees, so there is nothing to explain.")
    json.dumps(why.to_json(), allow_nan=False)


def test_a_table_is_asked_for_by_its_side() -> None:
    why = explain(tiny("llama"), IDS, head="L3H1", query=-1)
    assert why.table("key").side == "key"
    total = float(why.table("query").to_pandas()["log_odds"].to_numpy().sum())
    assert total == pytest.approx(why.what.log_odds, abs=1e-5)
    with pytest.raises(HeadwiseError, match=r"^side 'both' is not a side: write 'query' or 'key'$"):
        why.table("both")  # pyright: ignore[reportArgumentType]


def test_words_are_said_of_the_numbers() -> None:
    def outcome(attention: float, probability: float) -> Outcome:
        return Outcome(attention, probability, 0.0)

    def control(p: float, answer_p: float) -> ControlTest:
        return ControlTest("writers", "", (0.5,) * 999, p, (0.1,) * 19, answer_p)

    best = NextBest((Component("mlp", 1),), 0.5, outcome(0.5, 0.4))
    proof = Proof(
        "query",
        outcome(0.8, 0.5),
        None,
        outcome(0.2, 0.3),
        0.2,
        best,
        (control(0.001, 0.05), control(0.05, 0.05)),
    )
    answer = find_answer(tiny("llama"), IDS, torch.arange(61.0), None, None)
    words = verdict(proof, answer)
    assert (words.specific.said, words.specific.p, words.specific.value) == (True, 0.05, pytest.approx(0.6))
    assert (words.redundant.said, words.redundant.p, words.redundant.value) == (
        True,
        None,
        pytest.approx(0.5),
    )
    change = pytest.approx(math.log(0.6))
    assert (words.matters.said, words.matters.p, words.matters.value) == (True, 0.05, change)
    worse = verdict(replace(proof, controls=(control(0.051, 0.05), control(0.001, 0.1))), answer)
    assert (worse.specific.said, worse.matters.said) == (False, False)
    assert verdict(replace(proof, next_best=replace(best, predicted=0.51)), answer).redundant.said is False
    small = verdict(replace(proof, after=outcome(0.2, 0.46)), answer)
    assert small.matters.said is False and abs(small.matters.value or 0) < 0.1
    assert verdict(replace(proof, controls=()), answer).specific.said is None
    assert verdict(replace(proof, after=None), answer) == Verdict()
    led = verdict(replace(proof, after=Outcome(0.2, 0.3, -2.0)), replace(answer, compared=True))
    assert led.matters.value == pytest.approx(-2.0)


def test_what_is_odd_about_a_question_is_said() -> None:
    model = tiny("llama")
    favourite = explain(model, IDS)
    other = explain(model, IDS, answer=5 if favourite.answer.token != 5 else 6)
    assert f"The model does not prefer {other.answer.text!r}" in other.question.notices[0]
    assert not any("prefer" in notice for notice in favourite.question.notices)
    blank = replace(favourite.answer, text="\n\n")
    assert "only a space or a new line" in _about(blank)[0]
    assert _about(favourite.answer) == []
    weak = [explain(tiny("llama", seed=seed), IDS) for seed in range(8)]
    for why in weak:
        said = any("No head brings much" in notice for notice in why.question.notices)
        brought, total = re.search(r"elsewhere: ([+-][\d.]+) of (-?[\d.]+)", why.question.because).groups()  # type: ignore[union-attr]
        assert said == (float(brought) < 0.05 * abs(float(total)))


def test_shares_of_the_likelihood_sum_to_it(variant: str) -> None:
    model = tiny(variant, torch.float64)
    up = PromptWrites(model.split(IDS), 0)
    readout = Readout.of(model, last_of(up))
    gained = torch.log_softmax(readout.logits(last_of(up)), -1) - torch.log_softmax(
        soft_cap(readout.constant(), readout.cap), -1
    )
    assert float(likelihood_shares(up, 7).sum()) == pytest.approx(float(gained[7]), abs=1e-6)


def test_a_sink_is_no_partner_of_a_swap() -> None:
    model, head = tiny("llama"), Head(3, 1)
    pattern = model.capture([IDS], heads=[head], queries=-1, want="pattern").pattern[0, 0, 0]
    order = pattern.argsort(descending=True).tolist()
    key, rival = order[:2] if 0 not in order[:2] else (next(i for i in order if i), 0)
    up = PromptWrites(model.split(IDS), 0)
    table = log_odds_table(up, Cell(head, 10, key))
    made = what(up, table)
    chosen = swap_partner(up, table, made)
    rows = torch.cat([up.stream.pattern(layer, 10) for layer in range(4)])
    sinks = sinks_of(rows, 10)
    assert 0 in sinks and chosen not in sinks
    assert chosen == next(one.key for one in made.rivals if one.key not in sinks)
    if rival == 0:
        assert made.rivals[0].key == 0


def test_wrong_questions_get_one_line() -> None:
    model = tiny("mistral")  # a window of four keys
    cases = {
        "L9H0 does not exist": {"head": "L9H0"},
        "position 40 is outside the prompt, which has 11 tokens": {"head": "L1H0", "query": "40"},
        "comes after query": {"head": "L1H0", "query": "2", "key": "5"},
        "it is outside its window": {"head": "L1H0", "query": 10, "key": 1},
        "query=3 needs a head": {"query": 3},
        "tau=3 is not an attention": {"tau": 3},
        "draws=0 leaves no controls": {"draws": 0},
        "answer and wrong are both": {"answer": 5, "wrong": 5},
    }
    for message, request in cases.items():
        with pytest.raises(HeadwiseError, match=message):
            explain(model, IDS, **request)
    with pytest.raises(HeadwiseError, match="the prompt is empty"):
        explain(model, " ")
    with pytest.raises(HeadwiseError, match="one token long"):
        explain(model, [4])
    bank = random_bank(model, Head(2, 1))
    with pytest.raises(HeadwiseError, match=r"L1H0 has no features in the bank; it has those of L2H1"):
        explain(model, IDS, head="L1H0", features=bank)
    with pytest.raises(HeadwiseError, match="this bank of features is of"):
        explain(tiny("mistral", seed=1), IDS, head="L2H1", features=bank)
    with pytest.raises(HeadwiseError, match="there are no features at"):
        explain(model, IDS, features="nowhere")


def test_the_first_token_can_only_be_asked_about_itself() -> None:
    why = explain(tiny("llama"), IDS, head="L2H1", query=0)
    assert (why.query, why.key, why.attention) == (0, 0, 1.0)
