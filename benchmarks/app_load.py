"""Eight clients at once on the app's server, with the default model.

    .venv/bin/python benchmarks/app_load.py [--reads 900] [--edits 60] [--explanations 40]

Every client is a tab of its own on the loopback address: it reads prompts, looks at heads, rows and patterns, edits and
explains. Told are errors (a request that a newer one replaced is none), how much memory the whole needed beyond one
client's, and whether every explanation is the one that Python gives for it, alone.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import headwise
from headwise import jsons

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))

CLIENTS = 8
PROMPTS = (
    "When John and Mary went to the store, John gave a drink to",
    "The capital city of Portugal is",
    "The keys that the man near the table has lost",
    "The hat is in Box A. The pen is in Box B. The hat is in Box",
)
CELLS = (("L20H0", 5, 2), ("L12H3", 4, 3), ("L25H1", 5, 1), ("L8H4", 4, 0))
REPLACED = 409


class Client:
    """One tab, and what it was told."""

    def __init__(self, app: Any, number: int) -> None:
        self.app, self.number, self.tab = app, number, f"{number:016x}"
        self.statuses: Counter[int] = Counter()
        self.told: list[tuple[str, tuple[str, int, int], dict[str, Any]]] = []
        self.after = 0

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        got = self.app.ask(method, path, body=body)
        self.statuses[got.status] += 1
        return got

    def work(self, reads: int, edits: int, explanations: int) -> None:
        for turn in range(reads):
            text = PROMPTS[(self.number + turn) % len(PROMPTS)]
            read = self.ask("POST", "/api/prompts", {"tab": self.tab, "text": text}).data
            path = ("heads", "thumbs", f"row/{turn % len(read['tokens'])}", "pattern/L20H0")[turn % 4]
            self.ask("GET", f"/api/prompts/{read['id']}/{path}")
            head, query, key = cell = CELLS[turn % len(CELLS)]
            asked = {"tab": self.tab, "prompt": read["id"], "head": head, "query": query, "key": key}
            if turn * edits // reads < (turn + 1) * edits // reads:
                plan = {**asked, "edits": [{"kind": "cut"}], "draws": 19}
                self.ask("POST", "/api/edit", plan)
            if turn * explanations // reads < (turn + 1) * explanations // reads:
                job = f"{self.number:04x}{turn:012x}"
                self.ask("POST", "/api/explain", {**asked, "job": job, "draws": 99})
                *_, (self.after, kind, data) = self.app.events(self.tab, self.after)
                assert kind == "done", (kind, data)
                self.told.append((text, cell, data["document"]))


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Put the app's server under load.")
    parser.add_argument("--reads", type=int, default=900)
    parser.add_argument("--edits", type=int, default=60)
    parser.add_argument("--explanations", type=int, default=40)
    asked = parser.parse_args()
    from serving import served

    model = headwise.load()
    share = [-(-total // CLIENTS) for total in (asked.reads, asked.edits, asked.explanations)]
    with served(model) as app:
        app.enter()
        Client(app, 99).work(8, 2, 2)  # everything is loaded and made once
        before, began = memory(), time.perf_counter()
        clients = [Client(app, number) for number in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            for one in [pool.submit(client.work, *share) for client in clients]:
                one.result()
        seconds, grown = time.perf_counter() - began, memory() - before
    statuses = sum((client.statuses for client in clients), Counter[int]())
    wrong = {status: n for status, n in statuses.items() if status not in (200, 202, REPLACED)}
    told = [one for client in clients for one in client.told]
    alone: dict[Any, Any] = {}
    for text, cell, _ in told:
        if (text, cell) not in alone:
            head, query, key = cell
            document = headwise.explain(model, text, head=head, query=query, key=key, draws=99).to_json()
            alone[text, cell] = jsons.parse(jsons.dumps({**document, "seconds": 0}))
    same = sum({**document, "seconds": 0} == alone[text, cell] for text, cell, document in told)
    print(
        f"{CLIENTS} clients, {sum(statuses.values())} requests in {seconds:.0f} s: {wrong or 'no'} errors; "
        f"{same} of {len(told)} explanations as alone; {grown} MB more than one client needs"
    )


if __name__ == "__main__":
    main()
