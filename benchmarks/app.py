"""How quickly the app's server answers, as ratios to one bare forward pass of the same prompt.

    .venv/bin/python benchmarks/app.py [--rounds 5]

On the default model at 14, 128 and 512 tokens, everything through the session that the routes use. Every number is the
median of ratios to a bare pass that was made just before, so that a busy machine slows both alike.

* heads: reading the prompt, the pictures and statistics of all heads (bound: 2 × a bare pass);
* table: from a prompt that was read to the table of what and who (bound: 1.5 ×);
* whole: an explanation of a prompt that was read, beside the command's, which reads it first;
* row: one row of all heads, and column: one column (bound of either: 50 ms).

With --browser, Chromium opens the app and its own performance entries say when something was painted first, and how
long it was busy with the longest of some pointer moves over tokens (the event's duration, in steps of 8 ms).
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import headwise
from headwise.app import patterns, wire
from headwise.app.session import Session
from headwise.corpus import read_corpus
from headwise.show.kit.page import APP, BUNDLE, SCREENS, STYLE, part
from headwise.why.explain import explain, explain_steps

PROMPT = "When John and Mary went to the store, John gave a drink to"
LENGTHS = (14, 128, 512)
TAB = "0" * 16


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    made = work()
    return time.perf_counter() - start, made


def prompts(model: headwise.Model) -> list[list[int]]:
    """Ordinary text of each length; the short one is the usual prompt."""
    ids = [token for text in read_corpus().texts for token in model.prompt_ids(text)]
    return [model.prompt_ids(PROMPT), *(ids[:length] for length in LENGTHS[1:])]


def measure(session: Session, ids: list[int], rounds: int) -> dict[str, float]:
    model, batch = session.model, torch.tensor([ids])

    def bare() -> None:
        with torch.no_grad():
            model.hf(batch, use_cache=False)

    async def heads() -> wire.PromptRead:
        session.memory.clear()
        read = await session.read(wire.PromptRequest(tab=TAB, token_ids=tuple(ids)))
        await session.heads(read.id)
        return read

    def table(read: Any) -> None:
        for step in explain_steps(model, read):
            if step.name == "table":
                return

    def whole(read: Any) -> None:
        for _ in explain_steps(model, read):
            pass

    bare()
    asyncio.run(heads())
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        once, _made = timed(bare)
        seconds, told = timed(lambda: asyncio.run(heads()))
        read = session.kept(told.id).read
        parts = {
            "heads": seconds / once,
            "table": timed(partial(table, read))[0] / once,
            "whole": timed(partial(whole, read))[0] / once,
            "command": timed(lambda: explain(model, ids))[0] / once,
            "row ms": 1000 * timed(partial(patterns.rows_of, read, len(ids) - 1))[0],
            "column ms": 1000 * timed(partial(patterns.columns_of, read, len(ids) // 2))[0],
            "bare ms": 1000 * once,
        }
        for name, value in parts.items():
            found.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in found.items()}


WATCH = """() => { window.slow = []; new PerformanceObserver((list) => window.slow.push(...list.getEntries().map(
    (one) => one.duration))).observe({type: 'event', durationThreshold: 16, buffered: true}) }"""


def browse(session: Session) -> str:
    """First paint and the slowest pointer move over a token, by the browser's own entries."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))
    from browsing import running
    from serving import served

    with served(session.model) as app, running() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(app.link)
        page.wait_for_selector("textarea")
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        page.fill("textarea", PROMPT)
        page.press("textarea", "Enter")
        page.click("text=See every head")
        page.wait_for_selector(".pictures canvas")
        tokens = page.locator(".heads-tokens button")
        for i in range(tokens.count()):  # every row is asked for once
            tokens.nth(i).hover()
            page.wait_for_timeout(150)
        page.evaluate(WATCH)
        for i in range(tokens.count()):
            tokens.nth(i).hover()
            page.wait_for_timeout(60)
        slow = page.evaluate("window.slow")
        return f"first paint {painted:.0f} ms   slowest hover {max(slow, default=16):.0f} ms or less"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the app's server.")
    parser.add_argument(
        "--browser", action="store_true", help="measure first paint and hover in Chromium, too"
    )
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of which the median is taken")
    given = parser.parse_args()
    rounds = given.rounds
    session = Session(headwise.load())
    sizes = {name: len(gzip.compress(part(name).encode())) for name in (BUNDLE, STYLE, APP, SCREENS)}
    later = sizes.pop(SCREENS)
    print(f"bundle {sum(sizes.values()) / 1000:.1f} kB gzipped   (bound: 60)")
    print(f"bench, circuit, compare and runs, loaded when the first is wanted: {later / 1000:.1f} kB more")
    print("tokens   bare ms   heads ×   table ×   whole ×   command ×   row ms   column ms")
    for ids in prompts(session.model):
        got = measure(session, ids, rounds)
        print(
            f"{len(ids):6}{got['bare ms']:10.0f}{got['heads']:10.2f}{got['table']:10.2f}{got['whole']:10.2f}"
            f"{got['command']:12.2f}{got['row ms']:9.1f}{got['column ms']:12.1f}",
            flush=True,
        )
    print("bounds: heads 2, table 1.5, row and column 50 ms; whole at most the command's")
    if given.browser:
        print(browse(session))
    session.close()


if __name__ == "__main__":
    main()
