"""Trace one attention to the signals that cause it, with its counterfactual."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import torch

from headwise.circuits.circuit import Counterfactual, Node
from headwise.circuits.counterfactual import Known, edited_attention, removal, unused
from headwise.circuits.trace import rules_for
from headwise.errors import HeadwiseError
from headwise.model.stream import Stream, split
from headwise.randomness import seeded
from headwise.tokens import Prompt, one_cell, shown
from headwise.tracing.search import LayerSearch, SideSignals
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Head, Side, Sides, Signal

if TYPE_CHECKING:
    from headwise.model.model import Model


@dataclass(frozen=True, eq=False)
class FiringTrace:
    """Why one head attends from one token to another: its signals, and what happens without them."""

    head: Head
    query: int
    key: int
    tokens: tuple[str, ...]
    attention: float
    tau: float
    sides: dict[Side, SideSignals]
    counterfactuals: tuple[Counterfactual, ...]
    error: float
    """How far the parts of the query and key are from the model's own vectors (relative)."""

    def counterfactual(self, side: str) -> Counterfactual:
        for one in self.counterfactuals:
            if one.side == side:
                return one
        raise HeadwiseError(f"side {side!r} was not traced")

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(signals)} {side} signals" for side, signals in self.sides.items())
        return f"FiringTrace({self.head} {self.query} ← {self.key}, attention {self.attention:.3f}, {counts})"


def trace_firing(
    model: Model,
    prompt: Prompt,
    head: Head | str,
    query: str | int,
    key: str | int,
    *,
    tau: float | None = None,
    side: str = "both",
    mode: str = "exact",
    rule: str | None = None,
    draws: int = 20,
    seed: int = 0,
) -> FiringTrace:
    """The smallest sets of signals without which ``head`` at ``query`` would not attend to ``key``.

    ``query`` and ``key`` are positions or the text of tokens.
    Both sides are searched on their own; the counterfactual is given for each and, for ``side="both"``, for both
    together: the attention that is predicted, that of the really edited pass, and those of ``draws`` passes in which as
    many signals of *unused* channels of the head leave instead.
    """
    if side not in ("query", "key", "both"):
        raise HeadwiseError(f"side {side!r} is not a side: write 'query', 'key' or 'both'")
    wanted = model.head(head)
    sides: tuple[Side, ...] = (
        ("query", "key") if side == "both" else ("query",) if side == "query" else ("key",)
    )
    rules = rules_for(mode, tau, rule, sides)
    token_ids = model.prompt_ids(prompt)
    tokens = shown(model.tokenizer, token_ids)
    d, s = one_cell(tokens, query, key)
    if wanted.layer == 0:
        raise HeadwiseError(
            f"{wanted} is in layer 0, where only the embedding was written: there is nothing to trace"
        )
    with torch.no_grad():
        stream = split(model, token_ids, layers=wanted.layer + 1)
        up = PromptWrites(stream, 0)
        if not bool(up.visible(wanted.layer)[d, s]):
            raise HeadwiseError(f"key position {s} is outside the window of {wanted} at query position {d}")
        firing = Cell(wanted, d, s)
        attention = up.attention_at([firing])[0]
        keys = int(up.visible(wanted.layer)[d].sum()) if rules.visible_keys else d + 1
        threshold = rules.threshold(keys)
        if attention < threshold:
            raise HeadwiseError(
                f"{wanted} at position {d} gives position {s} attention {attention:.3f}, below the threshold "
                f"{threshold:.3f}: there is no firing to explain (give a smaller tau)"
            )
        found = LayerSearch(model, wanted.layer, rules, up.dtype).run(up, [firing])[0]
        counterfactuals = _counterfactuals(model, stream, up, firing, found, attention, draws, seed)
        error = max(stream.shares(wanted, one, d if one == "query" else s).error for one in sides)
    return FiringTrace(wanted, d, s, tokens, attention, threshold, found, counterfactuals, error)


def _counterfactuals(
    model: Model, stream: Stream, up: PromptWrites, firing: Cell, found: dict[Side, SideSignals], attention: float,
    draws: int, seed: int,
) -> tuple[Counterfactual, ...]:  # fmt: skip
    generator = seeded(seed)
    members: dict[Side, list[Signal]] = {side: s.signals for side, s in found.items() if s.resolved}
    cases: dict[Sides, dict[Side, list[Signal]]] = {side: {side: listed} for side, listed in members.items()}
    if len(members) == 2:
        cases["both"] = members
    known: Known = {}
    removals = [removal(up, firing, chain(*case.values()), known) for case in cases.values()]
    for case in cases.values():
        for _ in range(draws):
            control = [unused(m, model.d_head, generator) for m in case.values()]
            removals.append(removal(up, firing, chain(*control), known))
    edited = edited_attention(model, stream.token_ids[0], removals)
    made = []
    for i, (name, case) in enumerate(cases.items()):
        start = len(cases) + i * draws
        made.append(
            Counterfactual(name, name, sum(map(len, case.values())), attention, removals[i].predicted(up), edited[i],
                           tuple(edited[start : start + draws]))
        )  # fmt: skip
    return tuple(replace(c, target=Node.of(firing).id) for c in made)
