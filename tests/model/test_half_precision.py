"""Half precision: weights as they are, parts in float32, errors no larger than what the model itself rounds away."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from pace import first_is_quick
from tiny import prompts_of, tiny

import headwise
from headwise.model import check
from headwise.model.attend import identity_tolerance
from headwise.model.model import Model
from headwise.model.stream import Stream
from headwise.types import Head, Side

PROMPT = prompts_of(12)[0]
HALVES = pytest.mark.parametrize("dtype", first_is_quick(torch.bfloat16, torch.float16))
SIDES: tuple[Side, ...] = ("query", "key")


def in_float32(model: Model) -> Model:
    """The very weights of a half-precision model, computed with in float32."""
    return Model(copy.deepcopy(model.hf).float(), name=model.name)


def off(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


@HALVES
def test_parts_are_off_by_no_more_than_the_model_itself(variant: str, dtype: torch.dtype) -> None:
    """The yardstick is the model's own arithmetic: how far its vectors are from the same weights in float32."""
    model = tiny(variant, dtype)
    stream, single = model.split(PROMPT), in_float32(model).split(PROMPT)
    assert model.hf.dtype == dtype
    assert stream.layers[0].stream.dtype == torch.float32
    errors, own = [], []
    for position in (3, 7, 11):
        for layer in range(1, model.n_layers + 1):
            errors.append(stream.writes(layer, position).error)
            own.append(off(stream.before(layer)[0, position], single.before(layer)[0, position]))
        for layer in range(1, model.n_layers):
            for side in SIDES:
                head = Head(layer, 1)
                errors.append(stream.shares(head, side, position).error)
                own.append(off(*(_vector(one, head, side)[position] for one in (stream, single))))
    assert max(errors) <= identity_tolerance(dtype)
    assert sum(errors) <= sum(own)


def _vector(stream: Stream, head: Head, side: Side) -> torch.Tensor:
    call = stream.layers[head.layer].call
    return call.query[0, head.index] if side == "query" else call.key_of(head.index)[0]


@HALVES
def test_an_explanation_says_its_error_and_what_is_allowed(variant: str, dtype: torch.dtype) -> None:
    why = headwise.explain(tiny(variant, dtype), PROMPT, draws=19)
    document = why.to_json()
    for part in ("log_odds", "proof"):
        if document[part]["tolerance"] is not None:
            assert 0 <= document[part]["error"] <= document[part]["tolerance"]
    assert why.proof.tolerance is None or why.proof.tolerance <= why.what.tolerance / 4
    single = headwise.explain(tiny(variant), PROMPT, draws=19).what
    assert single.error <= single.tolerance < 0.01 * why.what.tolerance


@HALVES
def test_a_small_mistake_is_larger_than_the_tolerance(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """Gains off by 6 % are found, which a tolerance that is merely wide would let pass."""
    model = tiny("gemma2", dtype)
    assert check.examine(model).ok
    monkeypatch.setattr(model.anatomy, "family", replace(model.family, gain_offset=1.06))
    failed = [one.name for one in check.examine(model).checks if not one.ok]
    assert any("parts" in name for name in failed)


@HALVES
def test_edits_and_copies_of_half_precision_models(variant: str, dtype: torch.dtype) -> None:
    """A head without its key's part of the logit, in the model and by hand."""
    model = tiny(variant, dtype)
    seen = model.capture([PROMPT], heads="L2H1", want=("q", "k", "scores", "pattern"))
    edit = headwise.SetVectors(head=Head(2, 1), positions=[5], value=torch.zeros(model.d_head))
    scores = seen.scores[0, 0, 11].clone()
    scores[5] = torch.where(scores[5].isinf(), scores[5], torch.zeros(()))
    after = model.edit([PROMPT], [edit], heads="L2H1", queries=11).pattern[0, 0, 0]
    assert off(after, scores.softmax(-1)) < 1e-5  # both from the same rounded vectors
