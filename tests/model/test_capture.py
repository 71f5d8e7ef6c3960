"""Captured queries, keys, scores and patterns are the model's own, however they were asked for."""

from __future__ import annotations

import pytest
import torch
from reference import obvious_forward, worst
from reference_reader import reader
from tiny import prompts_of, tiny
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from headwise.errors import HeadwiseError
from headwise.model.model import Model

PROMPTS = prompts_of(9, 5, 12)
EVERYTHING = ("q", "k", "scores", "pattern", "q_before_rope", "k_before_rope")


@pytest.mark.parametrize("padding", ["right", "left"])
def test_everything_equals_attention_written_out(model: Model, exact: float, padding: str) -> None:
    seen = model.capture(PROMPTS, want=EVERYTHING, logits=None, padding=padding)  # pyright: ignore[reportArgumentType]
    for number, ids in enumerate(PROMPTS):
        logits, queries, keys, patterns = obvious_forward(model, ids)
        length = len(ids)
        assert worst(seen.logits[number, :length], logits) <= exact
        assert worst(seen.q[number, :, :length], torch.cat(queries)) <= exact
        assert worst(seen.k[number, :, :length], torch.cat(keys)) <= exact
        assert worst(seen.pattern[number, :, :length, :length], torch.cat(patterns)) <= exact
        # softmax of the scores asked for is the pattern when all columns were asked for
        assert worst(seen.scores[number, :, :length].softmax(-1), seen.pattern[number, :, :length]) <= exact
        assert (seen.pattern[number, :, :, length:] == 0).all()
        assert not seen.visible[number, :, :, length:].any()


def test_no_key_after_the_query_or_outside_the_window_is_visible(model: Model) -> None:
    ids = PROMPTS[2]
    seen = model.capture([ids], want=("pattern",))
    _, _, _, patterns = obvious_forward(model, ids)
    future = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
    assert not seen.visible[0][:, future].any()
    assert torch.equal(seen.visible[0], torch.cat(patterns) > 0)


def test_rows_and_columns_asked_for_are_rows_and_columns_of_the_whole(model: Model) -> None:
    whole = model.capture(PROMPTS, want=EVERYTHING)
    rows, columns = [[8, 2], [4], [0, 11]], [[1, 3, 0], [2], [7]]
    some = model.capture(PROMPTS, heads=["L2H1", "L0H3"], queries=rows, keys=columns, want=EVERYTHING)
    assert some.query_positions.tolist() == [[8, 2], [4, -1], [0, 11]]
    for here, head in enumerate(some.heads):
        there = whole.index(head)
        for number in range(3):
            for r, row in enumerate(rows[number]):
                assert torch.allclose(some.q[number, here, r], whole.q[number, there, row], atol=1e-5)
                for c, column in enumerate(columns[number]):
                    mine, theirs = some.pattern[number, here, r, c], whole.pattern[number, there, row, column]
                    assert torch.allclose(mine, theirs, atol=1e-5)
                    assert some.visible[number, here, r, c] == whole.visible[number, there, row, column]


def test_before_rope_rotates_into_after_rope(model: Model, exact: float) -> None:
    """The rotation of transformers' own rotary module, applied to what was captured before RoPE, gives q after."""
    ids = PROMPTS[0]
    seen = model.capture([ids], heads=["L1H2"], want=("q", "q_before_rope", "k", "k_before_rope"))
    if model.family.name in ("gpt2", "opt"):
        assert torch.equal(seen.q, seen.q_before_rope)
        return
    stream = model.split([ids])
    rotary = stream.layers[1].rotary
    assert rotary is not None
    assert worst(rotary.turn(seen.q_before_rope), seen.q) <= exact
    assert worst(rotary.turn(seen.k_before_rope), seen.k) <= exact
    reads = reader(stream, "L1H2", "query")
    raw = (
        stream.layers[1].stream[0]
        @ reads.matrix.mT
        * (1.0 if reads.norm_scale is None else reads.norm_scale[0])
    )
    raw = raw if reads.offset is None else raw + reads.offset
    if reads.qk_scale is not None and reads.qk_gain is not None:
        raw = raw * reads.qk_scale[0] * reads.qk_gain
    assert worst(seen.q_before_rope[0, 0], raw) <= exact


