"""The self-check: does what headwise sees and does agree with the model's own forward pass?

Runs on load and as ``headwise doctor``. Every check compares two independent ways to the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.attend import at_least_float32, identity_tolerance
from headwise.model.edits import SwapWithin
from headwise.model.loading.trouble import runnable
from headwise.model.model import Model
from headwise.model.stream import Stream
from headwise.tokens import NoTokenizer
from headwise.types import Head

PROMPT = "When Mary and John went to the store, John gave a drink to"

_TOLERANCE = {
    # transformers' RMS norms and eager softmax round to float32 even in a float64 model
    torch.float64: 1e-5,
    torch.float32: 1e-4,
    # two passes by two kernels: every layer rounds anew, and a softmax makes large differences of small ones
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
_STREAM, _SHARES = "residual parts sum to the stream", "parts in q/k space sum to queries and keys"
_EDITED, _NEIGHBOURS = (
    "an edit changes its own head as predicted",
    "an edit leaves the neighbouring heads unchanged",
)
_IDENTITIES = (_STREAM, _SHARES, _EDITED, _NEIGHBOURS)
"""Checks within one pass: both ways start from the same rounded numbers."""


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: ``error`` must not exceed ``tolerance``."""

    name: str
    error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance  # NaN is not ok


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All checks of one model."""

    model: str
    family: str
    layers: int
    heads: int
    kv_heads: int
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["checks"] = [{**asdict(check), "ok": check.ok} for check in self.checks]
        return {**found, "ok": self.ok}


def examine(model: Model, prompt: str | list[int] | None = None) -> Diagnosis:
    """Run every check on a short prompt."""
    with runnable(model.name):
        errors = _errors(model, _prompt_ids(model, prompt))
    dtype = model.rounds_to
    passes = _TOLERANCE.get(dtype, 1e-4)
    within = max(identity_tolerance(dtype), passes if dtype == torch.float32 else 0.0)
    checks = tuple(
        Check(name, error, within if name in _IDENTITIES else passes) for name, error in errors.items()
    )
    return Diagnosis(model.name, model.family.name, model.n_layers, model.n_heads, model.n_kv_heads, checks)


def _errors(model: Model, ids: list[int]) -> dict[str, float]:
    own_logits, own_pattern = _own_numbers(model, ids)
    seen = model.capture([ids], want=("pattern",), logits=None)
    logits, pattern = seen.logits[0], seen.pattern[0]
    stream = model.split([ids])
    edited_head, its_neighbours = _edit_errors(model, ids, pattern)
    return {
        "logits of the instrumented pass = the untouched model's": _relative(logits, own_logits),
        "attention rebuilt from captured q, k = the model's own": float((pattern - own_pattern).abs().max()),
        _STREAM: _stream_error(stream),
        _SHARES: _shares_error(stream),
        "no position sees the future": _future_error(model, ids, logits),
        "padded keys get no attention, left or right": _padding_error(model, ids, pattern),
        _EDITED: edited_head,
        _NEIGHBOURS: its_neighbours,
    }


def refuse_if_wrong(model: Model) -> None:
    """Raise one line that names the failed checks."""
    diagnosis = examine(model)
    if not diagnosis.ok:
        failed = "; ".join(
            f"{check.name} (error {check.error:.1e}, allowed {check.tolerance:.0e})"
            for check in diagnosis.checks
            if not check.ok
        )
        raise HeadwiseError(
            f"{model.name!r} failed its self-check, so its numbers cannot be trusted: {failed}"
        )


def _prompt_ids(model: Model, prompt: str | list[int] | None) -> list[int]:
    if prompt is None and isinstance(model.tokenizer, NoTokenizer):
        return [(7 * i + 3) % model.vocabulary for i in range(12)]
    return model.prompt_ids(PROMPT if prompt is None else prompt)


def _own_numbers(model: Model, ids: list[int]) -> tuple[Tensor, Tensor]:
    """Logits [t, vocabulary] by the model as it stands, and patterns [all heads, t, t] by its eager attention."""
    inputs = torch.tensor([ids], device=model.device)
    with torch.no_grad(), model.lock:
        logits = model.hf(inputs, use_cache=False).logits[0].to(model.result_device)
        with _eager(model):
            attentions = model.hf(inputs, use_cache=False, output_attentions=True).attentions
    pattern = torch.cat([attention[0].to(model.result_device) for attention in attentions])
    return logits, at_least_float32(pattern)


@contextmanager
def _eager(model: Model) -> Iterator[None]:
    config = model.anatomy.config
    before = config._attn_implementation
    config._attn_implementation = "eager"
    try:
        yield
    finally:
        config._attn_implementation = before


def _relative(ours: Tensor, own: Tensor) -> float:
    own = own.to(ours.dtype)
    return float((ours - own).abs().max() / own.abs().max().clamp(min=1e-30))


def _stream_error(stream: Stream) -> float:
    layers = stream.model.n_layers
    return max(stream.writes(layer, -1).error for layer in (1, layers // 2, layers))


def _shares_error(stream: Stream) -> float:
    model = stream.model
    last, middle = Head(model.n_layers - 1, model.n_heads - 1), Head(model.n_layers // 2, 0)
    return max(stream.shares(head, side, -1).error for head in (last, middle) for side in ("query", "key"))


def _future_error(model: Model, ids: list[int], logits: Tensor) -> float:
    """Another last token must change nothing before it: a lost mask makes a model silently bidirectional."""
    other = [*ids[:-1], ids[0] if ids[0] != ids[-1] else ids[1]]
    changed = model.capture([other], heads=(), logits=None).logits
    return _relative(changed[0, :-1], logits[:-1])


def _padding_error(model: Model, ids: list[int], alone: Tensor) -> float:
    """The prompt padded beside a longer one must show, in every layer, the pattern it shows alone."""
    longer = [*ids, *ids[:5]]
    worst = 0.0
    for padding in ("left", "right"):
        padded = model.capture([ids, longer], want=("pattern",), padding=padding).pattern
        mine = padded[0, :, : len(ids), : len(ids)]
        worst = max(worst, float((mine - alone).abs().max()))
    return worst


def _edit_errors(model: Model, ids: list[int], pattern: Tensor) -> tuple[float, float]:
    """Swap two keys of one head of a middle layer: its own row must swap too, the layer's other heads must not move."""
    head = Head(model.n_layers // 2, 0)
    layer = [Head(head.layer, index) for index in range(model.n_heads)]
    first, second, row = len(ids) - 3, len(ids) - 2, len(ids) - 1
    edit = SwapWithin(head=head, first=first, second=second)
    after = model.edit([ids], [edit], heads=layer, queries=row, logits="none").pattern
    start = head.layer * model.n_heads
    expected = pattern[start : start + model.n_heads, row].clone()
    expected[0, [first, second]] = expected[0, [second, first]]
    error = (after[0, :, 0] - expected).abs()
    return float(error[0].max()), float(error[1:].max()) if len(layer) > 1 else 0.0
