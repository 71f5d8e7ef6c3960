"""Swaps made in the running model: is the attention as predicted, and does the answer follow?

Each condition is one edited forward pass over the test prompts: the two keys exchange a subspace for the
query's row alone, in one head, or in all heads at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.contrast.bank import FeatureBank
from headwise.contrast.measured import Measured
from headwise.contrast.rows import AnswerRow
from headwise.contrast.swaps import Edited
from headwise.errors import HeadwiseError
from headwise.model.edits import SwapWithin
from headwise.progress import Tick
from headwise.tasks.labelled.types import Example, Task
from headwise.types import Head, Subspace

if TYPE_CHECKING:
    from headwise.model.model import Model

WHOLE = "whole keys"
ALL_HEADS = "all heads"


def answers_through_model(
    model: Model,
    task: Task,
    bank: FeatureBank,
    count: int,
    measured: Mapping[Head, Measured] | None = None,
    tick: Tick | None = None,
) -> list[AnswerRow]:
    """Edited forward passes over the first ``count`` test prompts: one row per head and feature, and one per feature
    for all heads together. ``measured`` is what the passes are compared with.
    """
    examples = [e for e in task.test.examples[:count] if e.answers]
    if not examples:
        raise HeadwiseError(f"the task {task.name!r} names no answers, so edited passes have none to compare")
    names = list(dict.fromkeys(f.name for f in bank))
    together = [bank.heads] if len(bank.heads) > 1 else []
    clean = _difference(model, examples, [], None)[0]
    found: list[AnswerRow] = []
    for name in [*names, WHOLE]:
        for heads in [*((h,) for h in bank.heads), *together]:
            only = heads[0] if len(heads) == 1 else None
            edits = [
                edit
                for h in heads
                for edit in _edits(examples, h, None if name == WHOLE else bank.get(h, name).key)
            ]
            after, attention = _difference(model, examples, edits, only)
            predicted = None
            if only is not None and measured is not None:
                one = measured[only]
                predicted = one.full if name == WHOLE else one.features[name].swap
            found.append(_row(only, name, clean, after, attention, predicted))
    if tick is not None:
        tick(len(examples))
    return found


def _row(
    head: Head | None, name: str, clean: Tensor, after: Tensor, attention: Tensor, predicted: Edited | None
) -> AnswerRow:
    n, error = len(clean), None
    if predicted is not None:
        both = torch.stack([predicted.original[:n], predicted.target[:n]], 1)
        error = float((attention - both).abs().max())
    return AnswerRow(
        head=str(head) if head else ALL_HEADS,
        name=name,
        prompts=n,
        logit_difference=float(clean.mean()),
        edited_logit_difference=float(after.mean()),
        change=float((after - clean).mean()),
        change_se=float((after - clean).std() / n**0.5),
        prefers_original=float((clean > 0).double().mean()),
        flips=float(((clean > 0) != (after > 0)).double().mean()),
        error=error,
    )


def _edits(examples: Sequence[Example], head: Head, subspace: Subspace | None) -> list[SwapWithin]:
    return [
        SwapWithin(head=head, prompt=i, first=e.swap[0], second=e.swap[1], subspace=subspace, seen_by=e.query)
        for i, e in enumerate(examples)
        if e.swap is not None
    ]


def _difference(
    model: Model, examples: Sequence[Example], edits: Sequence[SwapWithin], head: Head | None
) -> tuple[Tensor, Tensor]:
    """Logit of the original's answer minus the target's [n], and the head's attention on both [n, 2]; without a head,
    the two logits.
    """
    seen = model.edit(
        [e.tokens for e in examples],
        edits,
        heads=() if head is None else (head,),
        queries=[[e.query] for e in examples],
        keys=[list(e.swap or ()) for e in examples],
        logits=[[e.query] for e in examples],
    )
    answers = [[e.answers[e.keys.index(key)] for key in e.swap or ()] for e in examples]
    logits = seen.logits[:, 0].double().gather(1, torch.tensor(answers, device=seen.logits.device))
    attention = logits if head is None else seen.pattern[:, 0, 0].double()
    return (logits[:, 0] - logits[:, 1]).cpu(), attention.cpu()
