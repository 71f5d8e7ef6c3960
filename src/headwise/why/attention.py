"""A first look at a prompt: the model's answer, and which heads attend from one token to which others.

Heads that have nothing to do rest on a *sink*: the first token, and any other that the heads of the model together
give much of their attention. Sinks would fill every list and say nothing about the prompt, so they are left out
unless they are asked for, and what was left out is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headwise.model.model import Model
from headwise.positions import find_positions, one_position, require_seen
from headwise.tokens import Prompt, shown, shown_after
from headwise.types import Head

PLACES = 3
"""How many tokens are looked at if none are named."""
ANSWERS = 3
SINK = 0.3
"""Mean attention over all heads from which a token counts as a sink, as in the study of sinks."""


@dataclass(frozen=True)
class Place:
    """One key token and the heads that attend most to it."""

    position: int
    token: str
    heads: tuple[tuple[Head, float], ...]


@dataclass(frozen=True)
class HiddenSink:
    """A token that was left out, and how many heads have their strongest cell of the row there."""

    position: int
    token: str
    cells: int


@dataclass(frozen=True, kw_only=True)
class Look:
    """What :func:`strongest_heads` found."""

    prompt: str | None
    tokens: tuple[str, ...]
    query: int
    answers: tuple[tuple[str, float], ...]
    places: tuple[Place, ...]
    hidden: tuple[HiddenSink, ...] = ()
    start: int = 0
    """The position id of the first token."""

    @property
    def query_token(self) -> str:
        return self.tokens[self.query]

    @property
    def hidden_cells(self) -> int:
        """How many heads' strongest cells lie on tokens that were left out."""
        return sum(sink.cells for sink in self.hidden)

    def to_json(self) -> dict[str, Any]:
        """One document: prompt, tokens, answers, and per token the heads that attend most to it."""
        return {
            "prompt": self.prompt,
            "tokens": list(self.tokens),
            "start": self.start,
            "query": self.query,
            "answers": [{"token": token, "probability": p} for token, p in self.answers],
            "places": [
                {
                    "position": place.position,
                    "token": place.token,
                    "heads": [{"head": str(head), "attention": share} for head, share in place.heads],
                }
                for place in self.places
            ],
            "hidden": [
                {"position": sink.position, "token": sink.token, "cells": sink.cells} for sink in self.hidden
            ],
        }


def strongest_heads(
    model: Model,
    prompt: Prompt,
    *,
    to: Sequence[str | int] | None = None,
    query: str | int = -1,
    top: int = 5,
    sinks: bool = False,
    start: int = 0,
) -> Look:
    """The model's answer after the prompt, and for each token of ``to`` the heads that attend to it most.

    Without ``to`` the tokens are those that some head attends to most strongly; sinks are left out of them unless
    ``sinks`` is true. ``start`` is the position of the prompt's first token.
    """
    token_ids = model.prompt_ids(prompt)
    tokens = shown(model.tokenizer, token_ids)
    row = one_position(tokens, query, "query")
    named = list(
        dict.fromkeys(position for wanted in to or () for position in find_positions(tokens, wanted))
    )
    for column in named:
        require_seen(tokens, row, column)
    seen = model.capture(token_ids, queries=row, want=("pattern",), logits="last", start=start)
    pattern = seen.pattern[0, :, 0]  # [heads, positions]
    hidden = [] if named or sinks else sinks_of(pattern, row)
    columns = named or _strongest(pattern[:, : row + 1], hidden)
    best = seen.logits[0, 0].float().softmax(-1).topk(ANSWERS)
    places = []
    for column in columns:
        values, indices = pattern[:, column].topk(min(top, pattern.shape[0]))
        ranked = zip(indices.tolist(), values.tolist(), strict=True)
        places.append(Place(column, tokens[column], tuple((model.heads[i], share) for i, share in ranked)))
    peaks = pattern.argmax(1)
    return Look(
        prompt=prompt if isinstance(prompt, str) else None,
        tokens=tokens,
        query=row,
        answers=tuple(
            (shown_after(model.tokenizer, token_ids, token), share)
            for token, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ),
        places=tuple(places),
        hidden=tuple(HiddenSink(s, tokens[s], int((peaks == s).sum())) for s in hidden),
        start=seen.start,
    )


def sinks_of(pattern: Tensor, query: int) -> list[int]:
    """Tokens where heads rest in one row [heads, positions] of a prompt: the first, and those above ``SINK``.

    A token that attends to itself is no sink, and of two tokens nothing is left out.

    >>> import torch
    >>> sinks_of(torch.tensor([[0.2, 0.1, 0.6, 0.0, 0.1], [0.1, 0.1, 0.4, 0.2, 0.2]]), 4)
    [0, 2]
    """
    if query < 2:
        return []
    received = pattern[:, :query].mean(0).tolist()
    return [position for position, mean in enumerate(received) if position == 0 or mean >= SINK]


def _strongest(pattern: Tensor, hidden: Sequence[int]) -> list[int]:
    """The columns with the largest single attention, without those that are hidden."""
    peaks = pattern.max(0).values
    peaks[list(hidden)] = -1.0
    return peaks.topk(min(PLACES, pattern.shape[1] - len(hidden))).indices.tolist()
