"""What this machine has, and whether so many workers fit into it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headwise.errors import HeadwiseError
from headwise.scale.disk import size_text

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how much of the memory a container may take."""


def memory_here() -> int:
    """Bytes of main memory that this process may take."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in LIMITS:
        with suppress(OSError, ValueError):  # not Linux, or "max"
            found.append(int(limit.read_text()))
    return min(found)


def memory_left() -> int:
    """Bytes of it that are free, or held only to save reading files again."""
    with suppress(OSError):
        if found := re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text()):
            return min(int(found[1]) * 1024, memory_here())
    return memory_here()


def room_for(model_bytes: int, left: Sequence[int]) -> int:
    """Workers that fit into the memory left on each of some machines; every one holds a model of its own.

    >>> room_for(4, [10, 3, 4])
    3
    """
    return sum(one // model_bytes for one in left)


def refuse_too_many(workers: int, model_bytes: int, left: Sequence[int], where: str = "this machine") -> None:
    """One line now instead of processes that are killed later."""
    if model_bytes and workers > (most := room_for(model_bytes, left)):
        raise HeadwiseError(
            f"workers={workers} would hold {size_text(workers * model_bytes)} of weights ({size_text(model_bytes)} "
            f"each), and {where} has {size_text(sum(left))} of memory left: "
            + (
                f"give workers={most} or fewer"
                if most
                else "load the model in a smaller precision, or spread it"
            )
        )
