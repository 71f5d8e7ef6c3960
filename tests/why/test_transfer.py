"""A cause in another prompt: the same writers leave there, as an edited pass takes them, with controls of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny import tiny

import headwise
from headwise.circuits.counterfactual import Removal, edited_attention
from headwise.claims import corrected
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.tracing.vectors import component_shares
from headwise.tracing.writes import PromptWrites
from headwise.why.explain import explain
from headwise.why.explanation import Explanation
from headwise.why.transfer import GROUP, stands_for

IDS = [3, 14, 15, 9, 2, 6, 5, 35, 8]
PROMPT = "When John and Mary went to the store, John gave a drink to"


def _explained(model: Model, **request: object) -> Explanation:
    return explain(model, IDS, head="L3H1", query=-1, draws=99, **request)  # type: ignore[arg-type]


def test_in_the_same_prompt_everything_is_the_same() -> None:
    why = _explained(tiny("llama", torch.float64), transfer=IDS)
    (same,) = why.transfer
    assert why.proof.after is not None and same.proof.after is not None
    assert same.cell == why.question.cell and same.missing == ()
    assert why.who.headline is not None and same.writers == why.who.headline.members
    assert same.holds.value == pytest.approx(1.0)
    assert same.proof.after.attention == pytest.approx(why.proof.after.attention)
    assert [one.p for one in same.proof.controls] == [one.p for one in why.proof.controls]
    assert same.holds.p == why.verdict.specific.p and same.holds.said == why.verdict.specific.said


def test_a_prefix_moves_the_cell_and_what_heads_read(variant: str) -> None:
    model = tiny(variant, torch.float64)
    other = [40, 41, *IDS]
    why = _explained(model, transfer=other)
    cause, (moved,) = why.who.headline, why.transfer
    assert (moved.cell.query, moved.cell.key) == (why.query + 2, why.key + 2)
    if cause is None or moved.proof.after is None:
        return
    expected = [replace(one, source=one.source + 2 * (one.kind == "head")) for one in cause.members]
    assert list(moved.writers) == expected
    # The slow way: each writer's own vectors, taken from the query or the keys of the running model.
    up = PromptWrites(model.split(other), 0)
    shares = sum(component_shares(up, moved.cell.head, cause.side, one) for one in expected)
    assert isinstance(shares, torch.Tensor)
    taken = (
        Removal(moved.cell, query=shares[moved.cell.query])
        if cause.side == "query"
        else Removal(moved.cell, key=shares)
    )
    observed = edited_attention(model, other, [taken])[0]
    assert moved.proof.after.attention == pytest.approx(observed, abs=1e-9)
    assert moved.proof.predicted == pytest.approx(observed, abs=1e-9)
    before = moved.proof.before.attention
    if moved.holds.said is not None:
        assert moved.holds.value is not None and moved.holds.p is not None
        here = (why.attention - cause.after) / why.attention
        assert moved.holds.value == pytest.approx((before - observed) / before / here, abs=1e-6)
        assert moved.holds.p == max(control.p for control in moved.proof.controls)
        assert moved.holds.said == (moved.holds.value >= 0.5 and moved.holds.p <= 0.05)


def test_writers_that_read_a_token_nothing_stands_for_are_left_out_and_counted() -> None:
    model = tiny("llama")
    for seed in range(20):
        why = _explained(tiny("llama", seed=seed))
        cause = why.who.headline
        if cause is None or not any(one.kind == "head" for one in cause.members):
            continue
        model = tiny("llama", seed=seed)
        sources = {one.source for one in cause.members if one.kind == "head"} - {why.query, why.key}
        if not sources:
            continue
        # Query and key are aligned, and nothing else is.
        known = _explained(
            model, transfer=[[7, *IDS]], align={why.query: why.query + 1, why.key: why.key + 1}
        )
        (found,) = known.transfer
        assert {one.source for one in found.missing} == sources
        assert len(found.missing) + len(found.writers) == len(cause)
        assert known.to_json()["transfer"][0]["missing"]
        return
    raise AssertionError("no cause has a head that reads a third token")


def test_where_the_head_does_not_read_the_token_nothing_is_said() -> None:
    seen = set()
    for seed in range(12):
        why = _explained(tiny("llama", torch.float64, seed=seed), transfer=[IDS[::-1], [1, *IDS]])
        for one in why.transfer:
            row = one.proof.before.attention
            even = row <= 1 / (one.cell.query + 1)
            assert not (even and one.holds.said is not None)
            seen.add(one.holds.said)
    assert None in seen and len(seen) > 1


def test_several_prompts_are_corrected_together_and_say_so() -> None:
    """Whether a cause transfers is asked of each prompt: the more of them, the more would say so by chance."""
    model = tiny("llama", torch.float64)
    alone = _explained(model, transfer=IDS)
    several = _explained(model, transfer=[IDS, [7, *IDS], [1, *IDS], IDS])
    claims = [one.holds.claim for one in several.transfer if one.holds.claim is not None]
    assert len(claims) >= 3 and {one.group for one in claims} == {GROUP}
    assert [one.q for one in claims] == pytest.approx(corrected([one.p for one in claims]))
    for one in several.transfer:
        if one.holds.claim is None or one.holds.value is None:
            continue
        assert one.holds.said == one.holds.claim.supported
        assert one.holds.said == (one.holds.value >= 0.5 and one.holds.claim.q <= 0.05)
        assert f"p {one.holds.p:.3f}, q {one.holds.claim.q:.3f})" in several.sentence
    (single,) = alone.transfer
    assert single.holds.claim is not None and single.holds.claim.q == single.holds.p == claims[0].p
    assert single.holds.claim.group != GROUP and ", q " not in alone.sentence


def test_positions_that_stand_for_each_other() -> None:
    assert stands_for([1, 2, 3], [4, 5, 6]) == {0: 0, 1: 1, 2: 2}
    assert stands_for([1, 2, 3], [1, 9, 2, 3]) == {0: 0, 1: 2, 2: 3}
    assert stands_for([1, 2, 3, 4], [1, 7, 4]) == {0: 0, 3: 2}  # two tokens for one: neither stands for it
    assert stands_for([1, 2], [3, 4, 5], {-1: -1}) == {1: 2}


def test_wrong_requests_are_one_line() -> None:
    model = tiny("llama")
    for request, message in (
        ({"transfer": [[4]]}, r"transfer=\[4\] is one token long"),
        ({"transfer": [IDS, IDS], "align": {0: 0}}, "2 were given with transfer=: give one"),
        ({"align": {0: 0}}, "0 were given with transfer=: give one"),
        ({"transfer": [[7, *IDS]], "align": {0: 1}}, "stands for the query at position 8: say with align="),
        ({"transfer": [[7, *IDS]], "align": {0: 99}}, "99"),
    ):
        with pytest.raises(HeadwiseError, match=message):
            _explained(model, **request)


@pytest.mark.real
def test_a_cause_transfers_to_a_paraphrase_and_not_to_other_writers(smollm2: Model) -> None:
    why = headwise.explain(smollm2, PROMPT, wrong=" John", transfer=["Well. " + PROMPT])
    (found,) = why.transfer
    assert found.tokens[found.cell.key] == " John" and found.cell.key == why.key + 2
    assert found.holds.said and found.holds.value is not None and found.holds.value > 0.5
    assert "The cause transfers to the other prompt" in why.sentence
    assert found.proof.error < 1e-5
