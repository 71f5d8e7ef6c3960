"""The answer to the one question: sums are exact, prediction is observation, and the question is found as said."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny

import headwise
from headwise.contrast.bank import BankFeature, FeatureBank
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.types import Head, Subspace
from headwise.why.explain import Explanation, explain
from headwise.why.proof import Outcome

IDS = prompts_of(11)[0]
PROMPT = "When John and Mary went to the store, John gave a drink to"


def _bank(model: Model, head: Head, ranks: tuple[int, ...] = (2, 1)) -> FeatureBank:
    generator = torch.Generator().manual_seed(3)

    def subspace(rank: int) -> Subspace:
        return Subspace.spanned_by(torch.randn(model.d_head, rank, generator=generator, dtype=torch.float64))

    features = tuple(
        BankFeature(
            name=f"feature {n}",
            head=head,
            query=subspace(rank),
            key=subspace(rank),
            sigma=torch.ones(rank).double(),
            rank_energy=rank,
            rank_null=rank,
        )
        for n, rank in enumerate(ranks)
    )
    return FeatureBank(model.name, model.weight_hash, "made up", features)


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
    why = explain(model, IDS, head=head, query=-1, features=_bank(model, head))
    seen = model.capture([IDS], heads=[head], queries=-1, want=("scores", "pattern", "q", "k"))
    what = why.what
    scale, q, k = float(seen.scale[0]), seen.q[0, 0, 0], seen.k[0, 0]
    logits = scale * (k @ q)
    visible = seen.visible[0, 0, 0]
    others = visible.clone()
    others[why.key] = False
    assert what.attention == pytest.approx(float(seen.pattern[0, 0, 0, why.key]), abs=1e-9)
    assert what.logit == pytest.approx(float(logits[why.key]), abs=1e-9)
    assert what.relative == pytest.approx(float(logits[why.key] - logits[others].mean()), abs=1e-9)
    assert sum(part.value for part in what.channels) == pytest.approx(what.relative, abs=1e-9)
    assert sum(part.value for part in what.features) + what.unexplained == pytest.approx(
        what.relative, abs=1e-9
    )
    for rival in what.rivals:
        assert rival.gap == pytest.approx(float(logits[why.key] - logits[rival.key]), abs=1e-9)
    for written, part in zip(why.who.features, what.features, strict=True):
        assert written.logit == pytest.approx(part.logit, abs=1e-9)
        for side in ("query", "key"):
            total = sum(writer.logit for writer in written.writers if writer.side == side)
            assert total == pytest.approx(part.logit, abs=1e-9)
    for side, signals in why.who.signals.items():
        writers = why.who.of(side)
        if signals.resolved:
            assert sum(writer.share for writer in writers) == pytest.approx(1.0)
            assert sum(writer.drop for writer in writers) == pytest.approx(signals.attention - signals.after)
            assert signals.after < why.who.threshold
    assert why.proof.tests
    assert why.proof.features
    for test in (*why.proof.tests, *why.proof.features):
        assert test.predicted == pytest.approx(test.observed.attention, abs=1e-9)
    assert why.proof.before.attention == pytest.approx(what.attention, abs=1e-9)
    json.dumps(why.to_json(), allow_nan=False)


def test_the_document_has_the_keys_that_were_promised() -> None:
    document = explain(tiny("llama"), IDS).to_json()
    promised = {"prompt", "tokens", "head", "query", "key", "attention", "logit"}
    promised |= {"what", "who", "proof", "chosen_because", "seconds"}
    assert promised <= set(document)


def test_a_weak_attention_is_explained_by_half_of_it() -> None:
    model = tiny("llama")
    pattern = model.capture([IDS], heads=["L2H0"], queries=-1, want=("pattern",)).pattern[0, 0, 0]
    weak = int(pattern.argmin())
    why = explain(model, IDS, head="L2H0", query=-1, key=weak)
    assert why.who.threshold == pytest.approx(why.attention / 2)


def test_layer_zero_is_written_by_the_embedding_alone() -> None:
    why = explain(tiny("llama"), IDS, head="L0H2", query=-1)
    assert {writer.component.kind for writer in why.who.writers} == {"embedding"}


def test_same_seed_same_answer() -> None:
    model = tiny("qwen3")
    first, second = (explain(model, IDS, head="L3H0", seed=5).to_json() for _ in range(2))
    for document in (first, second):
        document.pop("seconds")
    assert first == second


def test_a_failed_proof_is_said_in_plain_words() -> None:
    why = explain(tiny("llama"), IDS, head="L3H1", query=-1)
    main = why.proof.main
    assert main is not None
    wrong = replace(main, predicted=main.predicted + 0.1)
    failed = replace(why.proof, tests=(*why.proof.tests[:-1], wrong))
    holds, words = failed.verdict
    assert not holds
    assert "prediction and edited forward pass differ by 1.0e-01" in words
    as_much = replace(main, controls=(main.observed,) * 3)
    failed = replace(why.proof, tests=(*why.proof.tests[:-1], as_much))
    assert failed.verdict[0] is False
    assert "at least half as much" in failed.verdict[1]
    spoken = replace(why, proof=failed).sentence
    assert "But: the proof fails" in spoken
    nothing = replace(why.proof, tests=(), before=Outcome(0.5, 0.5, 1.0))
    assert nothing.verdict == (
        False,
        "No cause of allowed size was found on either side, so there is nothing to remove.",
    )


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
    bank = _bank(model, Head(2, 1))
    with pytest.raises(HeadwiseError, match=r"L1H0 has no features in the bank; it has those of L2H1"):
        explain(model, IDS, head="L1H0", features=bank)
    with pytest.raises(HeadwiseError, match="this bank of features is of"):
        explain(tiny("mistral", seed=1), IDS, head="L2H1", features=bank)
    with pytest.raises(HeadwiseError, match="there are no features at"):
        explain(model, IDS, features="nowhere")


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
def test_the_proof_holds_on_the_default_model(ioi: Explanation) -> None:
    assert ioi.proof.error < 1e-5
    holds, _ = ioi.proof.verdict
    assert holds
    main = ioi.proof.main
    assert main is not None
    assert main.percentile == 100
    assert len(main.controls) == 20
    assert main.observed.attention < ioi.who.threshold < ioi.attention
    assert main.observed.lead < ioi.proof.before.lead - 1
    assert "instead of" in ioi.sentence
    assert "falls from 4.6" in ioi.sentence


@pytest.mark.real
def test_ambiguous_tokens_are_listed(smollm2: Model) -> None:
    with pytest.raises(HeadwiseError, match=r"^key ' John' occurs at positions 1 and 9: pass one of them$"):
        headwise.explain(smollm2, PROMPT, head="L23H3", key=" John")
    with pytest.raises(HeadwiseError, match=r"^key 'Bob' is not in the prompt"):
        headwise.explain(smollm2, PROMPT, head="L23H3", key="Bob")
