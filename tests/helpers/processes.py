"""Processes that tests end, and those below them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Running children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_first_child() -> None:
    """Wait for a child of this process, and end it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in multiprocessing.active_children():
            os.kill(child.pid or 0, signal.SIGKILL)
            return
        time.sleep(0.01)
