"""From seeds down to the embedding: the firings of a layer at once, each firing once (docs/method/tracing.md §4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwise.tracing.search import Firing, LayerSearch, Rules, SideSignals
from headwise.tracing.seeds import Seed
from headwise.tracing.upstream import Upstream
from headwise.types import Component, Side

if TYPE_CHECKING:
    from headwise.model.model import Model


@dataclass(eq=False)
class Traced:
    """What was found for one prompt."""

    seeds: list[Seed]
    attention: dict[Firing, float] = field(default_factory=dict)
    """Every firing that was met, expanded or not; 0 for a token that lies after the query."""
    signals: dict[Firing, dict[Side, SideSignals]] = field(default_factory=dict)
    """The firings that were expanded."""


def upstream_firing(component: Component, side: Side, below: Firing) -> Firing | None:
    """The firing that a head component selected for another firing stands for; None for other components."""
    if component.kind != "head":
        return None
    at = below.query if side == "query" else below.key
    return Firing(component.layer, component.index, at, component.source)


def trace_down(
    model: Model, ups: Sequence[Upstream], seeds: Sequence[list[Seed]], rules: Rules
) -> list[Traced]:
    """Trace several prompts of one batch from their seeds, layer by layer downwards."""
    traced = [Traced(list(found)) for found in seeds]
    waiting: dict[int, dict[int, set[Firing]]] = {}

    def meet(prompt: int, firing: Firing) -> None:
        waiting.setdefault(firing.layer, {}).setdefault(prompt, set()).add(firing)

    for prompt, (up, found) in enumerate(zip(ups, seeds, strict=True)):
        for seed in found:
            if seed.component.kind == "head":
                c = seed.component
                meet(prompt, Firing(c.layer, c.index, up.tokens - 1, c.source))
    for layer in range(model.n_layers - 1, -1, -1):
        chosen: dict[int, list[Firing]] = {}
        for prompt, met in sorted(waiting.pop(layer, {}).items()):
            up, firings = ups[prompt], sorted(met)
            attention = up.cells(layer, firings)
            traced[prompt].attention.update(zip(firings, attention, strict=True))
            expanded = [f for f, a in zip(firings, attention, strict=True) if _expands(up, f, a, rules)]
            if expanded:
                chosen[prompt] = expanded
        if not chosen:
            continue
        search = LayerSearch(model, layer, rules, ups[0].dtype)
        search.expect((ups[prompt], firings) for prompt, firings in chosen.items())
        for prompt, firings in chosen.items():
            for firing, sides in zip(firings, search.run(ups[prompt], firings), strict=True):
                traced[prompt].signals[firing] = sides
                for side, signals in sides.items():
                    for component in set(signals.components):
                        next_firing = upstream_firing(component, side, firing)
                        if next_firing is not None:
                            meet(prompt, next_firing)
    return traced


def _expands(up: Upstream, firing: Firing, attention: float, rules: Rules) -> bool:
    """Not at layer 0 (nothing lies below), nor at the first token, nor below the threshold."""
    if firing.layer == 0 or firing.query == 0 or firing.key > firing.query:
        return False
    keys = firing.query + 1
    if rules.visible_keys:
        keys = int(up.visible(firing.layer)[firing.query].sum())
    return attention >= rules.threshold(keys)
