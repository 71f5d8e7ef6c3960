"""Numbers that callers give: of the right kind and within bounds, or one line that names the parameter."""

from __future__ import annotations

import math
from typing import Any

from headwise.errors import HeadwiseError
from headwise.strings import in_short, is_boolean, whole


def share(value: Any, name: str, what: str = "an attention", *, zero: bool = False) -> float:
    """An attention or a probability: a number above 0 (or from 0 on, with ``zero``) and up to 1.

    >>> share(0.5, "tau")
    0.5
    >>> share("0.5", "tau")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: tau='0.5' is not an attention: give a number above 0 and up to 1
    """
    number = _number(value)
    if number is None or not 0 <= number <= 1 or (number == 0 and not zero):
        span = "from 0 to 1" if zero else "above 0 and up to 1"
        raise HeadwiseError(f"{name}={in_short(value)} is not {what}: give a number {span}")
    return number


def count(value: Any, name: str, problem: str, *, least: int = 1) -> int:
    """A whole number of at least ``least``; ``problem`` says what is wrong with less.

    >>> count(3, "draws", "leaves no controls")
    3
    >>> count(0, "draws", "leaves no controls")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: draws=0 leaves no controls: give 1 or more
    """
    number = whole(value)
    if number is None:
        raise HeadwiseError(f"{name}={in_short(value)} is not a whole number: give {least} or more")
    if number < least:
        raise HeadwiseError(f"{name}={in_short(value)} {problem}: give {least} or more")
    return number


def _number(value: Any) -> float | None:
    """A finite number of any library's scalar type; None for all else, text included."""
    if is_boolean(value) or isinstance(value, str | bytes):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    return number if math.isfinite(number) else None
