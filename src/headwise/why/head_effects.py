"""Heads of one prompt silenced, set to their mean or given what they write in another prompt: what the model then says.

This is where most people begin. Every set of heads is compared with as many other heads of the same layers, edited in
the same way at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from headwise.arguments import count
from headwise.bases.calibrate import calibrated
from headwise.bases.calibration import Calibration
from headwise.circuits.counterfactual import Outcome, mean, outcomes
from headwise.circuits.patching import Align, aligned, place_in, require_source
from headwise.errors import HeadwiseError
from headwise.head_names import head_and_row
from headwise.model.batch import resolve_positions
from headwise.model.edits import OutputEdit, SetOutput, Silence
from headwise.model.outputs import head_outputs
from headwise.randomness import keyed
from headwise.tokens import Prompt
from headwise.types import Head, HeadLike, head_list
from headwise.why.question import Answer, find_answer

if TYPE_CHECKING:
    from headwise.model.model import Model

HeadAction = Literal["silence", "mean", "patch"]
Make = Callable[["HeadPlace"], OutputEdit]


@dataclass(frozen=True)
class HeadPlace:
    """A head at one position of a prompt, or at all of them.

    >>> HeadPlace.parse("L9H6@13"), HeadPlace.parse("9.6"), HeadPlace.parse((9, 6))
    (L9H6@13, L9H6, L9H6)
    """

    head: Head
    row: int | None = None

    @classmethod
    def parse(cls, given: HeadPlace | HeadLike) -> HeadPlace:
        if isinstance(given, HeadPlace):
            return given
        if isinstance(given, str):
            layer, index, row = head_and_row(given)
            return cls(Head(layer, index), row)
        return cls(Head.parse(given))

    def __str__(self) -> str:
        return str(self.head) if self.row is None else f"{self.head}@{self.row}"

    __repr__ = __str__


@dataclass(frozen=True, kw_only=True)
class HeadEffect:
    """What the model says with some heads edited, against its controls."""

    heads: tuple[str, ...]
    action: HeadAction
    answer: str
    wrong: str
    clean: Outcome
    edited: Outcome
    controls: tuple[Outcome, ...]
    """As many other heads of the same layers, edited in the same way; fewer than asked for where a layer has fewer."""

    @property
    def lead_change(self) -> float:
        """Change of the answer's logit minus that of the wrong one."""
        return self.edited.lead - self.clean.lead

    @property
    def control_lead_change(self) -> float | None:
        """Mean size of the controls' changes (their signs differ); None without controls."""
        if not self.controls:
            return None
        return mean([abs(control.lead - self.clean.lead) for control in self.controls])


def intervene_heads(
    model: Model,
    prompt: Prompt,
    heads: Sequence[HeadLike | HeadPlace | Sequence[HeadLike | HeadPlace]],
    *,
    action: HeadAction = "silence",
    source: Prompt | None = None,
    align: Align = None,
    means: Calibration | Tensor | None = None,
    answer: str | int | None = None,
    wrong: str | int | None = None,
    draws: int = 20,
    seed: int = 0,
    start: int = 0,
) -> list[HeadEffect]:
    """Silence heads, set them to their mean or patch them from another prompt, and see what the model says.

    Parameters
    ----------
    model:
        A loaded model.
    prompt:
        The text that the model reads, or its token ids.
    heads:
        Sets of heads that are edited together: ``L22H4`` at all positions, ``L22H4@13`` at one. A single head is a
        set of one.
    action:
        ``silence``: they write nothing; ``mean``: they write what they write on average; ``patch``: they write what
        they write in ``source``.
    source:
        With ``patch``: the other prompt, as text or token ids.
    align:
        With ``patch``: positions of the prompt, each with the position of ``source`` that stands for it; default: the
        same ones, if both prompts have as many tokens.
    means:
        With ``mean``: what each head writes on average, as a calibration or as a tensor [layers, heads, d_head];
        default: over the corpus that ``headwise calibrate`` takes by default, made now if it was not before.
    answer:
        The answer's token, as text or token id; default: what the model predicts.
    wrong:
        The token it is compared with; default: the next most likely one.
    draws:
        Controls per set: other heads of the same layers.
    seed:
        The seed of everything random.
    start:
        The position of the prompt's first token, with nothing before it; 0 unless the model has rotary positions.

    Returns
    -------
    list of HeadEffect
        One per set: the answer's lead and probability, clean, edited and in the controls.
    """
    if action not in ("silence", "mean", "patch"):
        raise HeadwiseError(f"action {action!r} is not an action: write 'silence', 'mean' or 'patch'")
    require_source(action, source, align)
    if means is not None and action != "mean":
        raise HeadwiseError(
            f"means are used only with the action 'mean', not with {action!r}: leave them out"
        )
    draws = count(draws, "draws", "is less than none", least=0)
    token_ids = model.prompt_ids(prompt)
    sets = [_set(model, one, len(token_ids)) for one in heads]
    controls = [_other_heads(model, one, draws, seed) for one in sets]
    every = {place.head for group in (sets, *controls) for one in group for place in one}
    make = _maker(model, token_ids, sorted(every), action, source, align, means, start)
    with torch.no_grad():
        found = _answer(model, token_ids, answer, wrong, start)
        plans = [[], *([make(place) for place in one] for one in sets)]
        plans += [[make(place) for place in one] for drawn in controls for one in drawn]
        clean, *seen = outcomes(model, token_ids, plans, found, start=start)
    rest = iter(seen[len(sets) :])
    return [
        HeadEffect(
            heads=tuple(map(str, one)),
            action=action,
            answer=found.text,
            wrong=found.wrong_text,
            clean=clean,
            edited=edited,
            controls=tuple(next(rest) for _ in drawn),
        )
        for one, edited, drawn in zip(sets, seen, controls, strict=False)
    ]


