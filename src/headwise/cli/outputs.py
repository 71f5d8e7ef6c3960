"""Where results go: refuse a place that cannot be written before any work is done."""

from __future__ import annotations

import os
from pathlib import Path

from headwise.errors import HeadwiseError


def refuse_unwritable(path: Path) -> None:
    """One line now instead of a lost result later.

    >>> refuse_unwritable(Path("/proc/nothing/page.html"))
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: '/proc/nothing/page.html' cannot be written: ...
    """
    if path.is_dir():
        raise HeadwiseError(f"{str(path)!r} cannot be written: it is a folder; give a file name")
    parent = path.resolve().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK) or str(parent).startswith("/proc"):
        raise HeadwiseError(
            f"{str(path)!r} cannot be written: {str(parent)!r} cannot be written to; choose another place"
        )
