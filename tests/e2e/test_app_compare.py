"""Two prompts, or before and after an edit, side by side in a browser, with the numbers that Python gives."""

from __future__ import annotations

from typing import Any

import pytest
from browsing import browsed, fits
from browsing_app import Tab, place_of
from serving import TAB, Served
from toy_answers import answer_lines, small_model

from headwise.show.why.difference import aligned_lines
from headwise.why.pair.explain import explain_difference

pytestmark = [browsed, pytest.mark.slow]
SENTENCE = ".difference .sentence"
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
    page.wait_for_selector(f"text=What {small_model().heads[most]} reads")
    again = tab("/compare", **place_of(page))
    again.wait_for_selector(SENTENCE)
    page.wait_for_selector(SENTENCE)
    assert again.inner_text(".compare-screen .two") == page.inner_text(".compare-screen .two")
    assert again.inner_text(".difference") == page.inner_text(".difference")
    assert fits(again)


def figure(page: Any, title: str) -> list[list[str]]:
    rows = page.locator(f".difference figure:has-text('{title}') tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def numbers(cells: list[str]) -> list[float]:
    return [float(one.replace("−", "-")) for one in cells]


def test_the_table_of_differences_is_pythons(tab: Tab) -> None:
    page = tab("/compare", p=FIRST, draws=49)
    page.fill(".compare-screen input", SECOND)
    page.keyboard.press("Enter")
    page.wait_for_selector(SENTENCE)
    found = explain_difference(small_model(), FIRST, SECOND, draws=49)
    document = found.to_json()
    assert page.inner_text(SENTENCE).strip("\u2068\u2069") == found.sentence
    for side in ("query", "key"):
        told = [one for one in figure(page, f"{side} side") if not one[0].startswith("had read")]
        rows = [row for row in document["who"] if row["side"] == side]
        assert len(told) == len(rows) + 1
        wanted = [*rows, document["log_odds"]]
        for cells, row in zip(told, wanted, strict=True):
            three = [row["here"], row["there"], row["difference"]]
            assert numbers(cells[1:]) == pytest.approx(three, abs=6e-4)
        for cells, row in zip(told, rows, strict=False):
            name = f"{row['count']} others" if row["writer"] == "others" else row["writer"]
            assert name in cells[0] and cells[0].startswith("*") == row["patched"]
    channels = figure(page, "By channel")
    assert [numbers(cells[1:]) for cells in channels] == [
        pytest.approx([one["here"], one["there"], one["difference"]], abs=6e-4) for one in document["what"]
    ]
    tokens = figure(page, f"What {found.head} reads")
    lines = aligned_lines(found)
    assert len(tokens) == len(lines)
    for cells, (a, b) in zip(tokens, lines, strict=True):
        told = [None if one == "–" else numbers([one])[0] for one in cells[1:3]]
        own = [None if a is None else found.here.row[a], None if b is None else found.there.row[b]]
        assert told == pytest.approx(own, abs=6e-4)
    exchanged = page.locator(".exchanged tbody tr").all_inner_texts()
    if found.patch is None or found.back is None:
        assert exchanged == []
    else:
        assert f"{found.patch.after.attention:.3f}" in exchanged[1]
        assert f"{found.back.after.attention:.3f}" in exchanged[3]


def test_tokens_are_aligned_otherwise_and_what_cannot_be_is_one_line(tab: Tab) -> None:
    page = tab("/compare", p=FIRST, p2=SECOND, h="L1H1", q=8, k=2, draws=19)
    page.wait_for_selector(".difference .sentence, .difference [role=alert]")
    page.fill(".difference input", "2=1")
    with page.expect_response("**/api/difference") as asked:
        page.keyboard.press("Enter")
    assert asked.value.request.post_data_json["align"] == [[2, 1]]
    page.wait_for_selector("text=to 1 there")
    assert place_of(page)["al"] == "2=1"
    for text, said in (("2=1,3=1", "aligned twice"), ("nonsense", "align"), ("2=999", "999")):
        page.fill(".difference input", text)
        page.keyboard.press("Enter")
        page.wait_for_selector(f".difference [role=alert]:has-text('{said}')")


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