def _set(model: Model, given: Any, length: int) -> tuple[HeadPlace, ...]:
    """Heads that are edited together, each known to the model and at a position of the prompt."""
    listed = [given] if isinstance(given, HeadPlace) else head_list(given)
    if not listed:
        raise HeadwiseError("a set of no heads was given: name at least one, such as L22H4")
    made = []
    for one in map(HeadPlace.parse, listed):
        model.head(one.head)
        row = None if one.row is None else resolve_positions(one.row, [length], f"{one.head}")[0][0]
        made.append(replace(one, row=row))
    return tuple(made)


def _other_heads(
    model: Model, chosen: tuple[HeadPlace, ...], draws: int, seed: int
) -> list[tuple[HeadPlace, ...]]:
    """Sets of as many other heads of the same layers at the same positions, no set twice."""
    named = {place.head for place in chosen}
    layers = sorted({head.layer for head in named})
    made: dict[tuple[HeadPlace, ...], None] = {}
    for draw in range(draws):
        instead: dict[Head, Head] = {}
        for layer in layers:
            mine = sorted(head for head in named if head.layer == layer)
            free = [Head(layer, i) for i in range(model.n_heads) if Head(layer, i) not in named]
            if len(free) < len(mine):
                return []
            generator = keyed(seed, "other heads", *map(str, chosen), layer, draw)
            order = torch.randperm(len(free), generator=generator).tolist()
            instead |= {head: free[order[i]] for i, head in enumerate(mine)}
        drawn = [replace(place, head=instead[place.head]) for place in chosen]
        made[tuple(sorted(drawn, key=str))] = None
    return list(made)


def _maker(
    model: Model,
    token_ids: list[int],
    heads: Sequence[Head],
    action: HeadAction,
    source: Prompt | None,
    align: Align,
    means: Calibration | Tensor | None,
    start: int,
) -> Make:
    """What makes the edit of one head, whichever of ``heads`` it is."""
    if action == "silence":
        return lambda place: Silence(head=place.head, positions=place.row)
    if action == "mean":
        values = _means(model, means)
        return lambda place: SetOutput(
            head=place.head, positions=place.row, value=values[place.head.layer, place.head.index]
        )
    assert source is not None
    other = model.prompt_ids(source)
    places = aligned(len(token_ids), len(other), align)
    written = head_outputs(model, other, heads, start=start)[0]

    def patch(place: HeadPlace) -> OutputEdit:
        rows = list(places) if place.row is None else [place.row]
        there = [place_in(places, row, str(place)) for row in rows]
        return SetOutput(head=place.head, positions=rows, value=written[place.head][there])

    return patch


def _means(model: Model, means: Calibration | Tensor | None) -> Tensor:
    if means is None:
        return calibrated(model)[0].outputs
    if isinstance(means, Calibration):
        model.require(
            means.weight_hash, "this calibration", of=means.model, do="calibrate this model, or load that one"
        )
        return means.outputs
    shape = [model.n_layers, model.n_heads, model.d_head]
    if not isinstance(means, Tensor) or list(means.shape) != shape:
        given = list(means.shape) if isinstance(means, Tensor) else type(means).__name__
        raise HeadwiseError(
            f"means are {given}, not a tensor of shape {shape}: give layers, heads and d_head of {model.name!r}"
        )
    return means


def _answer(
    model: Model, token_ids: list[int], answer: str | int | None, wrong: str | int | None, start: int
) -> Answer:
    seen = model.capture(token_ids, heads=(), logits="last", start=start)
    return find_answer(model, token_ids, seen.logits[0, 0], answer, wrong)
