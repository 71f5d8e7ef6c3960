"""How long work tells of its progress: one protocol for every study, and nothing here that draws.

A study takes ``progress: Progress | None`` and calls it with the name of the stage, how much of it is done, and how
much there is. What is done with that (bars, lines in a log, a web page) is the caller's business.

Work that nobody asked to hear of, such as converting a model, is :class:`Working`: two plain lines on stderr if it
takes a while, or whatever the command line draws instead.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Context
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Protocol, Self

from headwise.strings import printable

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


def notice(text: str) -> None:
    """A line on stderr that is no progress, and is told even where no progress is: where a text will be sent."""
    print(printable(f"headwise: {text}"), file=sys.stderr, flush=True)


def remark(text: str) -> None:
    """A line on stderr about work that is under way: which node did what. Silent where no progress is wanted."""
    if not _quiet:
        notice(text)


# --- work with a title ---

Show = Callable[[str, float], None]
"""Told what is being done now, and the part of the whole that is done."""
Draw = Callable[[str], "Context[Show] | None"]
"""Draws work of this title while it lasts, or says that it cannot."""

_quiet = False
_draw: Draw | None = None


@contextmanager
def silenced(quiet: bool = True) -> Iterator[None]:
    """Inside, nothing tells of progress on stderr."""
    global _quiet
    before, _quiet = _quiet, quiet
    try:
        yield
    finally:
        _quiet = before


def is_quiet() -> bool:
    """Whether the user wants no progress on stderr."""
    return _quiet


@contextmanager
def drawn_by(draw: Draw) -> Iterator[None]:
    """Inside, ``draw`` shows what :class:`Working` does."""
    global _draw
    before, _draw = _draw, draw
    try:
        yield
    finally:
        _draw = before


class Working:
    """Tells of its title, the stage that is under way and the time taken; silent about work that is over at once.

    >>> with Working("counting") as work:
    ...     work.stage("by twos", 0.5)
    """

    # A stage without a fraction of its own moves on by a part of what is left, so that it never ends too soon.
    _STEP = 0.2
    _PATIENCE = 0.5

    def __init__(self, title: str) -> None:
        self.title = printable(title)
        self._show: Show | None = None
        self._announced = False
        self._done = 0.0
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        drawn = None if _quiet or _draw is None else _draw(self.title)
        if drawn is not None:
            self._show = self._open.enter_context(drawn)
        return self

    def stage(self, name: str, fraction: float | None = None) -> None:
        """Say what is being done now, and how much of that stage is done if that is known."""
        if fraction is None:
            self._done += self._STEP * (1.0 - self._done)
            shown = self._done
        else:
            shown = self._done + self._STEP * (1.0 - self._done) * fraction
        if self._show is not None:
            self._show(printable(name), shown)
        elif not _quiet and not self._announced and time.monotonic() - self._began > self._PATIENCE:
            self._announced = True
            print(f"headwise: {self.title} ...", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        seconds = time.monotonic() - self._began
        if kind is None and (self._announced or (self._show is not None and seconds > 2)):
            print(f"headwise: {self.title}: done in {seconds:.0f} s", file=sys.stderr, flush=True)
