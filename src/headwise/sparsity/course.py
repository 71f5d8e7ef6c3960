"""Sparsity over the checkpoints of a training: the same cells in every one of them.

The last checkpoint says which cells matter: those that the circuits of a task use in it. These cells are then split
over channels in every checkpoint. Singular values alone make channels unequal, and they change with training, too; so
the claim is that cells grow sparser by more than each of the five nulls (``nulls.py``) does in their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.claims import claim, sign_flips
from headwise.errors import HeadwiseError
from headwise.intervals import estimate
from headwise.model.loading.checkpoints import name_and_revision, require_series
from headwise.model.loading.load import load
from headwise.model.model import Model
from headwise.progress import Progress
from headwise.randomness import keyed
from headwise.scale.stages import Stages
from headwise.scale.work import cut
from headwise.sparsity.cells import PART, PromptCell, split_cells
from headwise.sparsity.nulls import ALL_FIVE, FLIPS, NULLS, by_prompt, strictest
from headwise.sparsity.study import choose
from headwise.sparsity.summary import HeadCells, measure
from headwise.sparsity.use import UseJob
from headwise.tasks.answers.make import make_answers
from headwise.tasks.answers.types import AnswerSet
from headwise.tasks.clusters import units_of
from headwise.types import Claim, Estimate


@dataclass(frozen=True)
class CheckpointSparsity:
    """One checkpoint: the cells of all heads together."""

    name: str
    """The checkpoint as it was given."""
    weight_hash: str
    """The digest of its weights."""
    attention: Estimate
    """Attention of the cells."""
    sparsity: Estimate
    """Sparsity along singular channels."""
    nulls: dict[str, Estimate]
    """The same of each null, by its name."""
    control: Estimate
    """The same along rotated directions."""
    needed: Estimate
    """Channels, largest first, whose sum comes within 10 % of the relative logit."""
    control_needed: Estimate
    """The same along rotated directions."""
    heads: dict[str, float]
    """Sparsity of each head."""

    def to_json(self) -> dict[str, Any]:
        """Every field by its name."""
        names = ("attention", "sparsity", "control", "needed", "control_needed")
        found = {name: getattr(self, name).to_json() for name in names}
        nulls = {name: one.to_json() for name, one in self.nulls.items()}
        return {
            "name": self.name,
            "weight_hash": self.weight_hash,
            **found,
            "nulls": nulls,
            "heads": self.heads,
        }


@dataclass(frozen=True)
class SparsityCourse:
    """A task's cells over the checkpoints of a training."""

    task: str
    """The task's name."""
    prompts: int
    """Prompts with cells."""
    cells: int
    """Cells that were followed."""
    unit: str
    """What intervals and the claim count: wordings, or prompts."""
    checkpoints: tuple[CheckpointSparsity, ...]
    """In the order given."""
    falls: dict[str, Estimate]
    """By how much sparsity fell from the first to the last checkpoint, less the fall of each null."""
    sparser: Claim
    """That it fell by more than every null did."""

    def to_json(self) -> dict[str, Any]:
        """One document of the whole course."""
        return {
            "task": self.task,
            "prompts": self.prompts,
            "cells": self.cells,
            "unit": self.unit,
            "checkpoints": [one.to_json() for one in self.checkpoints],
            "falls": {name: one.to_json() for name, one in self.falls.items()},
            "sparser": self.sparser.to_json(),
        }


