"""From split cells to what is said of a head: estimates over clusters of prompts, the nulls, and two claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.bases.basis import Basis
from headwise.claims import claim, claims
from headwise.intervals import estimate
from headwise.sparsity.cells import SplitCells
from headwise.sparsity.nulls import (
    ALL_FIVE,
    NULLS,
    ROTATED,
    NullCells,
    by_prompt,
    null_cells,
    sparser,
    sparser_than,
    strictest,
)
from headwise.sparsity.result import HeadSparsity, NullSparsity
from headwise.types import Claim, Estimate, Head

if TYPE_CHECKING:
    from headwise.model.model import Model

GROUP = "all heads of this study"


@dataclass(frozen=True, eq=False)
class HeadCells:
    """Cells of one head, and how sparse each null is in their place."""

    split: SplitCells
    nulls: NullCells


def measure(model: Model, split: SplitCells, seed: int) -> HeadCells:
    """Draw the nulls of one head's cells."""
    basis = Basis.of(model, split.head, frame="absolute")
    return HeadCells(split, null_cells(split.vectors, basis, split.prompts, seed, str(split.head)))


def summaries(
    measured: Sequence[HeadCells],
    in_answer: Counter[Head],
    in_circuit: Counter[Head],
    clusters: Tensor,
    seed: int,
) -> tuple[HeadSparsity, ...]:
    """One entry per head; their claims are corrected together."""
    found = [
        summary(one.split.head, [one], in_answer[one.split.head], in_circuit[one.split.head], clusters, seed)
        for one in measured
    ]
    together = {
        name: _together([getattr(one, name) for one in found]) for name in ("claim", "against_rotation")
    }
    return tuple(
        replace(one, claim=a, against_rotation=b)
        for one, a, b in zip(found, together["claim"], together["against_rotation"], strict=True)
    )


def _together(alone: Sequence[Claim]) -> list[Claim]:
    """The same claims, corrected as one group."""
    made = claims([one.p for one in alone], null=alone[0].null, draws=0, group=GROUP)
    return [replace(one, draws=was.draws) for one, was in zip(made, alone, strict=True)]


def summary(
    head: Head | None,
    measured: Sequence[HeadCells],
    in_answer: int,
    in_circuit: int,
    clusters: Tensor,
    seed: int,
) -> HeadSparsity:
    """What is said of a head, or (None) of all together; ``clusters`` [all prompts] says what prompts share."""
    split = [one.split for one in measured]
    prompts = torch.cat([s.prompts for s in split])
    there, which = prompts.unique(), "all" if head is None else str(head)
    shared = clusters[there]

    def value(tensors: Sequence[Tensor], what: str) -> Estimate:
        mean = by_prompt(torch.cat(list(tensors)), prompts)
        return estimate(mean, seed, "sparsity", which, what, clusters=shared)

    cells, null = torch.cat([s.sparsity for s in split]), NullCells.cat([one.nulls for one in measured])
    used, control = (by_prompt(x, prompts) for x in (cells, torch.cat([s.control_sparsity for s in split])))
    nulls, tests = [], sparser_than(cells, null, prompts, clusters, seed, which)
    for name in NULLS:
        drawn = by_prompt(null.each[name], prompts)
        if bool((~drawn.isnan()).any()):
            nulls.append(
                NullSparsity(
                    name=name,
                    sparsity=estimate(drawn, seed, "sparsity", which, name, clusters=shared),
                    difference=estimate(
                        used - drawn, seed, "sparsity", which, f"less {name}", clusters=shared
                    ),
                    p=tests[name][0],
                    draws=tests[name][1],
                )
            )
    p, draws = strictest(tests)
    old, old_draws = sparser(used, control, shared, seed, which, "rotated")
    return HeadSparsity(
        head=head,
        in_answer=in_answer,
        in_circuit=in_circuit,
        cells=len(prompts),
        attention=value([s.attention for s in split], "attention"),
        sparsity=value([s.sparsity for s in split], "sparsity"),
        control=value([s.control_sparsity for s in split], "control"),
        difference=value([s.sparsity - s.control_sparsity for s in split], "difference"),
        needed=value([s.needed for s in split], "needed"),
        control_needed=value([s.control_needed for s in split], "control needed"),
        needed_difference=value([s.needed - s.control_needed for s in split], "needed difference"),
        nulls=tuple(nulls),
        claim=claim(p, null=ALL_FIVE, draws=draws),
        against_rotation=claim(old, null=ROTATED, draws=old_draws),
    )
