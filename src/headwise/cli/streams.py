"""The standard streams made fit for use: of any encoding, on a full disk, or closed by whoever started us.

Results are never lost without a word: what stdout cannot take ends the command in one line. Progress on stderr
is only a courtesy, so whatever is wrong with stderr ends nothing.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Any

from headwise.errors import HeadwiseError

HANDLER = "headwise"
# What our own tables are drawn with; anything else that an encoding lacks is written as its escape.
_PLAIN = {
    "█": "#",
    "…": "...",
    "→": "->",
    "←": "<-",
    "–": "-",
    "—": "-",
    "−": "-",
    "±": "+/-",
    "×": "x",
    "·": ".",
    "’": "'",
    "≥": ">=",
    "⟨": "<",
    "⟩": ">",
    "≤": "<=",
    "Δ": "delta",
    "σ": "sigma",
    "τ": "tau",
    "─": "-",
}


def prepare() -> None:
    """Make the three streams safe to use; refuses to go on where stdout is closed."""
    codecs.register_error(HANDLER, replaced)
    # A closed descriptor would be given to the next file that is opened, and what is printed would end up in it.
    closed = [number for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)) if stream is None]
    for number in closed:
        _occupy(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stderr = _tamed(sys.stderr, _Courtesy, 2)
    if sys.stdout is None:
        sys.stdout = _tamed(None, _Courtesy, 1)
        raise HeadwiseError("standard output is closed: leave it open, or send it to a file or /dev/null")
    sys.stdout = _tamed(sys.stdout, _Results, 1)


def replaced(error: UnicodeError) -> tuple[str, int]:
    r"""The error handler of the streams: what an encoding lacks, in plain characters.

    >>> codecs.register_error(HANDLER, replaced)
    >>> "' café' 0.9 ██ 🍎".encode("ascii", HANDLER)
    b"' caf\\xe9' 0.9 ## \\U0001f34e"
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    plain = (_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode("ascii") for c in missing)
    return "".join(plain), error.end


class _Results(io.FileIO):
    """stdout: what goes wrong in writing to it is the user's to know, in one line."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise  # the reader has seen enough
        except OSError as error:
            raise HeadwiseError(
                f"standard output cannot be written ({error.strerror or error}): free some space, or send it elsewhere"
            ) from None


class _Courtesy(io.FileIO):
    """stderr: nobody may be there to read it, and the work goes on all the same."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _tamed(stream: Any, raw: type[io.FileIO], number: int) -> Any:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if stream is not None and stream.isatty():
        # A terminal has no disk to be full, and on some systems a stream of its own kind.
        stream.reconfigure(errors=HANDLER)
        return stream
    buffered = io.BufferedWriter(raw(number, "w", closefd=False))
    return io.TextIOWrapper(buffered, encoding=encoding, errors=HANDLER, line_buffering=number == 2)


def _occupy(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        found = os.open(os.devnull, os.O_RDWR)
        if found != number:
            os.dup2(found, number)
            os.close(found)
