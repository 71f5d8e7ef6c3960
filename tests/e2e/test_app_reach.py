"""What is at hand on every screen: pinned numbers, panels that fill the window, links from other weights; and on single
ones: heads with a similar row, the strongest cell by keyboard, the order of changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browsing import browsed, fits
from browsing_app import Tab, place_of, tabs
from known import names_folder
from serving import served
from tiny_folders import write_folder
from toy_answers import answer_lines, small_model

from headwise.app.models import ModelChoices
from headwise.toy.small_lm import DATA
from headwise.why.explain import explain

pytestmark = [browsed, pytest.mark.slow]
PROMPT = answer_lines(3)[0]["prompt"]


def isolated(text: str) -> str:
    """As the page shows text that may turn its neighbours around."""
    return f"\u2068{text}\u2069"


def proved(page: Any) -> Any:
    page.wait_for_selector(".howto", timeout=30_000)
    return page


def pattern() -> torch.Tensor:
    """Attention [heads, T, T]."""
    return torch.cat(list(small_model().capture(PROMPT, want=("pattern",)).pattern))


def test_a_number_is_pinned_leads_to_its_table_and_stays_on_other_screens(tab: Tab) -> None:
    page = proved(tab("/cell", p=PROMPT))
    page.locator("dl.facts [data-num='log-odds']").click()
    assert "Error against the model" in page.inner_text(".pins")
    page.locator("dl.facts [data-num='attention']").focus()
    page.keyboard.press("Enter")
    assert page.locator(".pins section").count() == 2
    page.locator(".answer-chip").first.hover()  # a button has something of its own to do
    page.keyboard.press("p")
    assert page.locator(".pins section").count() == 3
    page.locator(".pins >> text=show where").nth(1).click()
    assert json.loads(page.get_attribute("td.found", "data-with"))["v"] == pytest.approx(
        explain(small_model(), PROMPT).attention, abs=1e-4
    )
    assert page.locator("td.found").is_visible()
    assert fits(page)
    before = page.inner_text(".pins p >> nth=0")
    page.click(".app-bar nav >> text=Heads")
    page.wait_for_selector(".pictures canvas")
    assert page.inner_text(".pins p >> nth=0") == before
    for _ in range(3):
        page.locator(".pins >> text=unpin").first.click()
    assert page.locator(".pins").count() == 0


def test_a_number_that_is_pinned_twice_is_let_go(tab: Tab) -> None:
    page = proved(tab("/cell", p=PROMPT))
    for count in (1, 0):
        page.locator("dl.facts [data-num='attention']").click()
        assert page.locator(".pins section").count() == count


def test_heads_with_a_similar_row_come_first(tab: Tab) -> None:
    model, query = small_model(), 5
    page = proved(tab("/cell", p=PROMPT, h="L1H1", q=query))
    page.click("text=heads with a similar row")
    page.wait_for_selector(".shown-now >> text=most like that of L1H1")
    at = place_of(page)
    assert (at["s"], at["r"]) == ("like:L1H1", str(query))
    page.click(".heads-screen .numbers summary")
    rows = page.locator(".heads-screen .numbers tbody tr")
    names = rows.locator("td:first-child").all_inner_texts()
    told = [
        json.loads(one)["v"]
        for one in rows.locator("td[data-num=overlap]").evaluate_all(
            "all => all.map((one) => one.dataset.with)"
        )
    ]
    root = pattern()[:, query].sqrt()
    heads = [str(one) for one in model.heads]
    wanted = dict(zip(heads, (root @ root[heads.index("L1H1")]).tolist(), strict=True))
    said = {}
    for label in ("brings", "strongest"):
        rows.first.locator(f"td[data-num={label}]").hover()
        said[label] = "not tested" in page.inner_text(".tip")
    assert said == {"brings": True, "strongest": False}  # computed, and captured
    assert names[0] == "L1H1" and told == sorted(told, reverse=True)
    assert told == pytest.approx([wanted[name] for name in names], abs=0.01)
    page.select_option("select.like", "L0H2")
    page.wait_for_selector(".shown-now >> text=most like that of L0H2")
    assert rows.locator("td:first-child").first.inner_text() == "L0H2"
    page.select_option("select.like", "")
    assert "s" not in place_of(page)


def test_shift_and_an_arrow_go_to_the_strongest_cell_that_way(tab: Tab) -> None:
    head, query, key = "L1H1", 9, 4
    page = proved(tab("/cell", p=PROMPT, h=head, q=query, k=key))
    whole = pattern()[[str(one) for one in small_model().heads].index(head)]
    page.locator(".map canvas").focus()
    left = int(whole[query, :key].argmax())
    page.keyboard.press("Shift+ArrowLeft")
    assert page.locator(".spot .at").all_inner_texts() == [str(query), str(left)]
    below = query + 1 + int(whole[query + 1 :, left].argmax())
    page.keyboard.press("Shift+ArrowDown")
    assert page.locator(".spot .at").all_inner_texts() == [str(below), str(left)]


def at_rest(figure: Any) -> Any:
    """Where a figure is once nothing that arrives late moves it any more."""
    before = None
    while (now := figure.bounding_box()) != before:
        before = now
        figure.page.wait_for_timeout(400)
    return now


def test_a_panel_fills_the_window_and_escape_puts_it_back(tab: Tab) -> None:
    for panel, more in {"figure.map": {}, "figure.effect": {"e": "cut"}}.items():
        page = proved(tab("/cell", p=PROMPT, **more))
        figure = page.locator(panel)
        before = at_rest(figure)
        figure.locator("> .fills").click()
        assert figure.bounding_box() == {"x": 0, "y": 0, "width": 1280, "height": 900}
        # Nothing is above it.
        assert figure.evaluate("one => one.contains(document.elementFromPoint(640, 12))")
        page.keyboard.press("Escape")
        after = at_rest(figure)
        assert (after["width"], after["height"]) == (before["width"], before["height"])
        assert page.locator("figure:visible").count() == page.locator("figure:visible > .fills").count()


def test_changes_are_moved_and_act_in_their_order(tab: Tab) -> None:
    why = explain(small_model(), PROMPT)
    other = next(i for i in range(why.query) if i != why.key)
    page = proved(tab("/cell", p=PROMPT, e=f"ch:k:0;sw:{other};ch:k:1"))
    page.wait_for_selector(".effect")
    with page.expect_response("**/api/edit") as asked:
        page.click("[aria-label='Move change 2 up']")
    kinds = [one["kind"] for one in asked.value.request.post_data_json["edits"]]
    assert kinds == ["swap", "channels"]  # two of a kind that follow one another go as one
    assert place_of(page)["e"] == f"sw:{other}:;ch:k:0;ch:k:1"
    page.wait_for_timeout(100)
    with page.expect_response("**/api/edit") as asked:
        page.click("[aria-label='Move change 1 down']")
    kinds = [one["kind"] for one in asked.value.request.post_data_json["edits"]]
    assert kinds == ["channels", "swap", "channels"]
    assert page.locator("[aria-label='Move change 1 up']").count() == 0
    assert page.locator("[aria-label='Move change 3 down']").count() == 0


def test_a_link_from_other_weights_says_so(tab: Tab) -> None:
    page = tab("/cell", p=PROMPT, m="another", wt="0123456789ab")
    page.wait_for_selector(".other-weights")
    assert "another" in page.inner_text(".other-weights")
    page.click(".other-weights button")
    page.wait_for_selector(".other-weights", state="detached")
    model = small_model()
    assert (place_of(page)["m"], place_of(page)["wt"]) == (model.name, model.weight_hash[:12])
    same = proved(tab("/cell", **place_of(page)))
    assert same.locator(".other-weights").count() == 0


@pytest.fixture
def named(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tab]:
    """An app with two runs of names of its model and one of another, and with a second model."""
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    model = small_model()
    runs = [
        names_folder(tmp_path / "first", model, {"L1H1": "named"}, "the first name"),
        names_folder(tmp_path / "second", model, {"L1H1": "named"}, "the second name"),
    ]
    choices = ModelChoices(model.name, str(DATA), [str(write_folder(tmp_path / "other"))])
    with served(model, tuple(runs), models=choices) as app:
        app.enter()
        with tabs(browser, app) as opened:
            yield opened


def test_names_are_chosen_and_the_address_holds_the_choice(named: Tab) -> None:
    page = proved(named("/cell", p=PROMPT, h="L1H1", q=5))
    chooser = page.locator(".beside-runs select")
    assert chooser.locator("option").all_inner_texts() == [isolated("first"), isolated("second"), "none"]
    assert "the first name" in page.inner_text("p.named")  # unless one chooses
    chooser.select_option(label=isolated("second"))
    page.wait_for_selector("p.named:has-text('the second name')", timeout=30_000)
    assert place_of(page)["nm"] == "1"
    again = proved(named("/cell", **place_of(page)))
    assert "the second name" in again.inner_text("p.named")
    chooser.select_option("-1")
    page.wait_for_selector("p.named", state="detached", timeout=30_000)
    proved(page)
    assert place_of(page)["nm"] == "none" and page.locator("p.named").count() == 0
    page.go_back()  # Back is undo
    page.wait_for_selector("p.named:has-text('the second name')", timeout=30_000)


def test_a_run_that_is_finished_meanwhile_is_offered_without_loading_anew(
    browser: Any, tmp_path: Path
) -> None:
    later = tmp_path / "later"
    later.mkdir()
    with served(small_model(), (later,), studies=tmp_path / "studies") as app:
        app.enter()
        with tabs(browser, app) as opened:
            page, runs = proved(opened("/cell", p=PROMPT, h="L1H1", q=5)), opened("/runs")
            runs.wait_for_selector(".run-list")
            assert page.locator(".beside-runs").count() == 0
            names_folder(later, small_model(), {"L1H1": "named"}, "a late name")
            page.wait_for_selector("p.named:has-text('a late name')", timeout=30_000)
            runs.wait_for_selector(".run-list >> text=names")


def test_another_model_is_picked_in_one_tab_and_at_work_in_all(named: Tab, tmp_path: Path) -> None:
    first, second = named("/", p=PROMPT), named("/", p="When Mary and John")
    for page in (first, second):
        page.wait_for_selector(".answer-chip")
    before = place_of(first)["wt"]
    first.locator(".model-picker select").select_option(str(tmp_path / "other"))
    for page in (first, second):
        page.wait_for_selector(".about-model summary:has-text('other')", timeout=30_000)
        page.wait_for_selector(".answer-chip")
    assert place_of(first)["wt"] == place_of(second)["wt"] != before
    old = named("/", p=PROMPT, m=small_model().name, wt=before)
    old.click(".other-weights button:has-text('load')")
    old.wait_for_selector(".other-weights", state="detached", timeout=30_000)
    assert place_of(old)["wt"] == before


def test_a_long_prompt_has_a_short_address(named: Tab) -> None:
    long = " ".join([PROMPT] * 40)
    assert len(long) > 1500
    page = named()
    page.fill("#prompt-text", long)
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.search.includes('x=')")
    at = place_of(page)
    assert len(at["x"]) == 64 and "p" not in at and len(page.url) < 300
    again = named("/", **at)
    again.wait_for_function("text => document.querySelector('#prompt-text')?.value === text", arg=long)
    gone = named("/", x="0" * 64)
    gone.wait_for_selector("[role=alert] >> text=not on this machine")


def test_settings_change_the_numbers_and_the_address(tab: Tab) -> None:
    page = proved(tab("/cell", p=PROMPT, h="L1H1", q=5))
    page.click(".settings summary")
    page.fill(".settings input >> nth=0", "0.3")
    page.keyboard.press("Tab")
    page.fill(".settings input >> nth=2", "7")
    page.keyboard.press("Tab")
    page.wait_for_function("() => location.search.includes('seed=7')")
    assert place_of(page)["tau"] == "0.3"
    again = proved(tab("/cell", **place_of(page)))
    why = explain(small_model(), PROMPT, head="L1H1", query=5, key=int(place_of(page)["k"]), tau=0.3, seed=7)
    assert again.inner_text(".sentence") == why.sentence
    proved(page)
    assert page.inner_text(".proof") == again.inner_text(".proof")
    page.fill(".settings input >> nth=0", "2")  # no attention is above 1: not taken
    page.keyboard.press("Tab")
    assert place_of(page)["tau"] == "0.3"


def test_a_canvas_is_a_grid_whose_cell_in_focus_is_told(tab: Tab) -> None:
    page = proved(tab("/cell", p=PROMPT, h="L1H1", q=9, k=4))
    canvas = page.locator(".map canvas")
    assert canvas.get_attribute("role") == "grid"
    canvas.focus()
    page.keyboard.press("ArrowLeft")
    told = canvas.evaluate(
        "one => document.getElementById(one.getAttribute('aria-activedescendant')).textContent"
    )
    assert "(9) ← " in told and "(3): " in told
