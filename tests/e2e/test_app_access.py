"""Every screen of the app for everybody: no findings of axe-core in either theme, and everything by keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from browsing import browsed
from serving import Served, served
from toy_answers import answer_lines, small_model

from headwise.scale.manifest import Manifest
from make_web import PACKAGES

AXE = PACKAGES / "axe-core" / "axe.min.js"
pytestmark = [browsed, pytest.mark.slow]
PROMPT = answer_lines(3)[0]["prompt"]
SCREENS = {
    "prompt": ("/", {}, ".answer-chip"),
    "heads": ("/heads", {}, ".pictures canvas"),
    "row": ("/heads", {"r": 4, "s": "like:L1H1"}, ".pictures canvas"),
    "column": ("/heads", {"r": 4, "to": 1}, ".pictures canvas"),
    "cell": ("/cell", {}, ".sentence:not(.soft)"),
    "bench": ("/cell", {"h": "L1H1", "q": 5, "k": 2, "e": "si:L1H1@5;cut"}, ".effect"),
    "circuit": (
        "/circuit",
        {"o": "L1H1@13<-4", "n": "L1H1@13<-4", "g": "mover=L1H1@13<-4"},
        ".node-panel .sentence",
    ),
    "compare": (
        "/compare",
        {"p2": answer_lines(3)[1]["prompt"], "h": "L1H1", "al": "4=4"},
        ".difference .sentence",
    ),
    "runs": ("/runs", {}, ".begin-study"),
    "table": ("/runs", {"run": 0, "table": "heads"}, ".run-table tbody tr"),
    "wrong": ("/cell", {"h": "L99H9", "m": "another", "wt": "0" * 12}, "[role=alert]"),
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    run = tmp_path_factory.mktemp("run")
    (run / "manifest.json").write_text(json.dumps(Manifest.of("sinks", {}, {}, {}).to_json()))
    (run / "sinks.json").write_text(json.dumps({"heads": [{"head": "L1H2", "attention": 0.5}]}))
    with served(small_model(), (run,), studies=run / "none") as opened:
        opened.enter()
        yield opened


def tab(browser: Any, app: Served, screen: str, theme: str) -> Any:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=theme)
    name, _, value = app.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": app.origin, "sameSite": "Strict"}])
    path, place, ready = SCREENS[screen]
    page = context.new_page()
    page.goto(f"{app.origin}{path}?{urlencode({'p': PROMPT, **place})}")
    page.wait_for_selector(ready)
    return page


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make web")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing(browser: Any, app: Served, screen: str, theme: str) -> None:
    page = tab(browser, app, screen, theme)
    if screen == "column":
        page.click("button.what-is")
    if screen == "cell":
        page.click("dl.facts [data-num='attention']")
        page.wait_for_selector(".pins")
        page.click(".settings summary")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    said = [
        f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:4]}"
        for one in found["violations"]
    ]
    assert said == []
    page.context.close()


def test_a_prompt_is_explained_without_a_mouse(browser: Any, app: Served) -> None:
    page = tab(browser, app, "prompt", "light")
    keys = page.keyboard
    keys.press("Escape")
    page.evaluate("() => document.activeElement.blur()")
    keys.press("g")
    page.wait_for_selector(".pictures canvas")
    page.locator(".pictures canvas").focus()
    keys.press("ArrowDown")
    keys.press("ArrowRight")
    page.wait_for_selector(".unseen-live >> text=/L0H1/", state="attached")
    keys.press("Enter")
    page.wait_for_selector(".sentence:not(.soft)")
    assert "h=L0H1" in page.url
    keys.press("]")
    page.wait_for_selector("h1:has-text('L0H2')")
    keys.press("?")
    page.wait_for_selector("dialog[open] >> text=put everything on the bench back")
    keys.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    before = page.evaluate("() => getComputedStyle(document.querySelector('.headwise')).backgroundColor")
    keys.press("t")
    after = page.evaluate("() => getComputedStyle(document.querySelector('.headwise')).backgroundColor")
    assert before != after
    keys.press("b")
    page.wait_for_selector("h1:has-text('L0H1')")
    keys.press("/")
    page.wait_for_selector("#prompt-text:focus")
    page.context.close()
