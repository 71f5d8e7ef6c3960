"""A report in a real browser: every kind of trace is drawn, offline, in light and dark; a folded one when unfolded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from headwise.show.kit.report import TRACES, Figure, Markdown, Report, Section, Table
from headwise.show.kit.theme import DARK, INK, PALETTE, styled

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
CHROMIUM = os.environ.get("HEADWISE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium found: install it, or set HEADWISE_CHROMIUM"),
    pytest.mark.slow,
]
MARKS = {
    "scatter": ".scatterlayer path.point",
    "bar": ".barlayer path",
    "box": "path.box",
    "heatmap": ".hm image",
}
WIDE = Table([f"a long column {i}" for i in range(30)], [[0.123456789] * 30])


def figures() -> dict[str, go.Figure]:
    ink = {"color": INK, "size": 9}
    return {
        "scatter": go.Figure(go.Scatter(x=[1, 2], y=[1, 3], mode="markers", marker=ink)),
        "bar": go.Figure(go.Bar(x=["a", "b"], y=[1, 2], marker={"color": [PALETTE[0], "#123456"]})),
        "box": go.Figure(go.Box(x=[1, 2, 5], boxpoints=False)),
        "heatmap": go.Figure(go.Heatmap(z=[[0, 1], [2, 3]])),
    }


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    open_ones = [Figure(styled(figure), name) for name, figure in figures().items()]
    sections = [
        Section("Open", [Markdown("Some **text**."), WIDE, *open_ones]),
        Section("Head L1H2", [Figure(styled(figures()["bar"]), "folded")], fold=True, note="best"),
    ]
    return Report("t", sections).write(tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as made:
        opened = made.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


def opened(browser: Any, file: Path, scheme: str) -> tuple[Any, list[str]]:
    page = browser.new_page(viewport={"width": 1100, "height": 800}, color_scheme=scheme)
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else wrong.append(asked.url),
    )
    page.goto(file.as_uri())
    page.wait_for_selector("#f3 .main-svg")
    return page, wrong


def test_every_kind_of_trace_is_drawn_and_nothing_is_asked_for(browser: Any, page_file: Path) -> None:
    page, wrong = opened(browser, page_file, "light")
    assert tuple(MARKS) == TRACES
    for number, name in enumerate(TRACES):
        assert page.locator(f"#f{number} {MARKS[name]}").count() > 0, name
    assert wrong == []


def test_colours_follow_the_page(browser: Any, page_file: Path) -> None:
    colours = "[...document.querySelectorAll('#f1 .barlayer path')].map((bar) => getComputedStyle(bar).fill)"
    light, _ = opened(browser, page_file, "light")
    dark, _ = opened(browser, page_file, "dark")
    before, after = light.evaluate(colours), dark.evaluate(colours)
    assert before[0] == _rgb(PALETTE[0]) and after[0] == _rgb(DARK[PALETTE[0]])
    assert before[1] == after[1] == _rgb("#123456")  # a colour that is no part of the theme stays
    point = "getComputedStyle(document.querySelector('#f0 path.point')).fill"
    assert (light.evaluate(point), dark.evaluate(point)) == (_rgb(INK), _rgb(DARK[INK]))
    light.click("#theme")
    light.wait_for_timeout(200)
    assert light.evaluate(colours) == after


def test_a_folded_section_is_one_line_until_it_is_opened(browser: Any, page_file: Path) -> None:
    page, wrong = opened(browser, page_file, "light")
    assert page.locator("#f4 .main-svg").count() == 0
    assert page.locator("details.fold").bounding_box()["height"] < 70
    page.click("nav a[href='#s1']")
    page.wait_for_selector("#f4 .main-svg")
    # Drawn at the width that it has now, not at the width of a closed fold.
    assert page.locator("#f4 .main-svg").first.bounding_box()["width"] > 700
    assert wrong == []


def test_a_wide_table_scrolls_inside_the_page(browser: Any, page_file: Path) -> None:
    page, _ = opened(browser, page_file, "light")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(
        "(() => { const box = document.querySelector('.scroll'); return box.scrollWidth > box.clientWidth; })()"
    )


def _rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))
