"""Where things stand: a cell's pattern at the left of its account, lists that are seen whole, a saved screen as it was;
and nothing that has to be scrolled sideways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import browsed, fits
from browsing_app import tabs
from known import names_folder
from serving import Served, served
from toy_answers import answer_lines, small_model

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


def test_a_screen_that_is_saved_shows_what_was_chosen_in_the_colours_it_had(
    browser: Any, app: Served, tmp_path: Path
) -> None:
    with tabs(browser, app, color_scheme="dark") as tab:
        page = tab("/heads", p=PROMPT, s="brings", r=4, to=1)
        page.wait_for_selector(".shown-now >> text=the column of position 4")
        page.locator(".heads-screen input[type=checkbox]").check()
        with page.expect_download() as got:
            page.click(".takeaway >> text=save page")
        got.value.save_as(tmp_path / "saved.html")
        wanted = page.evaluate("() => getComputedStyle(document.querySelector('.headwise')).backgroundColor")
    saved = browser.new_page(color_scheme="light")
    saved.goto((tmp_path / "saved.html").as_uri())
    assert (
        saved.evaluate("() => getComputedStyle(document.querySelector('.headwise')).backgroundColor")
        == wanted
    )
    chosen = saved.locator("select").evaluate_all("all => all.map((one) => one.value)")
    assert chosen[0] == "brings" and "to" in chosen
    assert saved.locator(".heads-screen input[type=checkbox]").is_checked()
    assert saved.locator("button:not(:disabled), .fills").count() == 0
    saved.close()


def test_a_long_list_of_runs_is_seen_whole_and_what_is_chosen_comes_into_sight(
    browser: Any, tmp_path: Path
) -> None:
    runs = [names_folder(tmp_path / f"names-{i}", small_model(), {"L1H1": "named"}) for i in range(24)]
    with served(small_model(), tuple(runs), studies=tmp_path / "studies") as many:
        many.enter()
        with tabs(browser, many) as tab:
            page = tab("/runs")
            page.wait_for_selector(".run-list")
            box = page.locator(".runs-screen > .scroll")
            assert box.evaluate(
                "one => one.scrollHeight <= one.clientHeight && one.scrollWidth <= one.clientWidth"
            )
            page.locator(".run-list button:has-text('signals')").last.click()
            page.wait_for_selector(".run-table tbody tr")
            seen = "() => document.querySelector('.run-table tbody').getBoundingClientRect().bottom < innerHeight"
            page.wait_for_function(seen)
            assert fits(page)
