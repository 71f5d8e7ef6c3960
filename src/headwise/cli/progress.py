"""All progress that is drawn: bars on stderr, live on a terminal, a few plain lines in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Context
from contextlib import contextmanager
from typing import Any

from headwise.progress import Show, is_quiet
from headwise.strings import counted, duration, printable

WATCHED = 0.5
"""Seconds between two lines for a program that follows the log (``HEADWISE_PROGRESS`` is set), as the app does."""


def _watched() -> bool:
    return bool(os.environ.get("HEADWISE_PROGRESS"))


def live_bar(title: str) -> Context[Show] | None:
    """A bar for :class:`headwise.progress.Working`; None where stderr is no terminal."""
    return _live_bar(title) if sys.stderr.isatty() else None


@contextmanager
def _live_bar(title: str) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[stage]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0, stage="")
        yield lambda stage, done: bar.update(task, completed=done, stage=stage)


@contextmanager
def noted_bars() -> Iterator[Any]:
    """Bars with a note each, for work whose numbers are worth watching."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from headwise.show.kit.terminal import console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
    )
    # In a log, a bar that is taken away at its end would leave an empty line.
    hidden = is_quiet() or not sys.stderr.isatty()
    with Progress(*columns, console=console(stderr=True), transient=True, disable=hidden) as bar:
        yield bar


@contextmanager
def stage_bars(
    counts: Callable[[str], str] = lambda _stage: "prompt",
) -> Iterator[Callable[[str, int, int], None]]:
    """A function of (stage, done, total) that draws one bar per stage; ``counts`` says what a stage goes over."""
    if is_quiet() or not sys.stderr.isatty():
        told: dict[str, float] = {}

        def tell(stage: str, done: int, total: int) -> None:
            now = time.monotonic()
            watched = _watched() and (done == total or now - told.get(stage, 0.0) >= WATCHED)
            if (stage in told and not watched) or is_quiet():
                return
            told[stage] = now
            parts = f"{done} of {total} {counts(stage)}s" if _watched() else counted(total, counts(stage))
            print(printable(f"headwise: {stage}: {parts}"), file=sys.stderr, flush=True)

        yield tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from headwise.show.kit.terminal import console

    columns = (
        TextColumn("{task.description:<20}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True)) as bars:
        tasks: dict[str, object] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield show


class Pace:
    """How fast something goes, as measured since the first report; what was done before that is not counted.

    >>> clock = iter([0.0, 10.0, 20.0])
    >>> pace = Pace(lambda: next(clock))
    >>> pace.left(100, 200), pace.left(110, 200), pace.left(140, 200)
    (None, 90.0, 30.0)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.first: tuple[float, int] | None = None

    def left(self, done: int, total: int) -> float | None:
        """Seconds to go; None before anything was measured."""
        now = self.clock()
        self.first = self.first or (now, done)
        began, before = self.first
        return (total - done) * (now - began) / (done - before) if done > before else None


def time_text(seconds: float | None) -> str:
    """A duration for people.

    >>> time_text(None), time_text(8.2), time_text(95), time_text(7300)
    ('measuring', '8 s', '2 min', '2 h 2 min')
    """
    if seconds is None:
        return "measuring"
    return f"{seconds:.0f} s" if seconds < 10 else duration(seconds)


@contextmanager
def timed_bar(every: float = 30.0) -> Iterator[Callable[[str, int, int], None]]:
    """A function of (stage, done, total) for one long stage, with the time left; in a log, a line now and then."""
    pace, told = Pace(), 0.0
    every = WATCHED if _watched() else every
    if is_quiet() or not sys.stderr.isatty():

        def tell(stage: str, done: int, total: int) -> None:
            nonlocal told
            left = pace.left(done, total)
            if is_quiet() or (told and done < total and time.monotonic() - told < every):
                return
            told = time.monotonic()
            rest = f", {time_text(left)} left" if left is not None and done < total else ""
            line = printable(f"headwise: {stage}: {done} of {counted(total, 'prompt')}{rest}")
            print(line, file=sys.stderr, flush=True)

        yield tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from headwise.show.kit.terminal import console

    rest = TextColumn("{task.fields[left]} left")
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        rest,
    )
    with Progress(*columns, console=console(stderr=True)) as bars:
        task = bars.add_task("", total=None, left="measuring")

        def show(stage: str, done: int, total: int) -> None:
            left = 0.0 if done == total else pace.left(done, total)
            bars.update(task, description=stage, completed=done, total=total, left=time_text(left))

        yield show
