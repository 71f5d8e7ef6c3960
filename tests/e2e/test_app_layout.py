"""Where things stand: a cell's pattern at the left of its account, and nothing that has to be scrolled sideways."""

from __future__ import annotations

from typing import Any

import pytest
from browsing import browsed, fits
from browsing_app import tabs
from serving import Served
from toy_answers import answer_lines

pytestmark = [browsed, pytest.mark.slow]
PROMPT = answer_lines(3)[0]["prompt"]
PARTS = {"header": "h1", "pattern": ".map canvas", "prompt": "section.prompt", "proof": "section.proof"}


def boxes(page: Any) -> dict[str, dict[str, float]]:
    page.wait_for_selector(".howto", timeout=30_000)
    page.wait_for_selector(".map canvas")
    page.evaluate("() => scrollTo(0, 0)")
    return {name: page.locator(f".cell-screen {part}").first.bounding_box() for name, part in PARTS.items()}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("wide", [1280, 1600])
def test_the_pattern_is_at_the_left_of_what_who_and_proof(
    browser: Any, app: Served, wide: int, theme: str
) -> None:
    window = {"width": wide, "height": 900}
    with tabs(browser, app, viewport=window, color_scheme=theme) as tab:
        page = tab("/cell", p=PROMPT, h="L1H1", q=9, k=4)
        at = boxes(page)
        end = at["pattern"]["x"] + at["pattern"]["width"]
        assert all(at[name]["x"] >= end for name in ("header", "prompt", "proof"))
        assert at["pattern"]["y"] < 500  # to be seen without scrolling
        assert fits(page)
        # It stays beside what is read.
        page.locator("section.proof").scroll_into_view_if_needed()
        assert page.locator(".map canvas").bounding_box()["y"] > 0
        page.locator("dl.facts [data-num='attention']").click()  # a panel of numbers takes its room
        page.wait_for_selector(".pins")
        assert fits(page)


@pytest.mark.parametrize("wide", [390, 1000])
def test_in_a_narrow_window_one_stands_under_the_other(browser: Any, app: Served, wide: int) -> None:
    with tabs(browser, app, viewport={"width": wide, "height": 900}) as tab:
        page = tab("/cell", p=PROMPT, h="L1H1", q=9, k=4)
        at = boxes(page)
        order = [at[name]["y"] for name in ("header", "pattern", "prompt", "proof")]
        assert order == sorted(order)
        assert at["header"]["x"] == at["prompt"]["x"] == at["proof"]["x"]
        assert fits(page)
