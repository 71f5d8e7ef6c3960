"""An attended cell in context, to look at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CellInText:
    """One attended cell with the text around it."""

    text: int
    """The number of the text in the corpus."""
    tokens: tuple[str, ...]
    """The tokens from somewhat before the key to somewhat after the query."""
    query: int
    """Which of these tokens attends."""
    key: int
    """Which of them it attends to."""
    attention: float
    """The head's attention."""
    part: float
    """The feature's part of the logit, less its mean over the row's keys."""
    without: float
    """The attention without that part."""
