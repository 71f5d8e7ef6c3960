"""Take edges of a circuit away, double them, or take their values from another prompt, and see what the model does.

*Local*: only the head that reads the signal sees the change. *Global*: the signal leaves the residual stream before
that layer, so everything above sees it. Either way against the same number of channels that the head did not use,
from the same components (docs/method/tracing.md §5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from headwise.bases.basis import Bases
from headwise.circuits.circuit import Circuit, Edge
from headwise.circuits.counterfactual import Outcome, Removal, mean, outcomes, removal, unused
from headwise.circuits.patching import Align, OtherRun, aligned, require_source
from headwise.circuits.schema import require_edge, require_fit
from headwise.errors import HeadwiseError
from headwise.model.edits import AddToStream, Edit
from headwise.model.stream import split
from headwise.randomness import keyed
from headwise.tokens import Prompt
from headwise.tracing.writes import PromptWrites
from headwise.types import Side, Signal

if TYPE_CHECKING:
    from headwise.model.model import Model

Scope = Literal["local", "global"]
Action = Literal["remove", "boost", "patch"]


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One set of edges, taken away, doubled or patched, against its controls."""

    edges: tuple[str, ...]
    targets: tuple[str, ...]
    scope: Scope
    action: Action
    clean: Outcome
    edited: Outcome
    controls: tuple[Outcome, ...]
    norm_ratio: float
    """Length of the edited stream over that of the clean one, where the edit was made (mean over edits)."""
    cosine: float
    """Between the edited and the clean stream there."""
    moved: float
    """Length of the change over that of the clean stream there (mean over edits)."""
    control_moved: tuple[float, ...]
    """The same for each control."""

    @property
    def attention_change(self) -> float:
        """Mean over targets."""
        return self.edited.attention - self.clean.attention

    @property
    def control_attention_change(self) -> float:
        return mean([c.attention for c in self.controls]) - self.clean.attention

    @property
    def logit_change(self) -> float:
        return self.edited.lead - self.clean.lead

    @property
    def control_logit_change(self) -> float:
        """Mean size of the controls' changes (their signs differ)."""
        return mean([abs(c.lead - self.clean.lead) for c in self.controls])


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
        if not found and any(name in (e.id, e.target, f"{e.source} -> {e.target}") for e in circuit.accounts):
            raise HeadwiseError(
                f"{name!r} accounts for what an MLP read, which is no signal to take away: name an edge into a head"
            )
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
    source: Prompt | None = None,
    align: Align = None,
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
        ``remove`` takes the signals away, ``boost`` doubles them, ``patch`` gives them the values that they have in
        ``source``.
    source:
        With ``patch``: the other prompt, as text or token ids.
    align:
        With ``patch``: positions of the circuit's prompt, each with the position of ``source`` that stands for it;
        default: the same ones, if both prompts have as many tokens.
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
    if action not in ("remove", "boost", "patch"):
        raise HeadwiseError(f"action {action!r} is not an action: write 'remove', 'boost' or 'patch'")
    require_source(action, source, align)
    require_fit(circuit, model)
    for edge in (edge for chosen in edges for edge in chosen):
        require_edge(edge, circuit, model)
    factor = -1.0 if action == "boost" else 1.0
    every = list(dict.fromkeys(e.target for chosen in edges for e in chosen))
    with torch.no_grad():
        bases = Bases.named(model, circuit.basis, "this circuit")
        up = PromptWrites(split(model, list(circuit.token_ids), start=circuit.start), 0, bases)
        other = None if source is None else _source(up, source, align)
        plans: list[list[Removal]] = [[]]
        for chosen in edges:
            plans.append(_removals(up, other, circuit, chosen))
            plans += [_removals(up, other, circuit, chosen, seed, draw) for draw in range(draws)]
        edits = [[edit for one in plan for edit in _edits(up, one, scope, factor)] for plan in plans]
        cells = [circuit.node(target).cell for target in every]
        clean, *seen = outcomes(
            model, circuit.token_ids, edits, circuit.answer_ids, cells, start=circuit.start
        )
        effects = []
        for i, chosen in enumerate(edges):
            mine = list(dict.fromkeys(e.target for e in chosen))
            places = [every.index(target) for target in mine]
            first = i * (1 + draws)
            edited, *controls = (one.at(places) for one in seen[first : first + 1 + draws])
            (norm_ratio, cosine, moved), *others = (
                _moved(up, plan, factor) for plan in plans[1 + first : 2 + first + draws]
            )
            effects.append(
                Effect(
                    edges=tuple(e.id for e in chosen),
                    targets=tuple(mine),
                    scope=scope,
                    action=action,
                    clean=clean.at(places),
                    edited=edited,
                    controls=tuple(controls),
                    norm_ratio=norm_ratio,
                    cosine=cosine,
                    moved=moved,
                    control_moved=tuple(share for _, _, share in others),
                )
            )
    return effects


