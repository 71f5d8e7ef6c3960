"""Many clients at once: no error, memory that stays as it is, and every explanation the one that Python gives."""

from __future__ import annotations

import json
import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from serving import Served, served
from toy_answers import answer_lines, small_model

from headwise.why.explain import explain

CLIENTS, READS, EDITS, EXPLANATIONS = 8, 900, 60, 40
PROMPTS = [line["prompt"] for line in answer_lines(8)]
CELLS = [("L1H1", 5, 2), ("L2H0", 6, 4), ("L1H0", 4, 3), ("L2H3", 7, 1), ("L0H2", 5, 0)]


@pytest.fixture
def app() -> Iterator[Served]:
    with served(small_model()) as opened:
        opened.enter()
        yield opened


class Client:
    """One tab that reads, edits and explains, and remembers what it was told."""

    def __init__(self, app: Served, number: int) -> None:
        self.app, self.number, self.tab = app, number, f"{number:016x}"
        self.statuses: list[int] = []
        self.explained: list[tuple[str, tuple[str, int, int], dict[str, Any]]] = []

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        got = self.app.ask(method, path, body=body)
        self.statuses.append(got.status)
        return got

    def work(self) -> None:
        after = 0
        for turn in range(READS // CLIENTS + 1):
            text = PROMPTS[(self.number + turn) % len(PROMPTS)]
            read = self.ask("POST", "/api/prompts", {"tab": self.tab, "text": text}).data
            name, kind = read["id"], turn % 4
            path = ("heads", "thumbs", f"row/{turn % len(read['tokens'])}", "pattern/L1H1")[kind]
            self.ask("GET", f"/api/prompts/{name}/{path}")
            head, query, key = CELLS[turn % len(CELLS)]
            cell = {"head": head, "query": query, "key": key, "prompt": name, "tab": self.tab}
            if turn % 14 == 0:
                edits = [{"kind": "silence", "head": "L1H2"}]
                self.ask("POST", "/api/edit", {**cell, "edits": edits, "draws": 19})
            if turn % 22 == 0:
                job = f"{self.number:04x}{turn:012x}"
                self.ask("POST", "/api/explain", {**cell, "job": job, "draws": 99})
                *_, (after, told, data) = self.app.events(self.tab, after)
                assert told == "done" and data["job"] == job, (told, data)
                self.explained.append((text, (head, query, key), data["document"]))


def serial(text: str, cell: tuple[str, int, int]) -> dict[str, Any]:
    head, query, key = cell
    document = explain(small_model(), text, head=head, query=query, key=key, draws=99).to_json()
    return json.loads(json.dumps({**document, "seconds": 0}))


@pytest.mark.slow
def test_eight_clients_at_once(app: Served) -> None:
    began = time.perf_counter()
    clients = [Client(app, number) for number in range(CLIENTS)]
    clients[0].work()  # everything is loaded and made once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clients = [Client(app, number) for number in range(1, CLIENTS + 1)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        for one in [pool.submit(client.work) for client in clients]:
            one.result()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    statuses = [status for client in clients for status in client.statuses]
    assert set(statuses) <= {200, 202}, {status: statuses.count(status) for status in set(statuses)}
    told = [one for client in clients for one in client.explained]
    assert len(statuses) >= READS + EDITS + EXPLANATIONS and len(told) >= EXPLANATIONS
    wanted = {(text, cell): serial(text, cell) for text, cell, _ in told}
    for text, cell, document in told:
        assert {**document, "seconds": 0} == wanted[text, cell]
    assert grown < 150_000, f"{grown} kB more than one client needs"
    assert threading.active_count() < 60
    print(
        f"{len(statuses)} requests, {len(told)} explanations in {time.perf_counter() - began:.0f} s, {grown} kB more"
    )
