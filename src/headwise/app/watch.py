"""Run folders change while the app runs: studies end, and so do commands in a terminal. Every page hears of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

PAUSE = 1.0
"""Seconds from one look to the next."""


class FolderWatch:
    """A thread that looks again and again, and tells when it sees something else than before."""

    def __init__(self, look: Callable[[], object], tell: Callable[[], None], pause: float = PAUSE) -> None:
        self._look, self._tell, self._pause = look, tell, pause
        self._seen = look()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headwise-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._tell()

    def close(self) -> None:
        self._over.set()
        self._thread.join(timeout=10)
