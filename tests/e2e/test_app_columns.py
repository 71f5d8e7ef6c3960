"""All heads at once: who reads a token, and what a sink is."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from browsing import browsed
from browsing_app import Tab, place_of
from toy_answers import answer_lines, small_model

from headwise.why.explain import explain

pytestmark = [browsed, pytest.mark.slow]
PROMPT = answer_lines(3)[0]["prompt"]


def test_a_token_shows_who_reads_it_in_every_head(tab: Tab) -> None:
    page = tab("/heads", p=PROMPT)
    page.wait_for_selector(".pictures canvas")
    canvas, token = page.locator(".pictures canvas"), page.locator(".heads-tokens button").nth(4)
    token.hover()
    page.wait_for_selector(".shown-now >> text=the row of position 4")
    page.wait_for_timeout(100)
    row = canvas.screenshot()
    with page.expect_response(re.compile("/column/4$")):
        page.keyboard.down("Shift")  # for as long as it is held
    page.wait_for_selector(".shown-now >> text=the column of position 4")
    page.wait_for_timeout(100)
    column = canvas.screenshot()
    assert column != row
    page.keyboard.up("Shift")
    page.wait_for_selector(".shown-now >> text=the row of position 4")
    page.wait_for_timeout(100)
    assert canvas.screenshot() == row and "to" not in place_of(page)
    token.click()
    page.mouse.move(5, 5)
    page.select_option("select.way", "to")
    page.wait_for_selector(".shown-now >> text=the column of position 4")
    page.wait_for_timeout(100)
    assert canvas.screenshot() == column
    assert (place_of(page)["r"], place_of(page)["to"]) == ("4", "1")
    again = tab("/heads", **place_of(page))
    again.wait_for_selector(".shown-now >> text=the column of position 4")
    again.locator(".pictures canvas").click(position={"x": 20, "y": 20})
    again.wait_for_selector(".howto", timeout=30_000)
    assert (place_of(again)["h"], place_of(again)["k"]) == ("L0H0", "4")
    assert place_of(again)["q"] == str(explain(small_model(), PROMPT, head="L0H0", key=4).query)


def test_a_key_turns_rows_into_columns_and_heads_are_compared_by_them(tab: Tab) -> None:
    page = tab("/heads", p=PROMPT, r=4)
    page.wait_for_selector(".shown-now >> text=the row of position 4")
    page.locator(".heads-tokens button").nth(4).focus()
    page.keyboard.press("r")
    page.wait_for_selector(".shown-now >> text=the column of position 4")
    assert place_of(page)["to"] == "1"
    page.select_option("select.like", "L1H1")
    page.wait_for_selector(".shown-now >> text=whose column is most like that of L1H1")
    page.click(".heads-screen .numbers summary")
    names = page.locator(".heads-screen .numbers tbody td:first-child").all_inner_texts()
    root = small_model().capture(PROMPT, want=("pattern",)).pattern[0][:, :, 4].sqrt()  # [heads, T]
    one = root / root.norm(dim=1, keepdim=True)
    heads = [str(head) for head in small_model().heads]
    alike = dict(zip(heads, (one @ one[heads.index("L1H1")]).tolist(), strict=True))
    told = [alike[name] for name in names]
    assert names[0] == "L1H1" and all(a >= b - 0.01 for a, b in pairwise(told))
    page.keyboard.press("r")
    page.wait_for_selector(".shown-now >> text=whose row is most like that of L1H1")


def test_what_a_sink_is_is_said_in_place_by_keyboard_too(tab: Tab) -> None:
    page = tab("/heads", p=PROMPT)
    page.wait_for_selector(".pictures canvas")
    button = page.locator("button.what-is")
    assert not page.locator("#sinks").is_visible() and button.get_attribute("aria-expanded") == "false"
    button.focus()
    page.keyboard.press("Enter")
    assert "a head that finds nothing to read" in page.inner_text("#sinks")
    sinks = page.locator(".heads-tokens button.sink").all_inner_texts()
    assert page.locator("#sinks .tok").all_inner_texts() == sinks
    assert button.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Enter")
    assert not page.locator("#sinks").is_visible()
