"""The circuit's page in a real browser: hover, pin, search, slider and sorting do what they say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny import prompts_of, tiny

import headwise
from headwise.circuits.circuit import Circuit
from headwise.show.circuits.page import circuit_page

BROWSER = os.environ.get("HEADWISE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no chromium: install it or name it in HEADWISE_CHROMIUM"
)


@pytest.fixture(scope="module")
def circuit() -> Circuit:
    made = headwise.trace(tiny("llama"), [prompts_of(9)[0]])[0]
    assert len(made.edges) > 10
    return made


@pytest.fixture
def page(circuit: Circuit, tmp_path: Path) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    file = tmp_path / "circuit.html"
    file.write_text(circuit_page(circuit), encoding="utf-8")
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        opened = browser.new_page(viewport={"width": 1400, "height": 1100})
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        opened.on(
            "request", lambda request: wrong.append(request.url) if "file:" not in request.url else None
        )
        opened.goto(file.as_uri())
        yield opened
        browser.close()
    assert wrong == []


def _visible_edges(page: Any) -> int:
    return page.evaluate(
        "[...document.querySelectorAll('path.edge')].filter((e) => getComputedStyle(e).display !== 'none').length"
    )


def test_hover_shows_a_nodes_numbers_and_lights_its_edges(page: Any) -> None:
    page.locator("g.node.head").last.hover(force=True)
    assert "attention" in page.locator("#tip").inner_text()
    assert page.locator("path.edge.hot").count() > 0
    assert page.locator("path.edge.dim").count() > 0


def test_a_click_pins_a_node_and_its_edges_stay_until_it_is_unpinned(page: Any, circuit: Circuit) -> None:
    before = page.locator("tr.pick").count()
    page.locator("g.node.head").last.dispatch_event("click")
    assert page.locator("g.node.pinned").count() == 1
    page.mouse.move(2, 2)
    assert page.locator("path.edge.hot").count() > 0
    assert page.locator("tr.pick").count() < before == len(circuit.edges)
    page.keyboard.press("Escape")
    assert page.locator("g.node.pinned").count() == 0
    assert page.locator("path.edge.hot").count() == 0


def test_search_and_slider_narrow_the_picture(page: Any, circuit: Circuit) -> None:
    assert _visible_edges(page) == len(circuit.edges)
    page.locator("#search").fill("MLP")
    assert page.locator("g.node.found").count() == page.locator("g.node.mlp").count() > 0
    page.locator("#search").fill("")
    page.locator("#weight").evaluate("(e) => { e.value = 900; e.dispatchEvent(new Event('input')); }")
    assert 0 < _visible_edges(page) < len(circuit.edges)


def test_the_edge_table_sorts(page: Any) -> None:
    def weights() -> list[float]:
        headings = page.locator("#heads th").all_inner_texts()
        column = next(i for i, text in enumerate(headings) if "weight" in text.lower())
        rows = page.locator("tr.pick").all()
        return [float(row.locator("td").nth(column).inner_text()) for row in rows]

    first = weights()
    assert first == sorted(first, reverse=True)
    page.locator("#heads button", has_text="weight").click()
    again = weights()
    assert again == sorted(first)
