"""The one exception that users see.

Its message is a single line that quotes what the user wrote, says what was expected and what to do. The command
line prints it without a traceback and exits with code 2; in Python it is an ordinary exception.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST_WORD, LONGEST = 200, 500
"""Characters of a word, and of a whole message: what was given may be a file in one line."""
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


class HeadwiseError(Exception):
    """Something the user gave cannot be used; the message is one line that says what to do.

    >>> len(str(HeadwiseError(f"there is no {'9' * 5000}: give another")))
    224
    """

    def __init__(self, message: str, *others: object) -> None:
        super().__init__(_bounded(message), *others)


def _bounded(message: str) -> str:
    """The message with what is too long for a line cut in its middle: the end says what to do."""
    return cut(_LONG_WORD.sub(lambda found: cut(found[0], LONGEST_WORD), message), LONGEST)


def cut(text: str, limit: int) -> str:
    """Text of at most so many characters, without its middle where it is longer."""
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


class NeedsSetting(HeadwiseError):
    """It can be done, but only in a process that was started with the environment ``variables`` set."""

    def __init__(self, message: str, variables: dict[str, str]) -> None:
        super().__init__(message, variables)  # both, so that it can be sent from a worker
        self.variables = variables

    def __str__(self) -> str:
        return self.args[0]


class WrongField(HeadwiseError):
    """What was given under the name ``where`` cannot be used; ``choices`` could be given there instead."""

    def __init__(self, message: str, where: str, choices: Sequence[object] = ()) -> None:
        super().__init__(message, where, tuple(choices))  # all, so that it can be sent from a worker
        self.where, self.choices = where, tuple(map(str, choices))

    def __str__(self) -> str:
        return self.args[0]
