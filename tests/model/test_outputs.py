"""Edits of what a head writes are exact: against hooks on the plain model's own output projections."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from plain_hooks import bound, hooked, written
from tiny import VARIANTS, prompts_of, tiny
from torch import Tensor

import headwise
from headwise.model.edits import Edit, OutputEdit
from headwise.model.model import Model
from headwise.model.outputs import head_outputs
from headwise.types import Head

PROMPT, LONGER = prompts_of(9, 13, seed=6)


def plans(model: Model) -> list[list[OutputEdit]]:
    generator = torch.Generator().manual_seed(1)

    def value(*shape: int) -> Tensor:
        return torch.randn(*shape, model.d_head, generator=generator, dtype=torch.float64)

    every = list(range(len(PROMPT)))
    return [
        [headwise.Silence(head=Head(1, 2), positions=-1)],
        [headwise.Silence(head=Head(2, 0), positions=every)],
        [headwise.SetOutput(head=Head(1, 3), positions=[4, 7], value=value(2))],
        [
            headwise.SetOutput(head=Head(3, 1), positions=5, value=value()),
            headwise.Silence(head=Head(3, 0), positions=[5, 6]),
            headwise.SetOutput(head=Head(0, 1), positions=[3], value=value(1)),
        ],
    ]


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_a_head_writes_is_replaced_exactly(variant: str, padding: Literal["right", "left"]) -> None:
    model = tiny(variant, torch.float64)
    chosen = plans(model)
    request: dict[str, Any] = {"heads": ["L3H2"], "want": ("pattern",)}
    edits = [replace(edit, prompt=copy) for copy, plan in enumerate(chosen) for edit in plan]
    packed = model.edit([PROMPT] * len(chosen), edits, logits=None, **request)
    for copy, plan in enumerate(chosen):
        with hooked(model, plan):
            expected = model.hf(torch.tensor([PROMPT]), use_cache=False).logits[0]
        alone = model.edit([PROMPT], plan, logits=None, **request)
        made = [replace(edit, prompt=0) for edit in plan]
        beside = model.edit([PROMPT, LONGER], made, logits=None, padding=padding, **request)
        for got in (packed.logits[copy], alone.logits[0], beside.logits[0, : len(PROMPT)]):
            assert (got - expected).abs().max() <= bound(model) * expected.abs().max()
        clean = model.capture(LONGER, logits=None, **request)
        assert (beside.logits[1] - clean.logits[0]).abs().max() <= 1e-9 * clean.logits.abs().max()
        assert (
            beside.pattern[0, ..., : len(PROMPT)] - _padded(packed.pattern[copy], LONGER)
        ).abs().max() < 1e-9


def _padded(pattern: Tensor, longer: list[int]) -> Tensor:
    """Rows of the longer prompt that the shorter one does not have are zero."""
    filled = torch.zeros(pattern.shape[0], len(longer), pattern.shape[2], dtype=pattern.dtype)
    filled[:, : pattern.shape[1]] = pattern
    return filled


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_captured_outputs_are_what_the_projection_is_given(
    variant: str, padding: Literal["right", "left"]
) -> None:
    model = tiny(variant, torch.float64)
    heads = [Head(1, 2), Head(3, 0)]
    found = head_outputs(model, [PROMPT, LONGER], heads, padding=padding)[0]
    for head in heads:
        own = written(model, PROMPT, head)
        assert (found[head] - own).abs().max() <= bound(model) * own.abs().max()
    # and put back where they were, they change nothing
    same: list[Edit] = [headwise.SetOutput(head=head, value=found[head]) for head in heads]
    clean = model.capture(PROMPT, heads=(), logits=None).logits
    assert (model.edit(PROMPT, same, logits=None).logits - clean).abs().max() <= 1e-9 * clean.abs().max()


def test_an_edit_of_keys_of_the_same_head_comes_first() -> None:
    """A silenced row stays silent even if the row reads private keys."""
    model = tiny("llama", torch.float64)
    add = headwise.AddVectors(head="L1H2", positions=[0, 1], value=torch.ones(8), seen_by=6)  # pyright: ignore[reportArgumentType]
    silent = headwise.Silence(head="L1H2", positions=6)  # pyright: ignore[reportArgumentType]
    both = model.edit(PROMPT, [add, silent], logits=None).logits
    alone = model.edit(PROMPT, [silent], logits=None).logits
    assert (both - alone).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (headwise.Silence(head=Head(9, 0)), "L9H0 does not exist"),
        (headwise.Silence(head=Head(1, 0), positions=9), "L1H0 output position 9 is outside prompt 0"),
        (headwise.SetOutput(head=Head(1, 0), value=torch.zeros(5)), "5 dimensions but the head has 8"),
        (
            headwise.SetOutput(head=Head(1, 0), positions=[1, 2, 3], value=torch.zeros(2, 8)),
            r"a value of shape \[2, 8\] was given for 3 positions: give one vector, or one for each",
        ),
        (
            headwise.AddVectors(head=Head(1, 0), positions=[1, 2, 3], value=torch.zeros(2, 8)),
            r"a value of shape \[2, 8\] was given for 3 positions",
        ),
    ],
)
def test_an_edit_that_does_not_fit_is_one_line(edit: Edit, message: str) -> None:
    with pytest.raises(headwise.HeadwiseError, match=message):
        tiny("llama").edit(PROMPT, [edit])
