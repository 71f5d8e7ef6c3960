"""The one exception that users see.

Its message is a single line that quotes what the user wrote, says what was expected and what to do. The command
line prints it without a traceback and exits with code 2; in Python it is an ordinary exception.
"""

from __future__ import annotations


class HeadwiseError(Exception):
    """Something the user gave cannot be used; the message is one line that says what to do."""


class NeedsSetting(HeadwiseError):
    """It can be done, but only in a process that was started with the environment ``variables`` set."""

    def __init__(self, message: str, variables: dict[str, str]) -> None:
        super().__init__(message, variables)  # both, so that it can be sent from a worker
        self.variables = variables

    def __str__(self) -> str:
        return self.args[0]
