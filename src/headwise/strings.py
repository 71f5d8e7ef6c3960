"""Text and numbers from outside: what may be read as such at all, and how it is shown on a terminal.

A prompt, a label or a model's name may hold anything. Control characters in it must not move the reader's
cursor, and half of a surrogate pair, which no UTF-8 file can hold, is refused where it comes in.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError, cut

# C0 without tab and line feed, DEL and C1, marks that reorder text, line separators, and lone surrogates.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

_DIGITS = 18
"""Of a count or a position at most; Python refuses to read thousands."""


def printable(text: str) -> str:
    """Text with every control character but tab and line feed written out.

    >>> printable("caf\\xe9 \\x1b[31mred\\x9b1m")
    'café \\\\x1b[31mred\\\\x9b1m'
    """
    return _CONTROL.sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def shortened(text: str, limit: int = 60) -> str:
    """Text for a message: what the user wrote, cut in the middle where it is long.

    >>> shortened("a" * 10 + "b" * 200, 21)
    'aaaaaaaaaa…bbbbbbbbbb'
    """
    return cut(text, limit)


def in_short(value: Any) -> str:
    """A Python value for a message, on one line and short whatever it is.

    >>> in_short(2.7), in_short(10**5000)
    ('2.7', 'a number of thousands of digits')
    """
    try:
        return shortened(" ".join(repr(value).split()))
    except ValueError:  # Python prints no integer beyond 4,300 digits
        return "a number of thousands of digits"


def joined(items: Sequence[object], most: int = 12) -> str:
    """Items as a sentence lists them.

    >>> joined([4]), joined([4, 10]), joined([1, 2, 3]), joined(range(100), most=3)
    ('4', '4 and 10', '1, 2 and 3', '0, 1, 2 and 97 more')
    """
    named = [str(item) for item in items[:most]]
    if len(items) > most:
        named.append(f"{len(items) - most} more")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def whole_number(text: str) -> int | None:
    """The number that a text is in plain digits; None for all else that Python takes for digits.

    >>> whole_number("12"), whole_number("²"), whole_number("١٢"), whole_number("-1"), whole_number("9" * 5000)
    (12, None, None, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def whole(value: Any) -> int | None:
    """A whole number of any integer type (Python's, NumPy's, a tensor's one element); None for all else.

    >>> import numpy as np
    >>> whole(7), whole(np.int64(7)), whole(2.7), whole(True), whole(np.bool_(True)), whole("7")
    (7, 7, None, None, None, None)
    """
    if is_boolean(value):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def is_boolean(value: Any) -> bool:
    """Whether this is a truth value, or a tensor or array of them (of any library; none is imported to see)."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "signal"), counted(3, "signal"), counted(0, "family", "families")
    ('1 signal', '3 signals', '0 families')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def percent(share: float) -> str:
    """A share as a whole number of per cent, which no line break parts from its sign and no zero has a minus.

    >>> percent(0.506), percent(-0.001)
    ('51\\xa0%', '0\\xa0%')
    """
    return f"{round(100 * share) + 0:d}\u00a0%"


def natural(text: str) -> tuple[int, int, str]:
    """A key that sorts labels as people count them: numbers first and by size, however many digits they have.

    >>> sorted(["b", "10", "²", "9"], key=natural)
    ['9', '10', 'b', '²']
    """
    if not (text.isascii() and text.isdigit()):
        return (1, 0, text)
    digits = text.lstrip("0")
    return (0, len(digits), f"{digits} {text}")


def well_formed(text: str, what: str) -> str:
    """The text itself if it can be written as UTF-8 and holds no NUL; ``what`` names it in the refusal.

    >>> well_formed("caf\\udce9", "prompt")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: prompt 'caf\\udce9' is not valid text (character 3 is half of a pair): ...
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise HeadwiseError(
            f"{what} {shortened(text)!r} is not valid text (character {error.start} is half of a pair): "
            "give it as UTF-8"
        ) from None
    if "\x00" in text:
        at = text.index("\x00")
        raise HeadwiseError(f"{what} {shortened(text)!r} holds a NUL character (at {at}): remove it")
    return text


def read_lines(path: str | Path, hint: str) -> list[str]:
    """The lines of a UTF-8 file, without their ends; ``hint`` says what kind of file to give.

    Lines end at a line feed alone: Python would also cut at U+2028, U+0085 and others, which are ordinary
    characters inside a JSON text.

    >>> read_lines("no such file.txt", "give a text file")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: 'no such file.txt' cannot be read (No such file or directory): give a text file
    """
    try:
        lines = Path(path).read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 text (byte {error.start})"
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:  # a path with a NUL in it
        reason = str(error)
    else:
        return [line.removesuffix("\r") for line in lines]
    raise HeadwiseError(f"{str(path)!r} cannot be read ({reason}): {hint}")


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(0.0123), duration(8.24), duration(80.4), duration(95), duration(7300)
    ('0.012 s', '8.2 s', '80 s', '2 min', '2 h 2 min')
    """
    if seconds < 90:
        return f"{seconds:.2g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