def test_batches_and_order_change_nothing(model: Model, exact: float) -> None:
    together = model.capture(PROMPTS, want=("q", "scores"), logits="last")
    one_by_one = model.capture(PROMPTS, want=("q", "scores"), logits="last", batch_size=1)
    finite = torch.isfinite(together.scores)
    assert torch.equal(finite, torch.isfinite(one_by_one.scores))
    assert worst(one_by_one.q, together.q) <= exact
    assert worst(one_by_one.scores[finite], together.scores[finite]) <= exact
    assert worst(one_by_one.logits, together.logits) <= exact
    assert one_by_one.token_ids == together.token_ids == PROMPTS


def test_pass_stops_after_the_last_layer_needed() -> None:
    model = tiny("llama")
    ran: list[int] = []
    hooks = [
        layer.register_forward_hook(lambda *_, number=number: ran.append(number))
        for number, layer in enumerate(model.anatomy.layers)
    ]
    model.capture(PROMPTS, heads=["L1H0"])
    assert ran == [0]  # layer 1 itself is left in the middle, before its attention output
    for hook in hooks:
        hook.remove()


def test_nothing_stays_registered_or_hooked() -> None:
    model, other = tiny("llama"), tiny("gemma2")
    names = (set(AttentionInterface._global_mapping), set(AttentionMaskInterface._global_mapping))
    implementations = (model.hf.config._attn_implementation, other.hf.config._attn_implementation)

    def is_clean() -> bool:
        hooks = [m for m in model.hf.modules() if m._forward_hooks or m._forward_pre_hooks]
        now = (set(AttentionInterface._global_mapping), set(AttentionMaskInterface._global_mapping))
        current = (model.hf.config._attn_implementation, other.hf.config._attn_implementation)
        return not hooks and now == names and current == implementations

    model.capture(PROMPTS, heads=["L1H0"], want=("q_before_rope",))
    model.split(PROMPTS)
    other.capture(PROMPTS)
    assert is_clean()

    def broken(*_: object) -> None:
        raise RuntimeError("a layer that fails")

    hook = model.anatomy.layers[2].register_forward_pre_hook(broken)
    with pytest.raises(RuntimeError, match="a layer that fails"):
        model.split(PROMPTS)
    hook.remove()
    assert is_clean()


def test_half_precision_is_decomposed_in_float32() -> None:
    model = tiny("qwen3", torch.bfloat16)
    seen = model.capture(PROMPTS, want=("q", "k", "scores", "pattern"))
    assert {t.dtype for t in (seen.q, seen.k, seen.scores, seen.pattern)} == {torch.float32}


def test_wrong_requests_get_one_line() -> None:
    model = tiny("gpt2")
    cases = {
        "L9H9 does not exist: tiny-gpt2 has 4 layers of 4 heads, L0H0 to L3H3": {"heads": ["L9H9"]},
        "'qq' cannot be captured": {"want": ("qq",)},
        "query position 12 is outside prompt 0": {"queries": 12},
        "2 lists of key positions were given for 3 prompts": {"keys": [[0], [1]]},
        "padding 'up' is not a side": {"padding": "up"},
    }
    for message, request in cases.items():
        with pytest.raises(HeadwiseError, match=message):
            model.capture(PROMPTS, **request)
    with pytest.raises(HeadwiseError, match="prompt 1 is empty"):
        model.capture([[1], []])
    with pytest.raises(HeadwiseError, match="65 tokens but the model's context is 64"):
        model.capture([[1] * 65])
    with pytest.raises(HeadwiseError, match="no prompts"):
        model.capture([])
    with pytest.raises(HeadwiseError, match="no tokenizer"):
        model.capture("text")
