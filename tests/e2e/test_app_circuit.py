"""The circuit in a browser: walked by clicks, named, explained beside it, and restored from its address."""

from __future__ import annotations

from typing import Any

import pytest
from browsing import browsed, fits
from browsing_app import Tab, place_of
from toy_answers import answer_lines, small_model

from headwise.circuits.trace import trace
from headwise.why.explain import explain

pytestmark = [browsed, pytest.mark.slow]
PROMPT = answer_lines(3)[0]["prompt"]


def boxes(page: Any) -> set[str]:
    return set(
        page.eval_on_selector_all(".picture .node", "all => all.map((one) => one.getAttribute('data-id'))")
    )


def weights(page: Any) -> list[str]:
    return page.locator(".edges td.n").all_inner_texts()


def test_a_walk_by_clicks_explains_the_next_cell_and_is_restored_by_its_address(tab: Tab) -> None:
    circuit = trace(small_model(), PROMPT)
    page = tab("/circuit", p=PROMPT)
    page.wait_for_selector(".node.head")
    before = boxes(page)
    seeds = {edge.source for edge in circuit.edges if edge.target.startswith("answer@")}
    assert seeds <= before
    first = next(one for one in circuit.heads if one.id in seeds and circuit.into(one.id))
    page.locator(f'.node[data-id="{first.id}"]').click()
    page.wait_for_selector(f'.node.marked[data-id="{first.id}"]')
    fed = {edge.source for edge in circuit.into(first.id)}
    page.wait_for_function("n => document.querySelectorAll('.picture .node').length > n", arg=len(before))
    assert boxes(page) == before | fed
    why = explain(small_model(), PROMPT, head=first.name, query=first.query, key=first.key)
    page.wait_for_selector(".node-panel .sentence", timeout=30_000)
    assert page.inner_text(".node-panel .sentence") == why.sentence
    assert page.locator(".crumbs button").count() == 2
    again = tab("/circuit", **place_of(page))
    again.wait_for_selector(".node-panel .sentence", timeout=30_000)
    assert boxes(again) == boxes(page) and weights(again) == weights(page)
    assert again.inner_text(".node-panel .sentence") == why.sentence
    assert fits(again)
    again.click("text=open its cell")
    again.wait_for_selector(".sentence:not(.soft)", timeout=30_000)
    assert place_of(again)["h"] == first.name
    page.go_back()  # back is undo
    page.wait_for_function("n => document.querySelectorAll('.picture .node').length === n", arg=len(before))
    assert boxes(page) == before


def test_boxes_are_named_and_those_of_one_name_become_one(tab: Tab) -> None:
    page = tab("/circuit", p=PROMPT)
    page.wait_for_selector(".node.head")
    first, second = [one for one in sorted(boxes(page)) if not one.startswith("answer@")][:2]
    count = len(boxes(page))
    name = "</text><script>alert(1)</script>"
    page.locator(f'.node[data-id="{first}"]').click()
    page.fill(".naming input", name)
    page.keyboard.press("Enter")
    page.wait_for_selector(f'.node[data-id="{first}"]:has-text("alert(1)")')
    page.locator(f'.node[data-id="{second}"]').click()
    page.wait_for_selector(".naming input")
    page.fill(".naming input", name)
    page.keyboard.press("Enter")
    page.wait_for_selector(".node.group")
    assert page.locator(".node.group").count() == 1
    group = page.locator(".node.group").get_attribute("data-id")
    assert group == f"group {name}" and {first, second}.isdisjoint(boxes(page))
    again = tab("/circuit", **place_of(page))
    again.wait_for_selector(".node.group")
    assert boxes(again) == boxes(page)
    again.uncheck("text=one box for each name")
    assert {first, second} <= boxes(again)
    again.check("text=one box for each name")
    again.locator(".node.group").click()
    again.click("text=take apart")
    again.wait_for_selector(f'.node[data-id="{first}"]')
    assert again.locator(".node.group").count() == 0 and len(boxes(again)) >= count


def test_a_walk_begins_at_the_cell_that_was_shown(tab: Tab) -> None:
    page = tab("/cell", p=PROMPT, h="L1H1", q=5, k=2)
    page.wait_for_selector(".sentence:not(.soft)", timeout=30_000)
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("u")
    page.wait_for_selector(".circuit-screen .node.marked")
    assert place_of(page)["root"] == "L1H1@5<-2"
    assert "answer@" not in "".join(boxes(page))
    page.click("text=from the answer")
    page.wait_for_selector('.node[data-id^="answer@"]')


@pytest.mark.parametrize(
    "strange",
    [{"o": "L99H1@1<-0"}, {"root": "javascript:alert(1)"}, {"o": "<img src=x onerror=alert(1)>"}],
)
def test_a_strange_address_is_one_line(tab: Tab, strange: dict[str, str]) -> None:
    page = tab("/circuit", p=PROMPT, **strange)
    page.wait_for_selector(".circuit-screen [role=alert]")
