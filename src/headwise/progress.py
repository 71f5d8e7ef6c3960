"""How long work tells of its progress: one protocol for every study, and nothing here that draws.

A study takes ``progress: Progress | None`` and calls it with the name of the stage, how much of it is done, and how
much there is. What is done with that (bars, lines in a log, a web page) is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Tick = Callable[[int], None]
"""Told how many more parts of a stage are done."""
Begin = Callable[[str, int], Tick]
"""Begins a stage of so many parts."""


class Progress(Protocol):
    """Told which stage is under way, how many of its parts are done, and how many there are."""

    def __call__(self, stage: str, done: int, total: int, /) -> None: ...


def stages(progress: Progress | None) -> Begin:
    """A function that begins a stage and gives the one that counts its parts; silent if nobody listens.

    >>> tick = stages(lambda *now: print(*now))("counting", 5)
    counting 0 5
    >>> tick(2), tick(9)
    counting 2 5
    counting 5 5
    (None, None)
    """

    def begin(stage: str, total: int) -> Tick:
        done = 0

        def tick(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None:
                progress(stage, min(done, total), total)

        tick(0)
        return tick

    return begin
