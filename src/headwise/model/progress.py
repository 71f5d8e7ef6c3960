"""A progress bar on stderr for work that takes a while: live on a terminal, two plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from headwise.strings import printable

_quiet = False


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


class Progress:
    """Shows a title, the stage that is under way and the time taken; silent about work that is over at once.

    >>> with Progress("counting") as progress:
    ...     progress.stage("by twos", 0.5)
    """

    # A stage without a fraction of its own moves the bar by a part of what is left, so it is never full too
    # soon.
    _STEP = 0.2
    _PATIENCE = 0.5

    def __init__(self, title: str) -> None:
        self.title = printable(title)
        self._bar: Any = None
        self._task: Any = None
        self._announced = False
        self._done = 0.0

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if sys.stderr.isatty() and not _quiet:
            from rich.console import Console
            from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[stage]}", markup=False),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=1.0, stage="")
        return self

    def stage(self, name: str, fraction: float | None = None) -> None:
        """Say what is being done now, and how much of that stage is done if that is known."""
        if fraction is None:
            self._done += self._STEP * (1.0 - self._done)
            shown = self._done
        else:
            shown = self._done + self._STEP * (1.0 - self._done) * fraction
        if self._bar:
            self._bar.update(self._task, completed=shown, stage=printable(name))
        elif not _quiet and not self._announced and time.monotonic() - self._began > self._PATIENCE:
            self._announced = True
            print(f"headwise: {self.title} ...", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        seconds = time.monotonic() - self._began
        if kind is None and (self._announced or (self._bar and seconds > 2)):
            print(f"headwise: {self.title}: done in {seconds:.0f} s", file=sys.stderr, flush=True)
