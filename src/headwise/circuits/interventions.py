"""Take edges of a circuit away, or double them, and see what the model does.

*Local*: only the head that reads the signal sees the change. *Global*: the signal leaves the residual stream before
that layer, so everything above sees it. Either way against the same number of channels that the head did not use,
from the same components (docs/method/tracing.md §5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from headwise.circuits.circuit import Circuit, Edge
from headwise.circuits.counterfactual import Removal, removal, unused
from headwise.circuits.schema import require_edge, require_fit
from headwise.errors import HeadwiseError
from headwise.model.stream import split
from headwise.model.stream_edits import AddToStream, run_edited
from headwise.randomness import seeded
from headwise.tracing.writes import PromptWrites
from headwise.types import Side, Signal

if TYPE_CHECKING:
    from headwise.model.model import Model

Scope = Literal["local", "global"]
Action = Literal["remove", "boost"]
COPIES = 24
"""Copies of the prompt in one forward pass."""


@dataclass(frozen=True)
class Outcome:
    """What one edited pass did."""

    attention: tuple[float, ...]
    """At each target, in the order of ``Effect.targets``."""
    logit_difference: float
    probability: float
    norm_ratio: float
    """Length of the edited stream over that of the clean one, where the edit was made (mean over edits)."""
    cosine: float


@dataclass(frozen=True)
class Effect:
    """One set of edges, taken away or doubled, against its controls."""

    edges: tuple[str, ...]
    targets: tuple[str, ...]
    scope: Scope
    action: Action
    clean: Outcome
    edited: Outcome
    controls: tuple[Outcome, ...]

    @property
    def attention_change(self) -> float:
        """Mean over targets."""
        return _mean(self.edited.attention) - _mean(self.clean.attention)

    @property
    def control_attention_change(self) -> float:
        return _mean([_mean(c.attention) for c in self.controls]) - _mean(self.clean.attention)

    @property
    def logit_change(self) -> float:
        return self.edited.logit_difference - self.clean.logit_difference

    @property
    def control_logit_change(self) -> float:
        """Mean size of the controls' changes (their signs differ)."""
        return _mean([abs(c.logit_difference - self.clean.logit_difference) for c in self.controls])


def choose_edges(circuit: Circuit, edges: Sequence[str] | None = None, top: int | None = None) -> list[Edge]:
    """Edges by name (``SOURCE -> TARGET``, or a node: all edges into it), or the ``top`` heaviest."""
    inner = [e for e in circuit.edges if e.channels]
    if not inner:
        raise HeadwiseError("this circuit has no edges between components: there is nothing to intervene on")
    if edges is None:
        if top is not None and top < 1:
            raise HeadwiseError(f"top {top} names no edges: give 1 or more")
        return sorted(inner, key=lambda e: -e.weight)[: top or 5]
    chosen: list[Edge] = []
    for name in edges:
        source, arrow, target = (part.strip() for part in name.partition(" -> "))
        if arrow:
            found = [e for e in inner if e.id == name or (e.source, e.target) == (source, target)]
        else:
            found = [e for e in inner if e.target == name]
        if not found:
            raise HeadwiseError(
                f"{name!r} is not an edge of this circuit: write SOURCE -> TARGET with the ids of its nodes"
            )
        chosen += [e for e in found if e not in chosen]
    return chosen


def intervene(
    model: Model,
    circuit: Circuit,
    edges: Sequence[Sequence[Edge]],
    *,
    scope: Scope = "local",
    action: Action = "remove",
    draws: int = 20,
    seed: int = 0,
) -> list[Effect]:
    """The effect of each set of edges, all in a few batched passes.

    Parameters
    ----------
    model:
        The model that the circuit was traced in.
    circuit:
        A circuit that :func:`headwise.trace` gave or :meth:`Circuit.load` read.
    edges:
        Sets of the circuit's edges; a single edge is a set of one.
    scope:
        ``local``: only what this head reads changes; ``global``: the residual stream changes, for all above.
    action:
        ``remove`` takes the signals away, ``boost`` doubles them.
    draws:
        Controls per set, each with as many unused channels of the same components.
    seed:
        The seed of everything random.

    Returns
    -------
    list of Effect
        One per set: attention, logit difference and probability, clean, edited and in the controls.
    """
    if scope not in ("local", "global"):
        raise HeadwiseError(f"scope {scope!r} is not a scope: write 'local' or 'global'")
    if action not in ("remove", "boost"):
        raise HeadwiseError(f"action {action!r} is not an action: write 'remove' or 'boost'")
    require_fit(circuit, model)
    for edge in (edge for chosen in edges for edge in chosen):
        require_edge(edge, circuit, model)
    generator = seeded(seed)
    with torch.no_grad():
        up = PromptWrites(split(model, list(circuit.token_ids)), 0)
        plans: list[list[Removal]] = [[]]
        for chosen in edges:
            plans.append(_removals(up, circuit, chosen, None))
            plans += [_removals(up, circuit, chosen, generator) for _ in range(draws)]
        targets = [list(dict.fromkeys(e.target for e in chosen)) for chosen in edges]
        outcomes = _run(model, up, circuit, plans, targets, draws, scope, 1.0 if action == "remove" else -1.0)
    effects = []
    for i, chosen in enumerate(edges):
        effects.append(
            Effect(
                tuple(e.id for e in chosen), tuple(targets[i]), scope, action, outcomes[i][0], outcomes[i][1],
                tuple(outcomes[i][2:]),
            )
        )  # fmt: skip
    return effects


