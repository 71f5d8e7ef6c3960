"""Edited copies of one prompt, packed behind what they share, are what each would be in a pass of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny

import headwise
from headwise.model import forward as forward_module
from headwise.model.edits import AddToStream, ChangeOutput, Edit
from headwise.types import Head

PROMPT = prompts_of(9, seed=5)[0]


def vectors(model: headwise.Model, *shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(model.dtype)


def plans(model: headwise.Model) -> dict[str, list[list[Edit]]]:
    """Edits of several copies: at the last token, in the middle, at several places, seen by one row, in the stream."""
    d, width = model.d_head, model.anatomy.d_model
    last = [
        headwise.AddVectors(head=Head(1, i), side="query", positions=-1, value=vectors(model, d, seed=i))
        for i in range(3)
    ]
    middle = headwise.SetVectors(head=Head(2, 1), positions=4, value=vectors(model, d, seed=7))
    private = headwise.AddVectors(
        head=Head(1, 2), positions=list(range(7)), value=vectors(model, 7, d, seed=8), seen_by=6
    )
    swap = headwise.SwapWithin(head=Head(3, 0), first=3, second=6)
    stream = AddToStream(layer=2, positions=[5, 8], value=vectors(model, 2, width, seed=9))
    return {
        "last token": [[one] for one in last],
        "middle": [[], [middle], [middle, last[0]]],
        "seen by one row": [[private], [private, last[1]], []],
        "several places": [[swap, last[2]], [middle, private], [last[0]]],
        "stream": [
            [stream],
            [stream, last[1]],
            [AddToStream(layer=0, positions=[6], value=vectors(model, 1, width))],
        ],
        "first token": [
            [headwise.SetVectors(head=Head(0, 1), positions=0, value=vectors(model, d))],
            [middle],
        ],
        "outputs": [[ChangeOutput(change=lambda call, output: output * 0.5)], [last[0]]],
    }


@pytest.mark.parametrize("kind", list(plans(tiny("llama"))))
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_packed_copy_is_what_it_would_be_alone(variant: str, kind: str) -> None:
    model = tiny(variant, torch.float64)
    chosen = plans(model)[kind]
    request: dict[str, Any] = {
        "heads": ["L1H2", "L3H0"],
        "queries": [2, 6, -1],
        "want": ("pattern", "q", "k"),
    }
    for logits in ("last", [[3, -1]]):
        edits = [_in(copy, edit) for copy, plan in enumerate(chosen) for edit in plan]
        places: Any = logits if logits == "last" else logits * len(chosen)
        packed = model.edit([PROMPT] * len(chosen), edits, logits=places, **request)
        for copy, plan in enumerate(chosen):
            # One prompt is never packed: this is the plain edited pass.
            alone = model.edit([PROMPT], [_in(0, edit) for edit in plan], logits=logits, **request)  # pyright: ignore[reportArgumentType]
            for name in ("pattern", "q", "k", "logits"):
                one, other = getattr(packed, name)[copy], getattr(alone, name)[0]
                assert (one - other).abs().max() <= 1e-9 * other.abs().max(), name


@pytest.mark.parametrize("kind", list(plans(tiny("llama"))))
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_copy_goes_on_from_the_recorded_pass_as_from_the_prompt(variant: str, kind: str) -> None:
    model = tiny(variant, torch.float64)
    chosen = plans(model)[kind]
    start = 0 if model.family.learned_positions else 3
    request: dict[str, Any] = {
        "edits": [_in(copy, edit) for copy, plan in enumerate(chosen) for edit in plan],
        "heads": ["L1H2", "L3H0"],
        "queries": [2, 6, -1],
        "want": ("pattern", "q", "k"),
        "logits": "last",
        "start": start,
    }
    # Recorded beside a longer prompt: the copies know nothing of its padding.
    for others in ([], prompts_of(13, seed=6)):
        clean = model.split([*others, PROMPT], start=start).clean_pass(len(others))
        assert clean is not None
        (_, resumed), *_ = model.stream_capture([PROMPT] * len(chosen), **request, clean=clean)
        (_, packed), *_ = model.stream_capture([PROMPT] * len(chosen), **request)
        for name in ("pattern", "q", "k", "logits"):
            one, other = getattr(resumed, name), getattr(packed, name)
            assert (one - other).abs().max() <= 1e-9 * other.abs().max(), name


def test_what_no_edit_reaches_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    clean = model.split(PROMPT).clean_pass(0)
    seen: dict[int, int] = {}
    inner = forward_module._attended

    def counted(call: Any, instruments: Any) -> Any:
        seen[call.layer] = call.query.shape[0] * call.query.shape[2]
        return inner(call, instruments)

    monkeypatch.setattr(forward_module, "_attended", counted)
    edits = [
        headwise.AddVectors(head=Head(2, 0), side="query", positions=-1, value=torch.ones(8), prompt=i)
        for i in range(5)
    ]
    list(model.stream_capture([PROMPT] * 5, edits=edits, heads=(), logits="last", clean=clean))
    assert seen == {2: 5, 3: 5}
    # Logits before the first edit are those of the whole prompt, which the copies alone do not have.
    list(model.stream_capture([PROMPT] * 5, edits=edits, heads=(), logits=[[0, -1]] * 5, clean=clean))
    assert seen[2] == len(PROMPT) - 1 + 5


def test_an_unfinished_or_left_padded_pass_is_no_beginning() -> None:
    model = tiny("llama")
    assert model.split(PROMPT, layers=2).clean_pass(0) is None
    assert model.split([PROMPT, PROMPT[:4]], padding="left").clean_pass(1) is None


def _in(prompt: int, edit: Edit) -> Edit:
    from dataclasses import replace

    return replace(edit, prompt=prompt)


def test_what_no_edit_reaches_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    seen: dict[int, int] = {}
    inner = forward_module._attended

    def counted(call: Any, instruments: Any) -> Any:
        seen[call.layer] = call.query.shape[0] * call.query.shape[2]
        return inner(call, instruments)

    monkeypatch.setattr(forward_module, "_attended", counted)
    copies = 5
    edits = [
        headwise.AddVectors(
            head=Head(2, 0), side="query", positions=-1, value=vectors(model, 8, seed=i), prompt=i
        )
        for i in range(copies)
    ]
    model.edit([PROMPT] * copies, edits)
    whole = len(PROMPT)
    assert seen == {0: whole, 1: whole, 2: whole - 1 + copies, 3: whole - 1 + copies}


@pytest.mark.parametrize(
    ("edit", "first"),
    [
        (headwise.AddVectors(head=Head(0, 0), positions=[5, 3], value=torch.zeros(8)), 3),
        (headwise.AddVectors(head=Head(0, 0), positions=[0, 1], value=torch.zeros(8), seen_by=-1), 8),
        (headwise.SwapWithin(head=Head(0, 0), first=7, second=2), 2),
        (headwise.RemoveWithin(head=Head(0, 0), subspace=headwise.Subspace(torch.eye(8)[:, :2])), 0),
    ],
)
def test_an_edit_knows_the_first_position_it_reaches(edit: Any, first: int) -> None:
    assert edit.first_position(9) == first
