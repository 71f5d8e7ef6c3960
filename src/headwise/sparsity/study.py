"""``headwise.measure_sparsity``: how few channels carry a task's attention, beside rotated ones."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.circuits.circuit import Circuit
from headwise.circuits.trace import trace
from headwise.errors import HeadwiseError
from headwise.intervals import estimate
from headwise.sparsity.cells import PromptCell, SplitCells, split_cells
from headwise.tasks.answers.make import make_answers
from headwise.tasks.answers.types import AnswerSet
from headwise.types import Estimate, Head

if TYPE_CHECKING:
    from headwise.model.model import Model

Progress = Callable[[str, int, int], None]
ANSWER_HEADS = 6
"""Heads chosen because they carry the answer most often."""
HEADS = 12
"""Heads chosen in all; the others are the most frequent in the circuits."""
PART = 8
"""Prompts traced at a time."""


@dataclass(frozen=True, eq=False)
class HeadSparsity:
    """One head's cells, or (``head`` None) those of all heads together."""

    head: Head | None
    in_answer: int
    """Prompts in which it carries the answer."""
    in_circuit: int
    """Prompts whose circuit uses a cell of it."""
    cells: int
    attention: Estimate
    sparsity: Estimate
    control: Estimate
    difference: Estimate
    """Sparsity less that along rotated directions, paired by prompt."""
    needed: Estimate
    control_needed: Estimate
    needed_difference: Estimate


@dataclass(frozen=True, eq=False)
class SparsityStudy:
    """Everything ``headwise sparsity`` found."""

    model: str
    weight_hash: str
    task: str
    settings: dict[str, Any]
    prompts: int
    wrong: int
    """Prompts in which the model prefers the wrong answer: set aside."""
    empty: int
    """Prompts without a circuit."""
    heads: list[HeadSparsity]
    overall: HeadSparsity
    curve: list[float]
    """Median over cells: how far the sum of the n largest channels is from the whole, as a share of it."""
    control_curve: list[float]
    signal_channels: float
    """Median number of channels of an edge in the circuits."""
    error: float
    rotation_error: float
    notes: tuple[str, ...]
    seconds: float

    @property
    def traced(self) -> int:
        return self.prompts - self.wrong - self.empty

    def document(self) -> dict[str, Any]:
        """JSON of the whole study."""
        return {
            "model": self.model,
            "weight_hash": self.weight_hash,
            "task": self.task,
            "settings": self.settings,
            "prompts": self.prompts,
            "wrong": self.wrong,
            "empty": self.empty,
            "heads": [_record(h) for h in self.heads],
            "overall": _record(self.overall),
            "curve": self.curve,
            "control_curve": self.control_curve,
            "signal_channels": self.signal_channels,
            "error": self.error,
            "rotation_error": self.rotation_error,
            "notes": list(self.notes),
            "seconds": round(self.seconds, 1),
        }


def _record(one: HeadSparsity) -> dict[str, Any]:
    values = (
        "attention",
        "sparsity",
        "control",
        "difference",
        "needed",
        "control_needed",
        "needed_difference",
    )
    return {
        "head": None if one.head is None else str(one.head),
        "in_answer": one.in_answer,
        "in_circuit": one.in_circuit,
        "cells": one.cells,
        **{name: getattr(one, name).to_json() for name in values},
    }


