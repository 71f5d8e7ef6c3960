"""A report in a real browser: every kind of trace is drawn, offline, in light and dark; a folded one when unfolded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from browsing import Opener, browsed, fits

from headwise.show.kit.report import TRACES, Figure, Markdown, Report, Section, Table
from headwise.show.kit.theme import DARK, INK, PALETTE, styled

pytestmark = [browsed, pytest.mark.slow]
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


def drawn(show: Opener, file: Path, scheme: str = "light") -> Any:
    page = show(file, viewport={"width": 1100, "height": 800}, color_scheme=scheme)
    page.wait_for_selector("#f3 .main-svg")
    return page


def test_every_kind_of_trace_is_drawn_and_nothing_is_asked_for(show: Opener, page_file: Path) -> None:
    page = drawn(show, page_file)
    assert tuple(MARKS) == TRACES
    for number, name in enumerate(TRACES):
        assert page.locator(f"#f{number} {MARKS[name]}").count() > 0, name


def test_colours_follow_the_page(show: Opener, page_file: Path) -> None:
    colours = "[...document.querySelectorAll('#f1 .barlayer path')].map((bar) => getComputedStyle(bar).fill)"
    light = drawn(show, page_file)
    dark = drawn(show, page_file, "dark")
    before, after = light.evaluate(colours), dark.evaluate(colours)
    assert before[0] == _rgb(PALETTE[0]) and after[0] == _rgb(DARK[PALETTE[0]])
    assert before[1] == after[1] == _rgb("#123456")  # a colour that is no part of the theme stays
    point = "getComputedStyle(document.querySelector('#f0 path.point')).fill"
    assert (light.evaluate(point), dark.evaluate(point)) == (_rgb(INK), _rgb(DARK[INK]))
    light.click("#theme")
    light.wait_for_timeout(200)
    assert light.evaluate(colours) == after


def test_a_folded_section_is_one_line_until_it_is_opened(show: Opener, page_file: Path) -> None:
    page = drawn(show, page_file)
    assert page.locator("#f4 .main-svg").count() == 0
    assert page.locator("details.fold").bounding_box()["height"] < 70
    page.click("nav a[href='#s1']")
    page.wait_for_selector("#f4 .main-svg")
    # Drawn at the width that it has now, not at the width of a closed fold.
    assert page.locator("#f4 .main-svg").first.bounding_box()["width"] > 700


def test_a_wide_table_scrolls_inside_the_page(show: Opener, page_file: Path) -> None:
    page = drawn(show, page_file)
    assert fits(page)
    assert page.evaluate(
        "(() => { const box = document.querySelector('.scroll'); return box.scrollWidth > box.clientWidth; })()"
    )


def _rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))
