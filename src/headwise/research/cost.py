"""What ``headwise reproduce`` will take: the sum of its studies, each of which is a command in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from headwise.model.sizes import ModelSizes
from headwise.planning.plan import CommandCost, command_cost
from headwise.planning.probe import MachinePace
from headwise.planning.work import CONTRAST, SIGNAL, WORK, CommandWork
from headwise.research.parts import ResearchStudy, Work
from headwise.research.studies import STUDIES

LENGTHS: Mapping[str, int] = {
    "ioi": 17,
    "greater-than": 16,
    "pronouns": 11,
    "facts": 9,
    "binding": 76,
    "filter": 100,
    "filter-13": 134,
}
"""Tokens of the prompts of a task, or of a study with other prompts of it, in those of the default model."""
CONTRASTS: Mapping[str, int] = {"binding": 3, "filter": 5, "filter-13": 13}
"""Contrasts that a study of features fits."""
START, LOAD = 400_000.0, 700_000.0
"""Small calls in whose time a process begins, and in whose time it has a model."""
WORKS: tuple[tuple[Work, bool], ...] = (
    ("paper", False),
    ("paper", True),
    ("talk", False),
    ("talk", True),
)
"""Each work at full size and at the quick one."""


SWEEP = 3000
"""Steps of a sweep of alignments; quick, 600 with a quarter of the seeds."""
_SWEEPS = {
    "probability": 9200,
    "lambda": 8800,
    "features": 11_000,
    "head": 6800,
    "context": 31_700,
    "interference": 9000,
}
TOYS: Mapping[str, tuple[float, float]] = {
    "alignment-none": (3000 * 1200, 600 * 1200 / 4),
    "alignment-pair": (3000 * 2150, 1000 * 2150 / 4),
    "alignment-pairs": (5000 * 9050, 1500 * 9050 / 4),
    **{f"sweep-{name}": (SWEEP * each, 600 * each / 4) for name, each in _SWEEPS.items()},
    "training": (80e6, 4e6),
    **{f"payload-8-{latents}": (20e6, 1e6) for latents in ("discrete", "gaussian")},
    **{f"payload-16-{latents}": (65e6, 2.2e6) for latents in ("discrete", "gaussian")},
    **{f"payload-{shape}": (20e6, 1.7e6) for shape in ("cube", "sphere", "three")},
}
"""Toys train models of their own: small calls in whose time each study does, at full size and quick.

Calls per step of cases and sweeps are measured, the one of ``interference`` taken from the sweeps of its size; payload
and training are from the times of whole runs that docs/results/toys.md gives.
"""


def reproduce_cost(
    work: Work, quick: bool, sizes: ModelSizes, pace: MachinePace, *, available: int, dtype: str = "float32"
) -> CommandCost:
    """What one of the works takes with a model: time and disk of all its studies, memory of the largest."""
    costs = [
        command_cost(sizes, pace, *study_work(study, quick), available=available, dtype=dtype)
        for study in STUDIES[work]
    ]
    prompts = sum(cost.prompts for cost in costs)
    memory = max(cost.memory for cost in costs)
    return CommandCost(
        command=f"reproduce {work}{' --quick' if quick else ''}",
        prompts=prompts,
        tokens=round(sum(cost.prompts * cost.tokens for cost in costs) / prompts),
        passes=sum(cost.prompts * cost.passes for cost in costs) / prompts,
        seconds=sum(cost.seconds for cost in costs) + start_calls(work) * pace.call,
        memory=memory,
        disk=sum(cost.disk for cost in costs),
        fits=memory <= available,
    )


def start_calls(work: Work) -> float:
    """Small calls in whose time the processes of all studies begin."""
    return sum(START + LOAD * study.model for study in STUDIES[work])


def study_work(study: ResearchStudy, quick: bool) -> tuple[CommandWork, int, int]:
    """The work of a study, how many prompts it goes over, and how many tokens they have."""
    verb, *words = (study.quick if quick else study.words).split()
    if verb == "toy":
        return _toy(study.name, quick), 1, 1
    task = next((word.strip("{}") for word in words if word.startswith("{")), "")
    given = {name: int(value) for name, value in pairwise(words) if value.isdecimal()}
    if verb == "name":
        row, fewer = ROWS["name (500 signals)"], 500 - given["--top"]
        row = replace(row, calls=row.calls - fewer * SIGNAL)
        return row, given.get("--texts", row.prompts), row.tokens or 64
    if verb == "families":
        row = ROWS["families"]
        return row, 2 * given["--sample"] if "--sample" in given else row.prompts, LENGTHS["ioi"]
    row = ROWS[_ROW.get(verb, verb)]
    if verb == "features":
        row = replace(row, passes=row.passes + CONTRAST * (CONTRASTS[study.name] - 3))
    length = row.tokens or LENGTHS.get(study.name) or LENGTHS[task]
    return row, given.get("--prompts", row.prompts), length


_ROW = {"features": "features TASK", "intervene": "intervene (a task)"}
"""The row of a plan that a study's verb is, where that is not the verb."""
ROWS: Mapping[str, CommandWork] = {one.command: one for one in WORK}


def _toy(study: str, quick: bool) -> CommandWork:
    return CommandWork(f"toy {study}", 1, passes=0.0, calls=TOYS[study][quick], held=0)
