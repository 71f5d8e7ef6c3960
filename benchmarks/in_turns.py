"""Two things done in turns, and how much longer one takes than the other: for a machine that others use, too. And what
memory something takes."""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

PROMPT = "When John and Mary went to the store, John gave a drink to"
STORY = (
    "The old harbour town had two schools, a library and a market that opened before sunrise. Fishermen mended their "
    "nets along the quay while children ran between the boats, and in the evening the lamps were lit one by one. "
    "Nobody remembered who had built the tower on the hill, but everybody agreed that it leaned a little more each "
    "winter. In spring the teachers took their classes up the path to draw the islands, and the baker sent a basket "
    "of rolls along. When the weather turned, the ferry stayed at its pier and the mail came a day late. "
)
LENGTHS = {14: 9, 100: 5, 300: 3, 600: 3}
"""Tokens of a prompt, and rounds."""


def prompt_of(tokenizer: Callable[..., object], tokens: int) -> list[int]:
    """The last tokens of a story that ends in the prompt; the prompt alone where it is as long."""
    ids = list(tokenizer(PROMPT).input_ids)  # pyright: ignore[reportAttributeAccessIssue]
    story = STORY * (12 + tokens // 64)  # more than enough: the last tokens are taken
    return ids if len(ids) >= tokens else list(tokenizer(story + PROMPT).input_ids)[-tokens:]  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True)
class Pace:
    """Seconds of the bare passes and of what is measured, round by round: of the processor, and on the wall."""

    bare: list[tuple[float, float]]
    ours: list[tuple[float, float]]

    def _median(self, which: int) -> tuple[float, float, float]:
        bare, ours = ([one[which] for one in some] for some in (self.bare, self.ours))
        ratio = statistics.median(b / a for a, b in zip(bare, ours, strict=True))
        return statistics.median(bare), statistics.median(ours), ratio

    @property
    def ratio(self) -> float:
        """Of processor time, median over rounds."""
        return self._median(0)[2]

    def __str__(self) -> str:
        bare, ours, ratio = self._median(0)
        return (
            f"bare {bare:6.3f} s   ours {ours:7.3f} s   {ratio:5.2f} × bare (processor), "
            f"{self._median(1)[2]:5.2f} × on the wall"
        )


def in_turns(bare: Callable[[], object], ours: Callable[[], object], rounds: int) -> Pace:
    """Run both, one after the other, ``rounds`` times; once before that is not counted."""
    taken: tuple[list[tuple[float, float]], ...] = ([], [])
    with torch.no_grad():
        for number in range(rounds + 1):
            for one, seconds in zip((bare, ours), taken, strict=True):
                began = time.process_time(), time.perf_counter()
                one()
                if number:
                    seconds.append((time.process_time() - began[0], time.perf_counter() - began[1]))
    return Pace(*taken)


# --- memory ----------------------------------------------------------------------------------------------------------


def resident() -> int:
    """Bytes of this process in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise SystemExit("memory is measured on Linux only")


def peak_of(function: Callable[[], object]) -> tuple[int, float]:
    """Peak resident memory during a call above that before it, and its seconds (in a process of its own)."""
    # Memory that is free but not given back would be used again, and hide as much of what the call takes.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before, peak, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    function()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    return max(peak[0] - before, 1), seconds


def exponent(rows: Sequence[tuple[int, float]]) -> float:
    """The slope of a straight line through the logarithms of some (length, size)."""
    xs, ys = [math.log(x) for x, _ in rows], [math.log(y) for _, y in rows]
    mx, my = statistics.mean(xs), statistics.mean(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)
