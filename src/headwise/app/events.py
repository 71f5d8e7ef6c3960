"""What becomes of jobs, told to each tab in one stream of server-sent events that can be taken up where it broke."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from headwise import jsons

TABS = 64
KEPT = 512
"""Events of a tab that a broken stream can be taken up from."""
SILENCE = 15.0
"""Seconds after which an empty line says that the stream is alive."""


class Tab:
    """One tab's events, numbered."""

    def __init__(self) -> None:
        self.told: deque[tuple[int, str]] = deque(maxlen=KEPT)
        self.last = 0
        self.more = asyncio.Event()

    def tell(self, kind: str, data: dict[str, Any]) -> None:
        self.last += 1
        self.told.append(
            (self.last, f"id: {self.last}\nevent: {kind}\ndata: {jsons.dumps(data, indent=None)}\n\n")
        )
        self.more.set()


class Events:
    """All tabs. Everything here runs in the server's loop; the lane speaks through :meth:`tell`."""

    def __init__(self) -> None:
        self._tabs: OrderedDict[str, Tab] = OrderedDict()
        self._open: Counter[str] = Counter()
        self._watching: list[tuple[Callable[[str], None], Callable[[str], None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        self._loop = asyncio.get_running_loop()

    def watch(self, opened: Callable[[str], None], closed: Callable[[str], None]) -> None:
        """Say from now on which tab begins to listen, and which no longer does."""
        self._watching.append((opened, closed))

    def listening(self, tab: str) -> bool:
        return self._open[tab] > 0

    def tell(self, tab: str, kind: str, data: dict[str, Any]) -> None:
        """From any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, tab, kind, data)

    def tell_all(self, kind: str, data: dict[str, Any]) -> None:
        """To every tab, from any thread."""
        for tab in list(self._tabs):
            self.tell(tab, kind, data)

    def _tell(self, tab: str, kind: str, data: dict[str, Any]) -> None:
        self.tab(tab).tell(kind, data)

    def tab(self, name: str) -> Tab:
        tab = self._tabs.setdefault(name, Tab())
        self._tabs.move_to_end(name)
        while len(self._tabs) > TABS:
            self._tabs.popitem(last=False)
        return tab

    async def stream(self, name: str, after: int) -> AsyncIterator[str]:
        """The events of a tab after number ``after``, and those to come."""
        yield "retry: 1000\n\n"
        tab = self.tab(name)
        if after > tab.last:
            after = 0  # of a server that is no more
        self._open[name] += 1
        try:
            for opened, _ in self._watching:
                opened(name)
            while True:
                tab.more.clear()
                for number, text in [one for one in tab.told if one[0] > after]:
                    after = number
                    yield text
                try:
                    await asyncio.wait_for(tab.more.wait(), SILENCE)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]
                for _, closed in self._watching:
                    closed(name)
