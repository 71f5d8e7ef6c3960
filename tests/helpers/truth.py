"""How well a traced circuit meets a known truth: edges found, and what the model does without each of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from planted_mlp import Planted, Which, plant, planted_prompt

import headwise
from headwise.circuits.circuit import Circuit, Edge
from headwise.circuits.counterfactual import Outcome, Removal, edited_attention, outcomes, removal
from headwise.model.edits import Silence
from headwise.model.model import Model
from headwise.model.stream import split
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds, Cell, Component, Side, Signal


@dataclass(frozen=True)
class Score:
    """Edges that were found and are true, were found and are not, and were missed."""

    right: int = 0
    extra: int = 0
    missed: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(self.right + other.right, self.extra + other.extra, self.missed + other.missed)

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.extra)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)


def scored(found: set[tuple[str, str, str]], truth: set[tuple[str, str, str]]) -> Score:
    return Score(len(found & truth), len(found - truth), len(truth - found))


def auc(higher: Sequence[float], lower: Sequence[float]) -> float:
    """How often a value of the first kind is above one of the second; half where they are equal.

    >>> auc([3.0, 1.0], [2.0, 0.0])
    0.75
    """
    pairs = [(a > b) + 0.5 * (a == b) for a in higher for b in lower]
    return sum(pairs) / len(pairs)


def edges_of(edges: Iterable[Edge]) -> set[tuple[str, str, str]]:
    return {(edge.source, edge.target, edge.side) for edge in edges}


def carried_by(circuit: Circuit, share: float) -> Circuit:
    """The part of a circuit that leads to the answer through what brings at least this share of what seeds bring."""
    into = [edge for edge in circuit.edges if edge.unit == "answer" and edge.account_of is None]
    least = share * sum(edge.weight for edge in into if edge.weight > 0)
    gone = {edge.id for edge in into if edge.weight < least}
    return circuit._reaching((e for e in circuit.edges if e.id not in gone), circuit.accounts)


# --- circuits written into the weights -------------------------------------------------------------------------------


def planted_circuits(
    family: str, noise: float, seeds: int, prompts: int
) -> Iterator[tuple[Model, Planted, Circuit]]:
    """Models and prompts of both planted circuits, where the model still gives the planted answer, and their traces."""
    for seed in range(seeds):
        model = plant(family, seed, noise)
        kinds: tuple[Which, ...] = ("query", "key")
        for made in (planted_prompt(which, number) for which in kinds for number in range(prompts)):
            if works(model, made):
                yield (
                    model,
                    made,
                    headwise.trace(model, [made.prompt], answer=made.answer, wrong=made.wrong)[0],
                )


def works(model: Model, made: Planted) -> bool:
    """The planted head attends to the planted item, and the model says it."""
    cell = made.attends
    seen = model.capture([made.prompt], heads=[cell.head], logits="last", want=("pattern",))
    right = int(seen.logits[0, 0].argmax()) == made.answer
    return right and float(seen.pattern[0, 0, cell.query, cell.key]) > 0.5


def without(model: Model, made: Planted, places: Iterable[Cell]) -> tuple[Outcome, list[Outcome]]:
    """The clean pass, and really edited passes, each with a head silenced at its row: lead and planted attention."""
    plans = [[], *([Silence(head=cell.head, positions=[cell.query])] for cell in places)]
    answer = AnswerIds(made.answer, made.wrong)
    with torch.no_grad():
        clean, *seen = outcomes(model, made.prompt, plans, answer, [made.attends])
    return clean, seen


# --- truth by brute force --------------------------------------------------------------------------------------------


class Lost(NamedTuple):
    """What a firing loses without one writer: a share of its attention, and log-odds in nats."""

    share: float
    nats: float


def forced(model: Model, circuit: Circuit) -> dict[tuple[str, str, str], Lost]:
    """For every firing that the circuit explains, every writer below it and either side: what is lost when this whole
    writer leaves this side, each in a pass of its own that was really edited."""
    up = PromptWrites(split(model, list(circuit.token_ids)), 0)
    asked: list[tuple[str, Side, Component]] = []
    removals: list[Removal] = []
    for target, side in _searched(circuit):
        node = circuit.node(target)
        for writer in _writers(up, node.layer, node.cell.at(side)):
            asked.append((target, side, writer))
            removals.append(_whole(up, node.cell, side, writer))
    lost = edited_attention(model, circuit.token_ids, removals)
    made = {}
    for (target, side, writer), left in zip(asked, lost, strict=True):
        node = circuit.node(target)
        source = f"{writer.name}@{node.cell.at(side)}"
        source += f"<-{writer.source}" if writer.kind == "head" else ""
        assert node.attention is not None
        made[source, target, side] = Lost(
            1 - left / node.attention, _log_odds(node.attention) - _log_odds(left)
        )
    return made


def _searched(circuit: Circuit) -> list[tuple[str, Side]]:
    """Firings and sides that have a cause."""
    sides: tuple[Side, ...] = ("query", "key")
    return [(one.target, side) for one in circuit.counterfactuals for side in sides if side == one.side]


def _log_odds(attention: float) -> float:
    inside = min(max(attention, 1e-12), 1 - 1e-12)
    return math.log(inside / (1 - inside))


def _writers(up: PromptWrites, layer: int, position: int) -> list[Component]:
    n = up.n_carried(layer) + up.n_static(layer)
    every = (up.component(layer, index) for index in range(n))
    return [one for one in every if one.kind != "head" or one.source <= position]


def _whole(up: PromptWrites, cell: Cell, side: Side, writer: Component) -> Removal:
    return removal(up, cell, [Signal(cell.head, side, writer, tuple(range(up.stream.model.d_head)))])