def _source(up: PromptWrites, prompt: Prompt, align: Align) -> OtherRun:
    """The other prompt's run, read from where this one begins."""
    stream = split(up.stream.model, up.stream.model.prompt_ids(prompt), start=up.stream.start)
    return OtherRun(
        PromptWrites(stream, 0, up.bases), aligned(up.tokens, int(stream.batch.lengths[0]), align)
    )


def _removals(
    up: PromptWrites,
    other: OtherRun | None,
    circuit: Circuit,
    chosen: Sequence[Edge],
    seed: int = 0,
    draw: int | None = None,
) -> list[Removal]:
    """One removal per target (of what differs from ``other``, if there is one); with ``draw``, that of a control."""
    by_target: dict[str, dict[Side, list[Signal]]] = {}
    for edge in chosen:
        by_target.setdefault(edge.target, {}).setdefault(edge.side, []).append(circuit.signal(edge))
    made = []
    for target, sides in by_target.items():
        if draw is not None:
            # "unused" is judged against everything the firing uses, not only against the edges that leave
            for side, signals in sides.items():
                used = {c for e in circuit.into(target, side) for c in e.channels}
                generator = keyed(seed, "unused", target, side, draw)
                sides[side] = unused(signals, up.stream.model.d_head, generator, avoid=used)
        cell, signals = circuit.node(target).cell, chain(*sides.values())
        made.append(removal(up, cell, signals) if other is None else other.difference(up, cell, signals))
    return made


def _edits(up: PromptWrites, one: Removal, scope: Scope, factor: float) -> list[Edit]:
    return one.edits(factor=factor) if scope == "local" else list(in_stream(up, one, factor))


def in_stream(up: PromptWrites, one: Removal, factor: float) -> list[AddToStream]:
    """The smallest change of the stream that makes a removal, norms frozen: P_u of the write where there is no RoPE."""
    made: list[AddToStream] = []
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
        made.append(AddToStream(layer=head.layer, positions=positions, value=value))
    return made


def _moved(up: PromptWrites, plan: Sequence[Removal], factor: float) -> tuple[float, float, float]:
    """Mean norm ratio and cosine of the stream after and before the edits, and the length of the change over that of
    the stream, at the query or over the edited keys.
    """
    ratios, cosines, shares = [], [], []
    for one in plan:
        for add in in_stream(up, one, factor):
            before = up.stream.before(add.layer)[up.prompt, up.span][list(add.positions)].double()
            after = before + add.value
            ratios.append(float((after.norm(dim=-1) / before.norm(dim=-1)).mean()))
            cosines.append(float(torch.cosine_similarity(after, before, dim=-1).mean()))
            shares.append(float((add.value.norm(dim=-1) / before.norm(dim=-1)).mean()))
    return (mean(ratios), mean(cosines), mean(shares)) if ratios else (1.0, 1.0, 0.0)
