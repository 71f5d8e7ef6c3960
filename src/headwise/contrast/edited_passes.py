"""Swaps made in the running model: is the attention as predicted, and does the answer follow?

Each condition is one edited forward pass over the test prompts: the two keys exchange a subspace for the
query's row alone, in one head, or in all heads at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.contrast.bank import FeatureBank
from headwise.contrast.collect import Tick
from headwise.errors import HeadwiseError
from headwise.model.edits import SwapWithin
from headwise.tasks.labelled.types import Example, Task
from headwise.types import Head, Subspace

if TYPE_CHECKING:
    from headwise.model.model import Model

WHOLE = "whole keys"


def through_model(
    model: Model,
    task: Task,
    bank: FeatureBank,
    count: int,
    measured: Mapping[str, Tensor] | None = None,
    tick: Tick | None = None,
) -> list[dict[str, Any]]:
    """Edited forward passes over the first ``count`` test prompts: one record a head and feature, and one
    for all heads together.

    ``logit_difference`` is logit(original's answer) − logit(target's answer); ``flips`` the share of prompts
    in which the order of the two turned around; ``error`` the largest difference between the attention of the
    edited pass and the analytic one.
    """
    examples = [e for e in task.test.examples[:count] if e.answers]
    if not examples:
        raise HeadwiseError(f"the task {task.name!r} names no answers: --through-model needs them")
    names = list(dict.fromkeys(f.name for f in bank))
    clean = _difference(model, examples, [], None)[0]
    found: list[dict[str, Any]] = []
    for name in [*names, WHOLE]:
        for heads in [*([h] for h in bank.heads), *([list(bank.heads)] if len(bank.heads) > 1 else [])]:
            parts = {h: None if name == WHOLE else bank.get(h, name).key for h in heads}
            only = heads[0] if len(heads) == 1 else None
            edits = [e for h, s in parts.items() for e in _edits(examples, h, s)]
            after, attention = _difference(model, examples, edits, only)
            record = {
                "head": str(only) if only else "all heads",
                "name": name,
                "prompts": len(examples),
                "logit_difference": float(clean.mean()),
                "edited_logit_difference": float(after.mean()),
                "change": float((after - clean).mean()),
                "change_se": float((after - clean).std() / len(examples) ** 0.5),
                "prefers_original": float((clean > 0).double().mean()),
                "flips": float(((clean > 0) != (after > 0)).double().mean()),
                "error": None,
            }
            if only is not None and measured is not None:
                key = f"{only}|full" if name == WHOLE else f"{only}|{name}|swap"
                record["error"] = float((attention - measured[key][:2, : len(examples)].T).abs().max())
            found.append(record)
    if tick is not None:
        tick(len(examples))
    return found


def _edits(examples: Sequence[Example], head: Head, subspace: Subspace | None) -> list[SwapWithin]:
    return [
        SwapWithin(head=head, prompt=i, first=e.swap[0], second=e.swap[1], subspace=subspace, seen_by=e.query)
        for i, e in enumerate(examples)
        if e.swap is not None
    ]


def _difference(
    model: Model, examples: Sequence[Example], edits: Sequence[SwapWithin], head: Head | None
) -> tuple[Tensor, Tensor]:
    """Logit of the original's answer minus the target's [n], and the head's attention on both [n, 2]."""
    seen = model.edit(
        [e.tokens for e in examples],
        edits,
        heads=() if head is None else (head,),
        queries=[[e.query] for e in examples],
        keys=[list(e.swap or ()) for e in examples],
        logits=[[e.query] for e in examples],
    )
    assert seen.logits is not None
    answers = [[e.answers[e.keys.index(key)] for key in e.swap or ()] for e in examples]
    logits = seen.logits[:, 0].double().gather(1, torch.tensor(answers, device=seen.logits.device))
    attention = seen.pattern[:, 0, 0].double() if head is not None and seen.pattern is not None else logits
    return (logits[:, 0] - logits[:, 1]).cpu(), attention.cpu()
