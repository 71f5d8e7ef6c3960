"""Progress bars on stderr for commands with several stages: live on a terminal, one line a stage in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stage_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A function of (stage, done, total) that draws one bar a stage."""
    if not sys.stderr.isatty():
        told: set[str] = set()

        def tell(stage: str, done: int, total: int) -> None:
            if stage not in told:
                told.add(stage)
                print(f"headwise: {stage}: {total} prompts", file=sys.stderr, flush=True)

        yield tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from headwise.show.terminal import console

    columns = (TextColumn("{task.description:<20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True)) as bars:
        tasks: dict[str, object] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield show
