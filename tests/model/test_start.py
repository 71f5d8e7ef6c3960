"""A prompt may begin at any position: RoPE sees differences alone, so nothing changes but rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny

import headwise
from headwise.model.edits import AddToStream, Edit
from headwise.model.model import Model
from headwise.types import Head

LEARNED = ("gpt2", "opt")
ROTARY = [name for name in VARIANTS if name not in LEARNED]
PROMPTS = prompts_of(9, 13, seed=4)


def far(variant: str, dtype: torch.dtype = torch.float32) -> Model:
    """A tiny model with room for prompts that begin late."""
    return tiny(variant, dtype, settings={"max_position_embeddings": 1024})


def rotations_in_float64(hf: Any) -> None:
    """Tables of rotations that are not rounded to float32, so that the identity itself can be seen."""
    for module in hf.modules():
        if type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = _exact_rotations.__get__(module)


def _exact_rotations(
    self: Any, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    kind = "" if layer_type is None else f"{layer_type}_"
    angles = position_ids[..., None].double() * getattr(self, f"{kind}inv_freq").double()
    scaling = getattr(self, f"{kind}attention_scaling")
    both = torch.cat((angles, angles), -1)
    return (both.cos() * scaling).to(x.dtype), (both.sin() * scaling).to(x.dtype)


def close(one: torch.Tensor, other: torch.Tensor, bound: float) -> bool:
    return bool((one - other).abs().max() <= bound * other.abs().max())


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("variant", ROTARY)
def test_patterns_and_logits_are_those_of_any_other_start(
    variant: str, padding: Literal["right", "left"]
) -> None:
    for dtype, tables, bounds in (
        (torch.float32, "own", {1: 1e-4, 20: 1e-4, 500: 1e-4}),
        # transformers' tables of rotations are float32 whatever the model is: an angle of n is right to n · 6e-8
        (torch.float64, "own", {1: 5e-6, 20: 5e-6, 500: 5e-5}),
        (torch.float64, "exact", {1: 1e-12, 20: 1e-11, 500: 1e-10}),
    ):
        model = far(variant, dtype)
        if tables == "exact":
            rotations_in_float64(model.hf)
        request: dict[str, Any] = {"want": ("pattern",), "logits": None, "padding": padding}
        clean = model.capture(PROMPTS, **request)
        assert clean.start == 0
        for start, bound in bounds.items():
            moved = model.capture(PROMPTS, start=start, **request)
            assert moved.start == start
            assert torch.equal(moved.visible, clean.visible)
            assert close(moved.pattern, clean.pattern, bound), (dtype, tables, start)
            assert close(moved.logits, clean.logits, bound), (dtype, tables, start)


@pytest.mark.parametrize("variant", ROTARY)
def test_the_model_is_told_the_positions(variant: str) -> None:
    """The instrumented pass at a start is the untouched model's own pass with these position ids."""
    model = far(variant)
    for start in (0, 7, 300):
        ids = torch.tensor([PROMPTS[0]])
        positions = torch.arange(start, start + ids.shape[1])[None]
        own = model.hf(ids, position_ids=positions, use_cache=False).logits[0]
        seen = model.capture(PROMPTS[0], want=("q", "q_before_rope"), logits=None, start=start)
        assert close(seen.logits[0], own, 1e-5)
        if start:
            clean = model.capture(PROMPTS[0], want=("q", "q_before_rope"))
            # what is turned differs, what it was before it is turned does not
            assert not close(seen.q, clean.q, 1e-2)
            first = seen.q_before_rope[:, : model.n_heads]
            assert close(first, clean.q_before_rope[:, : model.n_heads], 1e-4)


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("variant", ROTARY)
def test_the_split_is_exact_at_any_start(variant: str, padding: Literal["right", "left"]) -> None:
    model = far(variant, torch.float64)
    stream = model.split(PROMPTS, start=20, padding=padding)
    assert stream.start == 20
    clean = model.split(PROMPTS, padding=padding)
    for prompt in (0, 1):
        assert stream.writes(model.n_layers, -1, prompt).error < 1e-9
        assert close(stream.writes(3, -1, prompt).vectors, clean.writes(3, -1, prompt).vectors, 1e-5)
        for side in ("query", "key"):
            assert stream.shares("L3H1", side, -2, prompt).error < 1e-9
        assert close(stream.whole_pattern("L2H1", prompt), clean.whole_pattern("L2H1", prompt), 1e-5)


