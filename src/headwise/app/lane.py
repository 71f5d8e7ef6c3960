"""One lane for the model: a single thread runs whatever needs a forward pass, what a person waits for first.

A newer request of the same kind from the same tab replaces the older one, whether that still waits or is under way: a
pass that is under way ends at its next layer.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwise.model.forward import Stopped, stoppable

INTERACTIVE, PREFETCH = 0, 1


@dataclass(eq=False)
class Turn:
    """One piece of work that waits for the lane, has it, or is over."""

    work: Callable[[Turn], Any]
    tab: str
    kind: str
    priority: int
    over: Callable[[Any, BaseException | None], None]
    """Told the result or what went wrong; from the lane's thread."""
    tokens: int = 0
    """Of the prompt that it works on, once that is known: what an error may have to say."""
    unwanted: threading.Event = field(default_factory=threading.Event)

    def go_on(self) -> None:
        """Between two steps of the work: end it here if it is no longer wanted."""
        if self.unwanted.is_set():
            raise Stopped


class Lane:
    """The queue and its thread."""

    def __init__(
        self, said: Callable[[BaseException, Turn], BaseException] = lambda error, turn: error
    ) -> None:
        """``said`` puts what went wrong in a turn into words."""
        self._said = said
        self._waiting: list[tuple[int, int, Turn]] = []
        self._number = itertools.count()
        self._now: Turn | None = None
        self._open = True
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="headwise-lane", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[Turn], Any],
        over: Callable[[Any, BaseException | None], None],
        *,
        tab: str = "",
        kind: str = "",
        priority: int = INTERACTIVE,
    ) -> Turn:
        """Queue work; with a ``kind``, in the place of what the tab asked for before."""
        turn = Turn(work, tab, kind, priority, over)
        with self._changed:
            if kind:
                for older in [self._now, *(one for _, _, one in self._waiting)]:
                    if older is not None and (older.tab, older.kind) == (tab, kind):
                        older.unwanted.set()
            heapq.heappush(self._waiting, (priority, next(self._number), turn))
            self._changed.notify()
        return turn

    def cancel(self, turn: Turn) -> None:
        """Let a turn end as soon as it can."""
        with self._changed:
            turn.unwanted.set()
            self._changed.notify()

    def ahead_of(self, turn: Turn) -> int:
        """How many turns come before this one."""
        with self._changed:
            if turn is self._now:
                return 0
            before = sorted(one for one in self._waiting if not one[2].unwanted.is_set())
            place = next((i for i, one in enumerate(before) if one[2] is turn), 0)
            return place + (self._now is not None)

    def close(self) -> None:
        """Nothing more is begun, and what is under way ends."""
        with self._changed:
            self._open = False
            for turn in [self._now, *(one for _, _, one in self._waiting)]:
                if turn is not None:
                    turn.unwanted.set()
            self._changed.notify()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._now = None
                while self._open and not self._waiting:
                    self._changed.wait()
                if not self._waiting:
                    return
                *_, turn = heapq.heappop(self._waiting)
                self._now = turn
            result, trouble = None, None
            try:
                turn.go_on()
                with stoppable(turn.unwanted.is_set):
                    result = turn.work(turn)
            except BaseException as error:  # whatever it is, the one who waits has to hear of it
                trouble = self._said(error, turn)
            turn.over(result, trouble)