def measure_sparsity(
    model: Model,
    task: str | Path | AnswerSet,
    *,
    heads: str | Sequence[Head | str] = "auto",
    prompts: int = 60,
    rotations: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> SparsityStudy:
    """Trace a task's prompts and split the attention that their circuits use over channels.

    ``heads`` "auto" takes the heads that carry the answer most often and the most frequent others of the circuits.
    ``rotations`` is how many random rotations the control is averaged over.
    """
    started = time.perf_counter()
    if rotations < 1:
        raise HeadwiseError(f"rotations={rotations} leave nothing to compare with: give 1 or more")
    report = progress or (lambda _stage, _done, _total: None)
    wanted = None if heads == "auto" else model.heads_named(heads)
    made = make_answers(task, model.tokenizer, prompts=prompts, seed=seed)
    chosen = made.prompts[:prompts]
    token_ids = model.token_ids([p.prompt for p in chosen])
    circuits: list[Circuit] = []
    for start in range(0, len(chosen), PART):
        part = chosen[start : start + PART]
        circuits += _trace(model, part)
        report("circuits", len(circuits), len(chosen))
    used, in_answer = _used(circuits)
    in_circuit = Counter(head for head, prompt in {(one.cell.head, one.prompt) for one in used})
    traced = sum(bool(c.edges) for c in circuits)
    if not used:
        raise HeadwiseError(
            f"none of the {len(chosen)} prompts of {made.name!r} has a circuit in {model.name}: the model does not "
            "prefer the right answers, or no head carries them"
        )
    if wanted is None:
        wanted = choose(in_answer, in_circuit)
    missing = [head for head in wanted if not in_circuit[head]]
    if missing:
        often = ", ".join(str(head) for head, _ in _most(in_circuit)[:4])
        raise HeadwiseError(
            f"{missing[0]} is in none of the {traced} circuits of {made.name!r}: there is no cell of it to look at "
            f"(most often: {often})"
        )
    cells = [one for one in used if one.cell.head in wanted]
    n_prompts = len({one.prompt for one in cells})
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        report("channels", done, n_prompts)

    split = split_cells(model, token_ids, cells, rotations=rotations, seed=seed, progress=advance)
    per_head = [_summary(head, [split[head]], in_answer[head], in_circuit[head], seed) for head in wanted]
    everything = [split[head] for head in wanted]
    wrong = sum(not c.edges and _prefers_wrong(c) for c in circuits)
    edges = [len(e.channels) for c in circuits for e in c.edges if e.channels]
    return SparsityStudy(
        model=model.name,
        weight_hash=model.weight_hash,
        task=made.name,
        settings={"prompts": len(chosen), "rotations": rotations, "seed": seed,
                  "heads": "auto" if heads == "auto" else [str(h) for h in wanted]},
        prompts=len(chosen),
        wrong=wrong,
        empty=len(chosen) - traced - wrong,
        heads=per_head,
        overall=_summary(None, everything, len({p for h in wanted for p in _prompts(circuits, h)}), n_prompts, seed),
        curve=reconstruction(torch.cat([s.relative for s in everything])),
        control_curve=reconstruction(torch.cat([s.control.flatten(0, 1) for s in everything])),
        signal_channels=float(median(edges)) if edges else 0.0,
        error=max(s.error for s in everything),
        rotation_error=max(s.rotation_error for s in everything),
        notes=made.notes,
        seconds=time.perf_counter() - started,
    )  # fmt: skip


def _trace(model: Model, part: Sequence[Any]) -> list[Circuit]:
    """Circuits of a few prompts; those with and those without a wrong answer are traced apart."""
    found: dict[int, Circuit] = {}
    for has_wrong in (True, False):
        places = [i for i, p in enumerate(part) if (p.wrong_id is not None) == has_wrong]
        if places:
            circuits = trace(
                model, [part[i].prompt for i in places], answer=[part[i].answer_id for i in places],
                wrong=[part[i].wrong_id for i in places] if has_wrong else None,
            )  # fmt: skip
            found |= dict(zip(places, circuits, strict=True))
    return [found[i] for i in range(len(part))]


def _prefers_wrong(circuit: Circuit) -> bool:
    return any("does not prefer" in note for note in circuit.notes)


def _used(circuits: Sequence[Circuit]) -> tuple[list[PromptCell], Counter[Head]]:
    """The cells that circuits expand, and in how many prompts each head carries the answer."""
    cells: list[PromptCell] = []
    carries: Counter[Head] = Counter()
    for prompt, circuit in enumerate(circuits):
        targets = {e.target for e in circuit.edges if e.channels}
        for node in circuit.heads:
            if node.id in targets:
                cells.append(PromptCell(prompt, node.cell))
        for head in set(_answer_heads(circuit)):
            carries[head] += 1
    return sorted(cells), carries


def _answer_heads(circuit: Circuit) -> list[Head]:
    """Heads whose firings are seeds and were traced further."""
    targets = {e.target for e in circuit.edges if e.channels}
    nodes = [circuit.node(e.source) for e in circuit.edges if not e.channels and e.source in targets]
    return [Head(node.layer, node.head) for node in nodes if node.head is not None]


def _prompts(circuits: Sequence[Circuit], head: Head) -> list[int]:
    return [i for i, circuit in enumerate(circuits) if head in _answer_heads(circuit)]


def choose(in_answer: Counter[Head], in_circuit: Counter[Head]) -> list[Head]:
    """The heads that carry the answer most often, then the most frequent others.

    >>> a, b, c = Head(3, 0), Head(2, 1), Head(1, 1)
    >>> choose(Counter({a: 2}), Counter({b: 5, c: 3, a: 2}))
    [L3H0, L2H1, L1H1]
    """
    chosen = [head for head, _ in _most(in_answer)[:ANSWER_HEADS]]
    rest = [head for head, _ in _most(in_circuit) if head not in chosen]
    return [*chosen, *rest[: HEADS - len(chosen)]]


def _most(count: Counter[Head]) -> list[tuple[Head, int]]:
    return sorted(count.items(), key=lambda item: (-item[1], item[0]))


def _summary(
    head: Head | None, split: Sequence[SplitCells], in_answer: int, in_circuit: int, seed: int
) -> HeadSparsity:
    prompts = torch.cat([s.prompts for s in split])
    name = "all" if head is None else str(head)

    def value(tensors: Sequence[Tensor], what: str) -> Estimate:
        by_prompt = _by_prompt(torch.cat(list(tensors)), prompts)
        return estimate(by_prompt, seed, "sparsity", name, what)

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
    )


def _by_prompt(values: Tensor, prompts: Tensor) -> Tensor:
    """Mean over the cells of each prompt."""
    unique, place = prompts.unique(return_inverse=True)
    total = torch.zeros(len(unique), dtype=torch.float64).index_add_(0, place, values)
    return total / torch.bincount(place)


def reconstruction(values: Tensor) -> list[float]:
    """Median over rows [n, K] of |sum of the m largest channels − whole| ÷ |whole|, for m = 0 to K.

    >>> reconstruction(torch.tensor([[3.0, 1.0]], dtype=torch.float64))
    [1.0, 0.25, 0.0]
    """
    order = values.abs().argsort(-1, descending=True)
    running = values.gather(-1, order).cumsum(-1)
    whole = values.sum(-1, keepdim=True)
    off = (running - whole).abs() / whole.abs().clamp_min(1e-12)
    off[:, -1] = 0.0  # the whole sum is the whole, whatever rounding says
    return [1.0, *off.median(0).values.tolist()]