def _removals(
    up: PromptWrites, circuit: Circuit, chosen: Sequence[Edge], control: torch.Generator | None
) -> list[Removal]:
    by_target: dict[str, dict[Side, list[Signal]]] = {}
    for edge in chosen:
        by_target.setdefault(edge.target, {}).setdefault(edge.side, []).append(circuit.signal(edge))
    made = []
    for target, sides in by_target.items():
        if control is not None:
            width = up.stream.model.d_head
            # "unused" is judged against everything the firing uses, not only against the edges that leave
            for side, signals in sides.items():
                used = {c for e in circuit.into(target, side) for c in e.channels}
                sides[side] = unused(signals, width, control, avoid=used)
        made.append(
            removal(up, circuit.node(target).cell, [one for listed in sides.values() for one in listed])
        )
    return made


def _run(
    model: Model, up: PromptWrites, circuit: Circuit, plans: list[list[Removal]], targets: list[list[str]], draws: int,
    scope: Scope, factor: float,
) -> list[list[Outcome]]:  # fmt: skip
    """Outcomes per set: clean, edited, controls."""
    every = list(dict.fromkeys(t for listed in targets for t in listed))
    cells = [circuit.node(target).cell for target in every]
    attention, logits, moved = [], [], []
    for start in range(0, len(plans), COPIES):
        part = plans[start : start + COPIES]
        deltas = [[_in_stream(up, one, factor) for one in plan] for plan in part]
        moved += [_moved(up, d) for d in deltas]
        if scope == "local":
            edits = [
                e for copy, plan in enumerate(part) for one in plan for e in one.edits(copy, factor=factor)
            ]
            run = run_edited(model, circuit.token_ids, len(part), edits=edits, cells=cells)
        else:
            adds = [
                AddToStream(layer=layer, prompt=copy, positions=positions, value=value)
                for copy, plan in enumerate(deltas)
                for one in plan
                for layer, positions, value in one
            ]
            run = run_edited(model, circuit.token_ids, len(part), adds=adds, cells=cells)
        attention.append(run.cells)
        logits.append(run.logits)
    cell, logit = torch.cat(attention), torch.cat(logits)
    difference, probability = (
        answer_difference(circuit, logit),
        torch.softmax(logit, -1)[:, circuit.answer_id],
    )

    def outcome(copy: int, listed: list[str]) -> Outcome:
        places = [every.index(t) for t in listed]
        return Outcome(
            tuple(cell[copy, places].tolist()),
            float(difference[copy]),
            float(probability[copy]),
            *moved[copy],
        )

    result = []
    for i, listed in enumerate(targets):
        first = 1 + i * (1 + draws)
        result.append([outcome(0, listed), *(outcome(first + j, listed) for j in range(1 + draws))])
    return result


def answer_difference(circuit: Circuit, logits: Tensor) -> Tensor:
    """Answer − wrong (or − the mean token) of logits [n, vocabulary]."""
    if circuit.answer_id is None:
        raise HeadwiseError("this circuit names no answer: trace the prompt again")
    against = logits.mean(-1) if circuit.wrong_id is None else logits[:, circuit.wrong_id]
    return logits[:, circuit.answer_id] - against


Delta = tuple[int, list[int], Tensor]
"""Layer, positions, and what is added to the stream there [positions, d_model]."""


def _in_stream(up: PromptWrites, one: Removal, factor: float) -> list[Delta]:
    """The smallest change of the stream that makes a removal, norms frozen: P_u of the write where there is no RoPE."""
    made: list[Delta] = []
    head, query, _ = one.cell
    sides: tuple[tuple[Side, Tensor | None], ...] = (("query", one.query), ("key", one.key))
    for side, vectors in sides:
        if vectors is None:
            continue
        positions = [query] if side == "query" else list(range(query + 1))
        index = head.index if side == "query" else head.index // up.group
        scalars = up.stream.scalars(head.layer, side)
        scalar = scalars.stream[up.prompt, up.span, index].double()[positions]
        turned = vectors[None] if side == "query" else vectors[: query + 1]
        rotary = up.stream.rotary(head.layer, up.prompt)
        if rotary is not None:
            turned = rotary.at_positions(positions).undo(turned[None, None])[0, 0]
        value = -factor * (turned / scalar[:, None]) @ up.writer(head.layer, side, index).mT
        made.append((head.layer, positions, value))
    return made


def _moved(up: PromptWrites, deltas: list[list[Delta]]) -> tuple[float, float]:
    """Mean norm ratio and cosine of the stream after and before the edits, at the query or over the edited keys."""
    ratios, cosines = [], []
    for one in deltas:
        for layer, positions, value in one:
            before = up.stream.before(layer)[up.prompt, up.span][positions].double()
            after = before + value
            ratios.append(float((after.norm(dim=-1) / before.norm(dim=-1)).mean()))
            cosines.append(float(torch.cosine_similarity(after, before, dim=-1).mean()))
    return (_mean(ratios), _mean(cosines)) if ratios else (1.0, 1.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
