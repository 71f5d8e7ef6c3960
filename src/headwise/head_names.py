"""How people write a head, read without anything heavy: a mistyped name is refused before a model is loaded."""

from __future__ import annotations

import re

from headwise.errors import HeadwiseError
from headwise.strings import shortened

# No model has a layer of ten digits, and Python refuses to read numbers of thousands.
_FORMS = (
    re.compile(r"L([0-9]{1,9})\.?H([0-9]{1,9})", re.IGNORECASE),
    re.compile(r"([0-9]{1,9})\.([0-9]{1,9})"),
    re.compile(r"a([0-9]{1,9})\.h([0-9]{1,9})", re.IGNORECASE),
)

_POSITION = re.compile(r"-?[0-9]{1,9}")


def layer_and_head(text: str) -> tuple[int, int]:
    """The two numbers of ``L9H6``, ``9.6`` or ``a9.h6``.

    >>> layer_and_head("L9H6")
    (9, 6)
    """
    for form in _FORMS:
        if match := form.fullmatch(text.strip()):
            return int(match[1]), int(match[2])
    raise not_a_head(text)


def head_and_row(text: str) -> tuple[int, int, int | None]:
    """A head, with or without the one position at which it is meant; a negative one counts from the prompt's end.

    >>> head_and_row("L9H6"), head_and_row("L9H6@13"), head_and_row("9.6@-1")
    ((9, 6, None), (9, 6, 13), (9, 6, -1))
    >>> head_and_row("L9H6@to")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: 'to' in 'L9H6@to' is not a position: write a head at one position as L9H6@13
    """
    name, at, row = text.partition("@")
    layer, head = layer_and_head(name)
    if not at:
        return layer, head, None
    if not _POSITION.fullmatch(row.strip()):
        raise HeadwiseError(
            f"{shortened(row)!r} in {shortened(text)!r} is not a position: write a head at one position as "
            f"L{layer}H{head}@13"
        )
    return layer, head, int(row)


def not_a_head(given: str) -> HeadwiseError:
    """The one line about something that is not a head."""
    return HeadwiseError(f"{shortened(given)!r} is not a head: write it as L9H6, 9.6 or a9.h6")
