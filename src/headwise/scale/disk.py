"""Disks that are too small: refused before the work, and told in one line in the middle of it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headwise.errors import HeadwiseError


class Interrupted(HeadwiseError):
    """The work stopped for a reason outside it. What is done is kept; the same command continues."""


def refuse_small_disk(path: Path, needed: int) -> None:
    """One line now instead of a full disk later. What an earlier part of the same run left is not needed again."""
    needed -= _used(path)
    parent = path.absolute()
    while not parent.exists():
        parent = parent.parent
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise HeadwiseError(
            f"the disk of {str(path)!r} has {size_text(free)} free and the run needs about {size_text(needed)} "
            "while it is made: free some space, or ask for fewer prompts"
        )


def _used(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0


@contextmanager
def disk_trouble_told(path: Path, kept: Callable[[], str]) -> Iterator[None]:
    """Errors of the disk as one line that says what is kept, such as ``"32 of 50 prompts are kept"``."""
    try:
        yield
    except OSError as error:
        again = "run the same command again to continue"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Interrupted(
                f"the disk of {str(path)!r} is full: {kept()}; free some space and {again}"
            ) from None
        raise Interrupted(
            f"{str(path)!r} cannot be written ({error.strerror or error}): {kept()}; {again}"
        ) from None


def size_text(count: int) -> str:
    """Bytes for people.

    >>> size_text(1234), size_text(45_600_000)
    ('1.2 kB', '45.6 MB')
    """
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
