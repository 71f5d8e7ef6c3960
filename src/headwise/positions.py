"""Places in a prompt: a position, or the text of a token, read by the same rules in every room."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headwise.errors import HeadwiseError, WrongField
from headwise.strings import in_short, joined, shortened, whole

_NUMBER = re.compile("-?[0-9]+")


def find_positions(tokens: Sequence[str], wanted: str | int, what: str = "") -> list[int]:
    """Positions of a token given as text, or the one position given as a number.

    A number, also one in digits, is a position and counts from the end if negative. Text matches a token exactly,
    or up to surrounding spaces if no token matches exactly. ``what`` names the place in a refusal (``query``).

    >>> find_positions(["When", " John", " and", " John"], "John"), find_positions(["a", "b"], "-1")
    ([1, 3], [1])
    """
    if not isinstance(wanted, str) or _NUMBER.fullmatch(wanted):
        return [_position(tokens, wanted, what)]
    exact = [position for position, token in enumerate(tokens) if token == wanted]
    if exact:
        return exact
    text = wanted.strip()
    loose = [position for position, token in enumerate(tokens) if text and token.strip() == text]
    if not loose:
        known = " ".join(f"{position}:{token!r}" for position, token in enumerate(tokens[:30]))
        more = " …" if len(tokens) > 30 else ""
        raise WrongField(
            f"{what or 'token'} {shortened(wanted)!r} is not in the prompt; its tokens are {known}{more}",
            what or "token",
        )
    return loose


def one_position(tokens: Sequence[str], wanted: str | int, what: str, *, upto: int | None = None) -> int:
    """The one position that is meant; ``what`` names it (``query``, ``key``) in the refusal.

    Text that occurs more than once is refused with its positions. Those after ``upto`` do not count: a key that
    comes after its query cannot be meant.

    >>> tokens = ["R", "ub", "en", " met", " ben", " and", " ben"]
    >>> one_position(tokens, "met", "key"), one_position(tokens, " ben", "key", upto=5)
    (3, 4)
    >>> one_position(tokens, " ben", "key")
    Traceback (most recent call last):
    ...
    headwise.errors.WrongField: key ' ben' occurs at positions 4 and 6: pass one of them
    """
    found = find_positions(tokens, wanted, what)
    if upto is not None and len(found) > 1:
        found = [position for position in found if position <= upto] or found
    if len(found) > 1:
        raise WrongField(
            f"{what} {shortened(str(wanted))!r} occurs at positions {joined(found)}: pass one of them",
            what,
            found,
        )
    return found[0]


def one_cell(tokens: Sequence[str], query: str | int, key: str | int) -> tuple[int, int]:
    """The positions of a query and of a key that it can see.

    >>> one_cell(["When", " John", " met", " John"], -1, "When")
    (3, 0)
    """
    row = one_position(tokens, query, "query")
    column = one_position(tokens, key, "key", upto=row)
    require_seen(tokens, row, column)
    return row, column


def require_seen(tokens: Sequence[str], query: int, key: int) -> None:
    """Refuse a key that comes after its query.

    >>> require_seen(["When", " John"], 0, 1)
    Traceback (most recent call last):
    ...
    headwise.errors.WrongField: key ' John' (1) comes after query 'When' (0), which cannot see it
    """
    if key > query:
        raise WrongField(
            f"key {tokens[key]!r} ({key}) comes after query {tokens[query]!r} ({query}), which cannot see it",
            "key",
        )


def _position(tokens: Sequence[str], wanted: Any, what: str) -> int:
    # Thousands of digits are no number to Python, and outside any prompt.
    is_text = isinstance(wanted, str)
    position = whole(wanted) if not is_text else int(wanted) if len(wanted) < 20 else len(tokens)
    if position is None:
        raise HeadwiseError(f"{in_short(wanted)} is not a position: give a whole number or the token's text")
    if not -len(tokens) <= position < len(tokens):
        given = shortened(wanted) if is_text else in_short(position)
        named = f"{what} position {given}" if what else f"position {given}"
        raise WrongField(
            f"{named} is outside the prompt, which has {len(tokens)} tokens (0 to {len(tokens) - 1})",
            what or "position",
        )
    return position % len(tokens)
