"""Two prompts, or before and after an edit, side by side in a browser, with the numbers that Python gives."""

from __future__ import annotations

from typing import Any

import pytest
from browsing import browsed, fits
from browsing_app import Tab, place_of
from serving import TAB, Served
from toy_answers import answer_lines, small_model

pytestmark = [browsed, pytest.mark.slow]
FIRST, SECOND = (line["prompt"] for line in answer_lines(3)[:2])


def lines(page: Any, title: str) -> list[list[str]]:
    rows = page.locator(f".diff:below(:text('{title}'))").first.locator("tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def test_two_prompts_are_compared_and_the_address_restores_it(tab: Tab, app: Served) -> None:
    page = tab("/compare", p=FIRST)
    page.fill(".compare-screen input", SECOND)
    page.keyboard.press("Enter")
    page.wait_for_selector(".diff")
    both = [app.read(FIRST), app.read(SECOND)]
    told = {row[0].strip(): row[1:] for row in lines(page, "Next token")}
    for place, read in enumerate(both):
        best = read["answer"][0]
        assert told[best["token"].strip()][place] == f"{best['p']:.3f}"
    brings = [app.ask("GET", f"/api/prompts/{one['id']}/heads").data["statistics"]["brings"] for one in both]
    apart = [abs(b - a) for a, b in zip(*brings, strict=True)]
    most = max(range(len(apart)), key=lambda i: apart[i])
    first = page.locator(".diff button").first
    assert first.inner_text() == str(small_model().heads[most])
    first.click()
    page.wait_for_selector("text=reads from the last token")
    model = small_model()
    pattern = model.capture(FIRST, want=("pattern",), queries=-1).pattern[0, most, 0]
    shown = page.locator("figure:has-text('reads from the last token') tbody tr").first.locator("td").first
    assert float(shown.inner_text()) == pytest.approx(float(pattern[0]), abs=6e-4)
    again = tab("/compare", **place_of(page))
    again.wait_for_selector("text=reads from the last token")
    assert again.inner_text(".compare-screen .two") == page.inner_text(".compare-screen .two")
    assert fits(again)


def test_before_and_after_an_edit(tab: Tab, app: Served) -> None:
    page = tab("/compare", p=FIRST, h="L1H1", q=5, k=2, e="si:L2H0;cut")
    page.wait_for_selector(".edited")
    body = {
        "tab": TAB,
        "prompt": app.read(FIRST)["id"],
        "head": "L1H1",
        "query": 5,
        "key": 2,
        "edits": [{"kind": "silence", "head": "L2H0"}, {"kind": "cut"}],
    }
    seen = app.ask("POST", "/api/edit", body=body).data
    row = page.locator(".edited tr:has-text('log-probability') td").all_inner_texts()
    before, after = seen["before"]["log_probability"], seen["after"]["log_probability"]
    told = [float(one.replace("−", "-")) for one in row]
    assert told == pytest.approx([before, after, after - before], abs=6e-4)


def test_a_hostile_prompt_is_only_text(tab: Tab) -> None:
    page = tab("/compare", p=FIRST, p2="</td><script>alert(1)</script><img src=x onerror=alert(2)>")
    page.wait_for_selector(".diff")
