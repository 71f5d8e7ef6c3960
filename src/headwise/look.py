"""A first look at a prompt: the model's answer, and who attends from one token to another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.strings import shortened
from headwise.types import Head
from headwise.validation import quoted

_NUMBER = re.compile("-?[0-9]+")


@dataclass(frozen=True)
class Place:
    """One key token and the heads that attend most to it."""

    position: int
    token: str
    heads: tuple[tuple[Head, float], ...]


@dataclass(frozen=True)
class Look:
    """What :func:`strongest_heads` found."""

    prompt: str
    tokens: tuple[str, ...]
    query: int
    query_token: str
    answers: tuple[tuple[str, float], ...]
    places: tuple[Place, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "tokens": list(self.tokens),
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
        }


def find_positions(tokens: Sequence[str], wanted: str | int) -> list[int]:
    """Positions of a token given as text, or the one position given as a number.

    A number is a position; text matches a token exactly, or up to surrounding spaces if no token matches exactly.

    >>> find_positions(["When", " John", " and", " John"], "John"), find_positions(["a", "b"], "-1")
    ([1, 3], [1])
    """
    if isinstance(wanted, int) or _NUMBER.fullmatch(wanted):
        # Thousands of digits are no number to Python, and outside any prompt.
        position = int(wanted) if isinstance(wanted, int) or len(wanted) < 20 else None
        if position is None or not -len(tokens) <= position < len(tokens):
            given = shortened(wanted) if isinstance(wanted, str) else quoted(wanted)
            raise HeadwiseError(
                f"position {given} is outside the prompt, which has {len(tokens)} tokens (0 to {len(tokens) - 1})"
            )
        return [position % len(tokens)]
    exact = [position for position, token in enumerate(tokens) if token == wanted]
    if exact:
        return exact
    text = wanted.strip()
    loose = [position for position, token in enumerate(tokens) if text and token.strip() == text]
    if not loose:
        shown = " ".join(f"{position}:{token!r}" for position, token in enumerate(tokens[:30]))
        more = " …" if len(tokens) > 30 else ""
        raise HeadwiseError(f"token {shortened(wanted)!r} is not in the prompt; its tokens are {shown}{more}")
    return loose


def strongest_heads(
    model: Model, prompt: str, *, to: Sequence[str | int] | None = None, query: str | int = -1, top: int = 5
) -> Look:
    """The model's answer after the prompt, and for each token of ``to`` the heads that attend to it most."""
    tokens = model.tokens(prompt)
    rows = find_positions(tokens, query)
    if len(rows) > 1:
        raise HeadwiseError(
            f"token {query!r} stands at positions {rows}: give one of these positions as the query"
        )
    seen = model.capture(prompt, queries=rows[0], want=("pattern",), logits="last")
    pattern = seen.pattern[0, :, 0]
    columns = (
        list(dict.fromkeys(position for wanted in to for position in find_positions(tokens, wanted)))
        if to
        else pattern.max(0).values.topk(min(3, len(tokens))).indices.tolist()
    )
    late = [column for column in columns if column > rows[0]]
    if late:
        raise HeadwiseError(
            f"key position {late[0]} comes after query position {rows[0]}, which cannot see it"
        )
    probabilities = seen.logits[0, 0].float().softmax(-1)
    best = probabilities.topk(3)
    places = []
    for column in columns:
        values, indices = pattern[:, column].topk(min(top, pattern.shape[0]))
        ranked = zip(indices.tolist(), values.tolist(), strict=True)
        places.append(Place(column, tokens[column], tuple((model.heads[i], share) for i, share in ranked)))
    return Look(
        prompt=prompt,
        tokens=tuple(tokens),
        query=rows[0],
        query_token=tokens[rows[0]],
        answers=tuple(
            (model.tokenizer.decode([token]), share)
            for token, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ),
        places=tuple(places),
    )
