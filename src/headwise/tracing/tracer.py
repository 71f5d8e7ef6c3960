"""From seeds down to the embedding: the firings of a layer at once, each firing once (docs/method/tracing.md §4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from headwise.tracing.search import LayerSearch, Rules, SideSignals
from headwise.tracing.seeds import Seed
from headwise.tracing.through import Follower, MLPPart
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Side

if TYPE_CHECKING:
    from headwise.model.model import Model


@dataclass(eq=False)
class Traced:
    """What was found for one prompt."""

    seeds: list[Seed]
    attention: dict[Cell, float] = field(default_factory=dict)
    """Every firing that was met, expanded or not; 0 for a token that lies after the query."""
    influence: dict[Cell, float] = field(default_factory=dict)
    """The part of the answer that passes through it: of what the seeds carry, as far as it was followed."""
    signals: dict[Cell, dict[Side, SideSignals]] = field(default_factory=dict)
    """The firings that were expanded."""
    passed_over: int = 0
    """Firings that would have been expanded, had more of the answer passed through them."""
    parts: list[MLPPart] = field(default_factory=list)
    """What MLPs that were met owe to what they read: an account, which no removal has tested."""


@dataclass(frozen=True)
class Opened:
    """What a walk has asked for: nothing else is gone into, and these however little they attend."""

    cells: frozenset[Cell] = frozenset()
    mlps: frozenset[tuple[int, int]] = frozenset()
    """MLPs by layer and position."""

    def positions(self, layer: int) -> set[int]:
        """Where the MLP of a layer was opened."""
        return {position for above, position in self.mlps if above == layer}


def cell_of(component: Component, position: int) -> Cell | None:
    """The cell of a head component that was read at a position; None for other components."""
    return None if component.kind != "head" else Cell(component.head, position, component.source)


def trace_down(
    model: Model,
    ups: Sequence[PromptWrites],
    seeds: Sequence[list[Seed]],
    rules: Rules,
    *,
    opened: Opened | None = None,
    roots: Iterable[Cell] = (),
) -> list[Traced]:
    """Trace several prompts of one batch from their seeds and ``roots``, layer by layer downwards.

    Everything that reads a layer's MLP lies above it, and the MLP reads the heads of its own layer: so a layer's MLP is
    followed before its heads are searched. For the same reason all that passes through a firing is known when its turn
    comes: a seed's part of what all seeds carry goes on to its writers, to each as much as it took of the attention.
    """
    traced = [Traced(list(found)) for found in seeds]
    waiting: dict[int, dict[int, set[Cell]]] = {}

    def meet(prompt: int, firing: Cell, influence: float) -> None:
        waiting.setdefault(firing.head.layer, {}).setdefault(prompt, set()).add(firing)
        passed = traced[prompt].influence
        passed[firing] = passed.get(firing, 0.0) + influence

    through = [] if rules.mlps is None else [Follower(up, rules.mlps, rules.influence) for up in ups]
    for prompt, (up, found) in enumerate(zip(ups, seeds, strict=True)):
        whole = sum(seed.weight for seed in found)
        for seed in found:
            firing = cell_of(seed.component, up.tokens - 1)
            if firing is not None:
                meet(prompt, firing, seed.weight / whole)
            elif through and seed.reading is not None:
                layer, vector = seed.component.layer, seed.reading
                through[prompt].read(layer, up.tokens - 1, "query", "answer", vector, seed.weight / whole)
    for root in roots:
        for prompt in range(len(ups)):
            meet(prompt, root, 1.0)
    for layer in range(model.n_layers - 1, -1, -1):
        where = None if opened is None else opened.positions(layer)
        for prompt, follower in enumerate(through):
            for part in follower.follow(layer, where):
                traced[prompt].parts.append(part)
                above = cell_of(part.writer, part.position)
                if above is not None:
                    meet(prompt, above, part.influence)
        chosen: dict[int, list[Cell]] = {}
        for prompt, met in sorted(waiting.pop(layer, {}).items()):
            up, firings, one = ups[prompt], sorted(met), traced[prompt]
            one.attention.update(zip(firings, up.attention_at(firings), strict=True))
            expanded = [f for f in firings if _expands(up, f, one.attention[f], rules, opened)]
            strong = [firing for firing in expanded if one.influence[firing] >= rules.influence]
            one.passed_over += len(expanded) - len(strong)
            if strong:
                chosen[prompt] = strong
        if not chosen:
            continue
        search = LayerSearch(ups[0].bases, layer, rules, ups[0].dtype)
        search.expect((ups[prompt], firings) for prompt, firings in chosen.items())
        for prompt, firings in chosen.items():
            for firing, sides in zip(firings, search.run(ups[prompt], firings), strict=True):
                traced[prompt].signals[firing] = sides
                for side, signals in sides.items():
                    passed = _passed_on(signals, traced[prompt].influence[firing])
                    for below, vector in signals.mlps:
                        part = passed[Component("mlp", below)]
                        through[prompt].read(below, firing.at(side), side, "attention", vector, part)
                    for writer, part in passed.items():
                        above = cell_of(writer, firing.at(side))
                        if above is not None:
                            meet(prompt, above, part)
    return traced


def _passed_on(signals: SideSignals, influence: float) -> dict[Component, float]:
    """What each writer of a firing's signals has of the firing's influence: as much as it took of the attention."""
    taken: dict[Component, float] = {}
    for one in signals.removed:
        taken[one.signal.writer] = taken.get(one.signal.writer, 0.0) + one.drop
    return {writer: influence * max(drop, 0.0) / signals.attention for writer, drop in taken.items()}


def _expands(up: PromptWrites, firing: Cell, attention: float, rules: Rules, opened: Opened | None) -> bool:
    """Not at layer 0 (nothing lies below), nor at the first token, nor below the threshold or unopened."""
    if firing.head.layer == 0 or firing.query == 0 or firing.key > firing.query:
        return False
    if opened is not None:
        return firing in opened.cells
    keys = firing.query + 1
    if rules.visible_keys:
        keys = int(up.visible(firing.head.layer, torch.tensor([firing.query], device=up.device)).sum())
    return attention >= rules.least(keys)
