"""The one exception that users see.

Its message is a single line that quotes what the user wrote, says what was expected and what to do. The command
line prints it without a traceback and exits with code 2; in Python it is an ordinary exception.
"""

from __future__ import annotations


class HeadwiseError(Exception):
    """Something the user gave cannot be used; the message is one line that says what to do."""