def plan(model: Model) -> list[list[Edit]]:
    generator = torch.Generator().manual_seed(3)

    def vectors(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    query = headwise.AddVectors(head=Head(1, 0), side="query", positions=-1, value=vectors(model.d_head))
    key = headwise.SetVectors(head=Head(2, 1), positions=4, value=vectors(model.d_head))
    private = headwise.AddVectors(
        head=Head(1, 2), positions=[0, 1, 2], value=vectors(3, model.d_head), seen_by=6
    )
    stream = AddToStream(layer=2, positions=[5], value=vectors(1, model.d_model))
    return [[query], [key, query], [private], [stream]]


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("variant", ROTARY)
def test_packed_edits_are_full_edits_at_another_start(
    variant: str, padding: Literal["right", "left"]
) -> None:
    model = far(variant, torch.float64)
    prompt, plans = PROMPTS[0], plan(model)
    request: dict[str, Any] = {"heads": ["L1H2", "L3H0"], "queries": [6, -1], "want": ("pattern", "q")}
    edits = [replace(edit, prompt=copy) for copy, one in enumerate(plans) for edit in one]
    packed = model.edit([prompt] * len(plans), edits, start=20, **request)
    for copy, one in enumerate(plans):
        # beside a longer prompt nothing is packed, and one of the two is padded
        made = [replace(edit, prompt=0) for edit in one]
        full = model.edit([prompt, PROMPTS[1]], made, start=20, padding=padding, **request)
        columns = len(prompt)
        assert close(packed.pattern[copy, ..., :columns], full.pattern[0, ..., :columns], 1e-9)
        assert close(packed.q[copy], full.q[0], 1e-9)
        assert close(packed.logits[copy], full.logits[0], 1e-9)


@pytest.mark.parametrize("variant", LEARNED)
def test_learned_positions_take_no_start(variant: str) -> None:
    model = tiny(variant)
    assert model.capture(PROMPTS[0], start=0).start == 0
    asks: list[Callable[..., Any]] = [model.capture, model.split, partial(model.edit, edits=())]
    for ask in asks:
        with pytest.raises(headwise.HeadwiseError, match=rf"start=3 cannot be used with 'tiny-{variant}'"):
            ask(PROMPTS[0], start=3)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (-1, "start=-1 is before the first position: give 0 or more"),
        (2.5, "start=2.5 is not a whole number: give 0 or more"),
        ("3", "start='3' is not a whole number: give 0 or more"),
        (True, "start=True is not a whole number: give 0 or more"),
        (52, "start=52 and 13 tokens pass the model's context of 64: give a start of at most 51"),
    ],
)
def test_a_start_that_does_not_fit_is_one_line(start: Any, message: str) -> None:
    model = tiny("llama")
    assert model.capture(PROMPTS, start=51).start == 51
    for ask in (model.capture, model.split):
        with pytest.raises(headwise.HeadwiseError) as caught:
            ask(PROMPTS, start=start)
        assert str(caught.value) == message


def test_a_start_does_not_cross_a_switch_of_the_scaling() -> None:
    factors = [1.0 + 0.1 * i for i in range(3)]
    longrope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 3,
        "long_factor": factors,
        "original_max_position_embeddings": 16,
    }
    settings = {"rope_parameters": longrope, "original_max_position_embeddings": 16}
    model = tiny("phi3", torch.float64, settings=settings)
    short, long = prompts_of(9, 20, seed=4)
    clean = model.capture(short, logits="last").logits
    assert close(model.capture(short, logits="last", start=7).logits, clean, 1e-5)
    with pytest.raises(headwise.HeadwiseError) as caught:
        model.capture(short, start=8)
    assert str(caught.value) == (
        "start=8 and 9 tokens cross position 16, where longrope scaling changes the rotations of 'tiny-phi3': "
        "give a start of at most 7"
    )
    # a prompt that is itself beyond the switch has crossed it already, wherever it begins
    clean = model.capture(long, logits="last").logits
    assert close(model.capture(long, logits="last", start=30).logits, clean, 1e-5)

    dynamic = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    model = tiny("llama", torch.float64, settings={"rope_parameters": dynamic})
    assert close(
        model.capture(short, logits="last", start=55).logits, model.capture(short, logits="last").logits, 1e-5
    )
    with pytest.raises(
        headwise.HeadwiseError, match="start=56 and 9 tokens cross position 64, where dynamic"
    ):
        model.capture(short, start=56)