def find_sparsity_course(
    checkpoints: Sequence[str | Path],
    task: str | Path | AnswerSet,
    *,
    prompts: int = 60,
    rotations: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> SparsityCourse:
    """Follow the cells that a task's circuits use in the last checkpoint through all of them.

    Parameters
    ----------
    checkpoints:
        Model folders, or hub names as ``name@revision``, from first to last; of one architecture and tokenizer.
    task:
        ``ioi``, ``greater-than``, ``pronouns``, ``facts``, the path of a JSONL file, or an answer set.
    prompts:
        Prompts to trace in the last checkpoint.
    rotations:
        Random rotations to compare with.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many checkpoints are done, and how many there are.

    Returns
    -------
    SparsityCourse
        Sparsity, channels needed and attention in each checkpoint, and whether the channels became fewer.
    """
    require_series(checkpoints)
    tell = progress or (lambda stage, done, total: None)
    tell("checkpoints", 0, len(checkpoints))
    last = _loaded(checkpoints[-1])
    made = make_answers(task, last.tokenizer, prompts=prompts, seed=seed)
    chosen = made.prompts[:prompts]
    texts = [p.prompt for p in chosen]
    cells = _cells(last, made)
    token_ids, shape = last.token_ids(texts), (last.n_layers, last.n_heads, last.d_head)
    clusters = units_of([p.labels for p in chosen])
    points, gaps = [], []
    for number, checkpoint in enumerate(checkpoints):
        model = last if number == len(checkpoints) - 1 else _loaded(checkpoint)
        if (model.n_layers, model.n_heads, model.d_head) != shape or model.token_ids(texts) != token_ids:
            raise HeadwiseError(
                f"checkpoint {str(checkpoint)!r} has another shape or tokenizer than {str(checkpoints[-1])!r}: "
                "give checkpoints of one training"
            )
        split = split_cells(model, token_ids, cells, rotations=rotations, seed=seed)
        measured = [measure(model, one, seed) for one in split.values()]
        points.append(_point(str(checkpoint), model.weight_hash, measured, clusters.which, seed))
        gaps.append({name: _gap(measured, name) for name in NULLS})
        tell("checkpoints", number + 1, len(checkpoints))
    rows = torch.tensor(sorted({one.prompt for one in cells}))
    which = clusters.which[rows]
    gained = {name: gaps[-1][name] - gaps[0][name] for name in NULLS}
    tests = {name: _test(value, which, seed, name) for name, value in gained.items()}
    p, draws = strictest(tests)
    falls = {
        name: estimate(value, seed, "sparsity course", name, clusters=which)
        for name, value in gained.items()
        if not bool(value.isnan().all())
    }
    sparser = claim(p, null=ALL_FIVE, draws=draws)
    return SparsityCourse(made.name, len(rows), len(cells), clusters.name, tuple(points), falls, sparser)


def _test(gained: Tensor, which: Tensor, seed: int, name: str) -> tuple[float, int]:
    """Whether a gap grew: p by the signs of whole clusters, and the flips behind it; 1 without any value."""
    known = ~gained.isnan()
    if not bool(known.any()):
        return 1.0, 0
    generator = keyed(seed, "sparsity course", name)
    return sign_flips(gained[known], which[known], draws=FLIPS, generator=generator)


def _loaded(checkpoint: str | Path) -> Model:
    name, revision = name_and_revision(str(checkpoint))
    return load(name, revision=revision or None)


def _cells(model: Model, made: AnswerSet) -> list[PromptCell]:
    """The cells of the chosen heads that the circuits of the last checkpoint use."""
    uses = [use for part in Stages.here(model)("circuits", UseJob(), cut(made.prompts, PART)) for use in part]
    used = sorted(PromptCell(prompt, cell) for prompt, use in enumerate(uses) for cell in use.firings)
    if not used:
        raise HeadwiseError(
            f"none of the {len(made)} prompts of {made.name!r} has a circuit in the last checkpoint: give the "
            "checkpoints in their order, the trained one last"
        )
    in_answer = Counter(head for use in uses for head in use.answer_heads)
    in_circuit = Counter(head for head, _ in {(one.cell.head, one.prompt) for one in used})
    wanted = choose(in_answer, in_circuit)
    return [one for one in used if one.cell.head in wanted]


def _gap(measured: Sequence[HeadCells], name: str) -> Tensor:
    """Per prompt, how much sparser cells are than a null in their place."""
    values = torch.cat([one.nulls.each[name] - one.split.sparsity for one in measured])
    return by_prompt(values, torch.cat([one.split.prompts for one in measured]))


def _point(
    name: str, weight_hash: str, measured: Sequence[HeadCells], clusters: Tensor, seed: int
) -> CheckpointSparsity:
    parts = [one.split for one in measured]
    prompts = torch.cat([s.prompts for s in parts])
    which = clusters[prompts.unique()]

    def value(tensors: Sequence[Tensor], what: str) -> Estimate:
        return estimate(by_prompt(torch.cat(list(tensors)), prompts), seed, "course", what, clusters=which)

    return CheckpointSparsity(
        name,
        weight_hash,
        value([s.attention for s in parts], "attention"),
        value([s.sparsity for s in parts], "sparsity"),
        {null: value([one.nulls.each[null] for one in measured], null) for null in NULLS},
        value([s.control_sparsity for s in parts], "control"),
        value([s.needed for s in parts], "needed"),
        value([s.control_needed for s in parts], "control needed"),
        {str(s.head): float(s.sparsity.mean()) for s in parts},
    )
