"""Swaps made in the running model: is the attention as predicted, and does the answer follow?

Each condition is one edited forward pass over the test prompts: the two keys exchange a subspace for the
query's row alone, in one head, or in all heads at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from headwise.contrast.bank import FeatureBank
from headwise.contrast.measured import Measured
from headwise.contrast.rows import AnswerRow
from headwise.contrast.swaps import Edited
from headwise.errors import HeadwiseError
from headwise.model.edits import SwapWithin
from headwise.model.threads import steady
from headwise.progress import Tick
from headwise.scale.stages import Stages, ValueJob
from headwise.scale.work import Chunk, cut
from headwise.tasks.labelled.types import Example, Task
from headwise.types import Head, Subspace

if TYPE_CHECKING:
    from headwise.model.model import Model

WHOLE = "whole keys"
ALL_HEADS = "all heads"
TOGETHER = 16
"""Prompts that go through all edited passes before the next ones do."""


@dataclass(frozen=True, eq=False)
class Condition:
    """What two keys exchange in which heads; None for whole keys."""

    name: str
    subspaces: Mapping[Head, Subspace | None]

    @property
    def only(self) -> Head | None:
        """The head, if it is a single one."""
        return next(iter(self.subspaces)) if len(self.subspaces) == 1 else None


@dataclass(frozen=True, eq=False)
class Passes:
    """The passes of some prompts, one untouched and one per condition.

    Differences are the logit of the original's answer minus that of the target's.
    """

    clean: Tensor
    """[n]"""
    after: Tensor
    """[conditions, n]"""
    attention: Tensor
    """[conditions, n, 2]: the head's on original and target; NaN where a condition has several heads."""

    @classmethod
    def cat(cls, parts: Sequence[Passes]) -> Passes:
        """Several groups of prompts, one after another."""
        return cls(
            torch.cat([part.clean for part in parts]),
            torch.cat([part.after for part in parts], 1),
            torch.cat([part.attention for part in parts], 1),
        )


@dataclass(frozen=True, eq=False)
class PassesJob(ValueJob):
    """Runs test prompts once untouched and once per condition."""

    kind: ClassVar = Passes
    conditions: tuple[Condition, ...]

    def make(self, model: Model, chunk: Chunk[Example], tick: Tick, /) -> Passes:
        with steady():
            clean, _ = _difference(model, chunk.items, [], None)
            edited = [
                _difference(model, chunk.items, _edits(chunk.items, one.subspaces), one.only)
                for one in self.conditions
            ]
        after, attention = zip(*edited, strict=True)
        return Passes(clean, torch.stack(after), torch.stack(attention))


def answers_through_model(
    model: Model,
    task: Task,
    bank: FeatureBank,
    count: int,
    measured: Mapping[Head, Measured] | None = None,
    work: Stages | None = None,
) -> list[AnswerRow]:
    """Edited forward passes over the first ``count`` test prompts: one row per head and feature, and one per feature
    for all heads together. ``measured`` is what the passes are compared with.
    """
    places = [i for i, e in enumerate(task.test.examples[:count]) if e.answers]
    if not places:
        raise HeadwiseError(f"the task {task.name!r} names no answers, so edited passes have none to compare")
    conditions = tuple(_conditions(bank))
    run = work or Stages.here(model)
    chunks = cut([task.test.examples[i] for i in places], TOGETHER)
    passes = Passes.cat(run("running edits", PassesJob(conditions), chunks))
    found: list[AnswerRow] = []
    for number, one in enumerate(conditions):
        error = None
        if one.only is not None and measured is not None:
            told = measured[one.only]
            predicted = told.full if one.name == WHOLE else told.features[one.name].swap
            error = _error(passes.attention[number], predicted, places)
        found.append(_row(one, passes.clean, passes.after[number], error))
    return found


def _conditions(bank: FeatureBank) -> list[Condition]:
    """Every feature and whole keys, in each head and in all of them together."""
    together = [bank.heads] if len(bank.heads) > 1 else []
    names = dict.fromkeys(f.name for f in bank)
    return [
        Condition(name, {h: None if name == WHOLE else bank.get(h, name).key for h in heads})
        for name in [*names, WHOLE]
        for heads in [*((h,) for h in bank.heads), *together]
    ]


def _error(attention: Tensor, predicted: Edited, places: Sequence[int]) -> float:
    """The largest difference between attention [n, 2] and what was predicted for these test prompts."""
    both = torch.stack([predicted.original[places], predicted.target[places]], 1)
    return float((attention - both).abs().max())


def _row(condition: Condition, clean: Tensor, after: Tensor, error: float | None) -> AnswerRow:
    n, only = len(clean), condition.only
    return AnswerRow(
        head=str(only) if only else ALL_HEADS,
        name=condition.name,
        prompts=n,
        logit_difference=float(clean.mean()),
        edited_logit_difference=float(after.mean()),
        change=float((after - clean).mean()),
        change_se=float((after - clean).std() / n**0.5),
        prefers_original=float((clean > 0).double().mean()),
        flips=float(((clean > 0) != (after > 0)).double().mean()),
        error=error,
    )


def _edits(examples: Sequence[Example], subspaces: Mapping[Head, Subspace | None]) -> list[SwapWithin]:
    return [
        SwapWithin(head=head, prompt=i, first=e.swap[0], second=e.swap[1], subspace=subspace, seen_by=e.query)
        for head, subspace in subspaces.items()
        for i, e in enumerate(examples)
        if e.swap is not None
    ]


def _difference(
    model: Model, examples: Sequence[Example], edits: Sequence[SwapWithin], head: Head | None
) -> tuple[Tensor, Tensor]:
    """Logit of the original's answer minus the target's [n], and the attention of the head, if any, on both [n, 2]."""
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
    attention = torch.full_like(logits, float("nan")) if head is None else seen.pattern[:, 0, 0].double()
    return (logits[:, 0] - logits[:, 1]).cpu(), attention.cpu()
