"""Heads silenced, set to their mean or patched: the numbers are those of the plain model with hooks in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from plain_hooks import bound, hooked, written
from tiny import VARIANTS, prompts_of, tiny
from toy_answers import small_model

import headwise
from headwise.bases import calibrate
from headwise.corpus import Corpus
from headwise.model.edits import OutputEdit
from headwise.model.model import Model
from headwise.toy.language import sentences
from headwise.types import Head
from headwise.why.head_effects import HeadEffect, HeadPlace, intervene_heads

HERE, THERE, LONGER = prompts_of(8, 8, 11, seed=2)
HEAD = Head(2, 1)


def lead(model: Model, edits: list[OutputEdit], answer: int, wrong: int) -> float:
    with hooked(model, edits):
        logits = model.hf(torch.tensor([HERE]), use_cache=False).logits[0, -1]
    return float(logits[answer] - logits[wrong])


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_action_is_what_hooks_on_the_plain_model_give(variant: str) -> None:
    model = tiny(variant, torch.float64)
    rows = list(range(len(HERE)))
    generator = torch.Generator().manual_seed(0)
    shape = (model.n_layers, model.n_heads, model.d_head)
    means = torch.randn(*shape, generator=generator, dtype=torch.float64)
    other, longer = written(model, THERE, HEAD), written(model, LONGER, HEAD)
    asked: list[tuple[str, dict[str, Any], OutputEdit]] = [
        ("L2H1", {}, headwise.Silence(head=HEAD, positions=rows)),
        ("L2H1@5", {}, headwise.Silence(head=HEAD, positions=5)),
        (
            "L2H1",
            {"action": "mean", "means": means},
            headwise.SetOutput(head=HEAD, positions=rows, value=means[2, 1].expand(8, -1)),
        ),
        (
            "L2H1",
            {"action": "patch", "source": THERE},
            headwise.SetOutput(head=HEAD, positions=rows, value=other),
        ),
        (
            "L2H1@-2",
            {"action": "patch", "source": LONGER, "align": {6: 9, 1: 0}},
            headwise.SetOutput(head=HEAD, positions=6, value=longer[9]),
        ),
        (
            "L2H1",
            {"action": "patch", "source": LONGER, "align": {6: 9, 1: 0}},
            headwise.SetOutput(head=HEAD, positions=[6, 1], value=longer[[9, 0]]),
        ),
    ]
    for head, request, edit in asked:
        (effect,) = intervene_heads(model, HERE, [head], answer=7, wrong=11, draws=2, **request)
        expected = lead(model, [edit], 7, 11)
        assert abs(effect.edited.lead - expected) <= bound(model) * max(1.0, abs(expected)) * 10
        assert effect.clean.lead == pytest.approx(lead(model, [], 7, 11), abs=1e-5)


def test_sets_controls_and_answer_are_as_said() -> None:
    model = tiny("llama", torch.float64)
    one, both = intervene_heads(model, HERE, ["L2H1@-1", ["L2H1", "L2H3", "L0H0"]], draws=9)
    assert isinstance(one, HeadEffect)
    assert (one.heads, both.heads) == (("L2H1@7",), ("L2H1", "L2H3", "L0H0"))
    assert (len(one.controls), len(both.controls)) == (3, 3), (
        "no control twice: 3 other heads; 1 pair by 3 heads"
    )
    logits = model.capture(HERE, heads=(), logits="last").logits[0, 0]
    best, second = logits.topk(2).values.tolist()
    assert one.clean.lead == pytest.approx(best - second)
    silenced = intervene_heads(model, HERE, ["L2H0@-1", "L2H2@-1", "L2H3@-1"], draws=0)
    assert sorted(c.lead for c in one.controls) == pytest.approx(sorted(e.edited.lead for e in silenced))
    assert silenced[0].control_lead_change is None
    (all_of_them,) = intervene_heads(model, HERE, [[f"L1H{i}" for i in range(3)]], draws=4)
    assert all_of_them.controls == ()


def test_a_start_is_where_both_prompts_begin() -> None:
    model = tiny("qwen3", torch.float64)
    for request in ({}, {"action": "patch", "source": THERE}):
        clean, moved = (
            intervene_heads(model, HERE, ["L1H1@5"], draws=0, start=start, **request)[0] for start in (0, 20)
        )
        assert moved.edited.lead == pytest.approx(clean.edited.lead, rel=1e-4)


def test_means_are_those_of_the_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path))
    model = small_model()
    texts = tuple(dict.fromkeys(s.text for s in sentences(60, 0, "means")))
    corpus = Corpus("sentences", texts, ("a",) * len(texts))
    monkeypatch.setattr(calibrate, "pooled_corpus", lambda _model: corpus)
    found = calibrate.calibrate(model, corpus)
    heads = [str(head) for head in model.heads[:2]]
    request: dict[str, Any] = {"action": "mean", "draws": 1}
    by_calibration = intervene_heads(model, texts[0], heads, means=found, **request)
    by_tensor = intervene_heads(model, texts[0], heads, means=found.outputs, **request)
    assert by_calibration == by_tensor
    by_default = intervene_heads(model, texts[0], heads, **request)
    for one, other in zip(by_default, by_calibration, strict=True):
        assert one.edited.lead == pytest.approx(other.edited.lead, abs=1e-4)
    with pytest.raises(headwise.HeadwiseError, match=r"this calibration is of .* not of 'tiny-llama'"):
        intervene_heads(tiny("llama"), HERE, ["L0H0"], means=found, **request)


@pytest.mark.parametrize(
    ("heads", "request_", "message"),
    [
        (["L9H0"], {}, "L9H0 does not exist"),
        (["L1H0@8"], {}, "L1H0 position 8 is outside prompt 0, which has 8 tokens"),
        (["L1H0@x"], {}, "'x' in 'L1H0@x' is not a position: write a head at one position as L1H0@13"),
        ([[]], {}, "a set of no heads was given"),
        (["L1H0"], {"action": "remove"}, "write 'silence', 'mean' or 'patch'"),
        (
            ["L1H0"],
            {"means": torch.zeros(1)},
            "means are used only with the action 'mean', not with 'silence'",
        ),
        (["L1H0"], {"action": "mean", "means": torch.zeros(4, 4, 9)}, r"not a tensor of shape \[4, 4, 8\]"),
        (["L1H0"], {"action": "patch"}, "patch takes values from another prompt"),
        (["L1H0"], {"source": THERE}, "source= is used only with the action 'patch'"),
        (["L1H0"], {"action": "patch", "source": LONGER}, "the prompt has 8 tokens and the other one 11"),
        (
            ["L1H0@3"],
            {"action": "patch", "source": LONGER, "align": {4: 4}},
            "L1H0@3 is at position 3, which is aligned with none of the other prompt: add it to align=",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(heads: Any, request_: dict[str, Any], message: str) -> None:
    with pytest.raises(headwise.HeadwiseError, match=message):
        intervene_heads(tiny("llama"), HERE, heads, draws=1, **request_)


def test_a_place_is_read_as_it_is_written() -> None:
    for text in ("L2H1", "L2H1@13"):
        assert str(HeadPlace.parse(text)) == text
