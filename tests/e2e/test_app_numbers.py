"""Numbers explain themselves, the bench ticks more than writers, and every screen is saved as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import browsed
from browsing_app import Tab, place_of, tabs
from serving import Served
from toy_answers import answer_lines, small_model

from headwise.show.kit.glossary import glossary
from headwise.why.explain import explain

pytestmark = [browsed, pytest.mark.slow]
LINES = answer_lines(4)
PROMPT, OTHER = LINES[0]["prompt"], LINES[1]["prompt"]


def proved(page: Any) -> Any:
    page.wait_for_selector(".howto", timeout=30_000)
    return page


def test_a_number_in_focus_says_what_it_is_and_escape_closes_it(tab: Tab) -> None:
    why = explain(small_model(), PROMPT)
    page = proved(tab("/cell", p=PROMPT))
    fact = page.locator("dl.facts [data-num='log-odds']")
    page.locator("dl.facts [data-num]").first.focus()
    page.keyboard.press("Tab")
    assert fact.evaluate("one => one === document.activeElement")
    said = page.inner_text(".tip")
    assert "log(A ÷ (1 − A)) + log(n − 1)" in said
    assert (
        f"log({why.what.keys} − 1) = " in said and "Source: " in said and "Error against the model: " in said
    )
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden()
    fact.hover()
    assert page.locator(".tip").is_visible()
    page.mouse.move(2, 300)
    assert page.locator(".tip").is_hidden()


def test_no_number_on_any_screen_is_without_its_meaning(tab: Tab) -> None:
    known = set(glossary()["numbers"])
    screens = {
        "/cell": (".howto", {}),
        "/heads": (".pictures canvas", {}),
        "/circuit": (".edges", {}),
        "/compare": (".difference .sentence", {"p2": OTHER, "h": "L1H1", "al": "4=4"}),
    }
    for path, (shown, more) in screens.items():
        page = tab(path, p=PROMPT, **more)
        page.wait_for_selector(shown, timeout=30_000)
        labels = page.eval_on_selector_all("[data-num]", "all => all.map((one) => one.dataset.num)")
        strange = {one for one in labels if one not in known}
        # Columns of the table of writers go by the channels' numbers; positions are no measurements.
        assert {one for one in strange if not one.startswith("channel ")} <= {"others", "position"}, path
        assert labels
        page.close()


def test_channels_swaps_and_doses_change_the_model_and_the_address(tab: Tab) -> None:
    page = proved(tab("/cell", p=PROMPT))
    with page.expect_response("**/api/edit"):
        page.locator("table.heat:visible thead input.tick").first.check()
    page.wait_for_selector(".effect")
    assert place_of(page)["e"].startswith("ch:")
    with page.expect_response("**/api/edit") as asked:
        page.locator(".dose input").first.evaluate(
            "one => { one.value = 0.5; one.dispatchEvent(new Event('change', {bubbles: true})) }"
        )
    assert asked.value.request.post_data_json["edits"][0]["dose"] == 0.5
    page.select_option(".swap select", "1")
    with page.expect_response("**/api/edit") as asked:
        page.click(".swap button")
    edits = asked.value.request.post_data_json["edits"]
    assert {"kind": "swap", "other": 1, "feature": None, "dose": 1} in edits
    assert asked.value.status == 200
    address = place_of(page)["e"]
    assert "*0.5" in address and "sw:1" in address
    for _ in range(3):
        page.go_back()  # Back is undo
    page.wait_for_selector(".effect", state="detached")


def test_an_edge_of_the_circuit_is_taken_away_on_the_bench(tab: Tab) -> None:
    why = explain(small_model(), PROMPT)
    cell = str(why.question.cell)
    page = tab("/circuit", p=PROMPT, o=cell, n=cell)
    page.wait_for_selector(".edges button:has-text('take away')", timeout=30_000)
    with page.expect_response("**/api/edit", timeout=60_000) as asked:
        page.locator(".edges button:has-text('take away')").first.click()
    assert asked.value.status == 200
    assert asked.value.request.post_data_json["edits"][0]["kind"] == "edge"


@pytest.mark.parametrize(
    ("path", "shown", "more"),
    [
        ("/heads", ".pictures canvas", {}),
        ("/cell", ".effect", {"e": "cut"}),
        ("/compare", ".diff", {"p2": OTHER}),
        ("/circuit", ".edges", {"g": "mover=L1H1@13<-4"}),
    ],
)
def test_a_screen_is_saved_as_one_page_that_asks_for_nothing(
    tab: Tab, app: Served, browser: Any, tmp_path: Path, path: str, shown: str, more: dict[str, str]
) -> None:
    page = tab(path, p=PROMPT, **more)
    page.wait_for_selector(shown, timeout=30_000)
    with page.expect_download() as download:
        page.click("text=save page")
    file = tmp_path / "page.html"
    download.value.save_as(file)
    text = file.read_text(encoding="utf-8")
    assert "<script" not in text and app.origin not in text
    offline = browser.new_page()
    asked: list[str] = []
    offline.on("request", lambda request: asked.append(request.url))
    offline.goto(file.as_uri())
    assert offline.inner_text("main h1, main h2").strip()
    assert offline.locator("[data-num][title]").count() or path == "/heads"
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    offline.close()


def test_the_screens_names_stay_whole_on_a_small_screen(browser: Any, app: Served) -> None:
    with tabs(browser, app, viewport={"width": 360, "height": 800}) as tab:
        page = tab("/heads", p=PROMPT)
        page.wait_for_selector(".pictures canvas")
        heights = page.eval_on_selector_all(
            ".app-bar nav button", "all => all.map((one) => one.getBoundingClientRect().height)"
        )
        assert max(heights) < 48
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
