"""The self-check passes on every family and fails when something is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from pace import first_is_quick
from tiny import tiny

from headwise.errors import HeadwiseError
from headwise.model import attend, check
from headwise.model.model import Model


def test_every_family_passes(model: Model) -> None:
    diagnosis = check.examine(model)
    assert diagnosis.ok, diagnosis
    assert max(c.error for c in diagnosis.checks) < 1e-5
    assert set(diagnosis.to_json()) == {"model", "family", "layers", "heads", "kv_heads", "checks", "ok"}


@pytest.mark.parametrize("dtype", first_is_quick(torch.bfloat16, torch.float16))
def test_half_precision_passes_with_its_own_tolerance(variant: str, dtype: torch.dtype) -> None:
    assert check.examine(tiny(variant, dtype)).ok


def _failed(model: Model) -> str:
    return " ".join(c.name for c in check.examine(model).checks if not c.ok)


def test_a_lost_mask_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwise.model import forward as passes

    model = tiny("llama")
    honest = attend.attend

    def bidirectional(call: attend.AttentionCall) -> torch.Tensor:
        open_mask = torch.ones(1, 1, call.key.shape[2], call.key.shape[2], dtype=torch.bool)
        return honest(attend.AttentionCall(**{**vars(call), "mask": open_mask}))

    monkeypatch.setattr(passes, "attend", bidirectional)
    assert "no position sees the future" in _failed(model)


def test_a_wrong_scale_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwise.model import capture

    model = tiny("gemma3")
    honest = capture.raw_scores
    monkeypatch.setattr(capture, "raw_scores", lambda q, k, scale, cap: honest(q, k, scale * 1.1, cap))
    assert "attention rebuilt" in _failed(model)


def test_a_wrong_gain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("gemma2")
    monkeypatch.setattr(model.anatomy, "family", replace(model.family, gain_offset=0.0))
    assert "parts in q/k space" in _failed(model)


def test_an_edit_that_leaks_to_neighbours_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    monkeypatch.setattr(attend.AttentionCall, "with_own_keys", lambda call: call)
    assert "neighbouring heads" in _failed(model)


def test_a_model_that_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwise.model import capture

    honest = capture.raw_scores
    monkeypatch.setattr(capture, "raw_scores", lambda q, k, scale, cap: honest(q, k, scale * 1.1, cap))
    with pytest.raises(HeadwiseError, match=r"'tiny-opt' failed its self-check.*attention rebuilt"):
        check.refuse_if_wrong(tiny("opt"))
