"""What goes wrong is said at its field; what a closed tab left is offered; all is saved; nothing is hidden."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import networkx
import pytest
from browsing import browsed
from browsing_app import Tab, place_of
from serving import Served
from toy_answers import answer_lines, small_model

from headwise.app import session
from headwise.errors import HeadwiseError
from headwise.why.explain import explain

pytestmark = [browsed, pytest.mark.slow]
PROMPT = answer_lines(3)[0]["prompt"]
TWICE = "after zoe met quinn at the park , zoe gave a book to"
PROVED = ".sentence:not(.soft)"


# --- errors at their fields -------------------------------------------------------------------------------------------


def test_a_token_that_stands_twice_is_chosen_by_its_positions(tab: Tab, app: Served) -> None:
    tokens = [one.strip() for one in app.read(TWICE)["tokens"]]
    first, second = (i for i, one in enumerate(tokens) if one == "zoe")
    page = tab("/cell", p=TWICE, h="L1H1")
    page.wait_for_selector(PROVED, timeout=30_000)
    page.fill(".asked [name=query]", "-1")
    page.fill(".asked [name=key]", "zoe")
    page.press(".asked [name=key]", "Enter")
    page.wait_for_selector("#asked-trouble")
    said = f"key 'zoe' occurs at positions {first} and {second}: pass one of them"
    assert page.inner_text("#asked-trouble").startswith(said)
    assert page.get_attribute(".asked [name=key]", "aria-invalid") == "true"
    assert page.get_attribute(".asked [name=key]", "aria-describedby") == "asked-trouble"
    assert page.locator("#asked-trouble .choice").all_inner_texts() == [str(first), str(second)]
    page.click(f"#asked-trouble .choice >> text=/^{second}$/")
    page.wait_for_selector(f"h1 .at >> text=/^{second}$/")
    assert place_of(page)["k"] == str(second)
    page.wait_for_selector("#asked-trouble", state="detached")


@pytest.mark.parametrize(
    ("place", "where", "line"),
    [
        ({"h": "L99H9"}, "head", "L99H9 does not exist"),
        ({"h": "L1H1", "q": 999}, "query", "query position 999 is outside the prompt"),
        ({"h": "L1H1", "q": 3, "k": 5}, "key", "which cannot see it"),
    ],
)
def test_an_address_that_cannot_be_asked_is_refused_at_its_field(
    tab: Tab, place: dict[str, Any], where: str, line: str
) -> None:
    page = tab("/cell", p=PROMPT, **place)
    page.wait_for_selector("#asked-trouble")
    assert line in page.inner_text("#asked-trouble")
    assert page.locator('[aria-invalid="true"]').get_attribute("name") == where
    assert page.locator("[role=alert]").count() == 1


def test_an_answer_that_is_no_token_is_refused_beside_the_answers(tab: Tab) -> None:
    page = tab("/cell", p=PROMPT, a="zoe gave")
    page.wait_for_selector("[role=alert]")
    assert "answer 'zoe gave' is 2 tokens" in page.inner_text("[role=alert]")
    assert "zoe" in page.inner_text(".answer-chip.answer")  # as the address has it
    page.click("[role=alert] .choice")
    page.wait_for_selector(PROVED, timeout=30_000)
    assert place_of(page)["a"].strip() == "zoe"


def test_a_prompt_that_cannot_be_read_is_refused_below_its_field(tab: Tab) -> None:
    page = tab("/")
    page.fill("#prompt-text", "zoe " * 3000)
    page.wait_for_selector("#prompt-trouble")
    assert "tokens but the model's context is" in page.inner_text("#prompt-trouble")
    assert page.get_attribute("#prompt-text", "aria-invalid") == "true"
    page.fill("#prompt-text", PROMPT)
    page.wait_for_selector("#prompt-trouble", state="detached")


def test_where_no_cause_was_found_the_bound_is_at_hand(tab: Tab) -> None:
    page = tab("/cell", p=PROMPT, h="L1H1", q=13, k=4, tau="1e-12", draws=20)
    page.wait_for_selector(".settings[open] .note >> text=No cause of allowed size", timeout=30_000)
    assert "nothing is proved" in page.inner_text("section.proof")
    page.fill(".settings input >> nth=0", "0.9")
    page.keyboard.press("Enter")
    page.wait_for_selector(".settings .note", state="detached", timeout=30_000)
    page.wait_for_selector("section.proof figure", timeout=30_000)


# --- what a closed tab has left ---------------------------------------------------------------------------------------


def test_what_a_closed_tab_had_asked_for_is_offered_and_opened(
    tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, free, begun = session.explain_steps, threading.Event(), []

    def waiting(*given: Any, **settings: Any) -> Any:
        begun.append(settings["head"])
        steps = whole(*given, **settings)
        while True:
            try:
                step = next(steps)
            except StopIteration as finished:
                return finished.value
            yield step
            if step.name == "table":
                assert free.wait(60)

    monkeypatch.setattr(session, "explain_steps", waiting)
    page = tab("/cell", p=PROMPT, h="L2H1", draws=20, seed=8)
    page.wait_for_selector("section.table", timeout=30_000)
    page.close()
    other = tab("/")  # which may be offered more, of tests before this one
    mine = ".left-job:has-text('L2H1 from')"
    other.wait_for_selector(f"{mine} >> text=is under way")
    free.set()
    other.wait_for_selector(f"{mine} >> text=is ready", timeout=30_000)
    other.click(f"{mine} >> text=open it")
    other.wait_for_selector(PROVED, timeout=30_000)
    wanted = explain(small_model(), PROMPT, head="L2H1", draws=20, seed=8)
    assert other.inner_text(PROVED) == wanted.sentence
    assert begun == ["L2H1"]  # it was not explained again
    other.wait_for_selector(mine, state="detached")


def test_what_failed_after_its_tab_was_closed_is_offered_with_its_error(
    tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, free = session.explain_steps, threading.Event()

    def failing(*given: Any, **settings: Any) -> Any:
        yield next(whole(*given, **settings))
        assert free.wait(60)
        raise HeadwiseError("there is <b>too much</b> of it")

    monkeypatch.setattr(session, "explain_steps", failing)
    page = tab("/cell", p=PROMPT, h="L2H2", seed=9)
    page.wait_for_selector("h1:has-text('L2H2')", timeout=30_000)
    page.close()
    other = tab("/")
    mine = ".left-job:has-text('L2H2 from')"
    other.wait_for_selector(f"{mine} >> text=is under way")
    free.set()
    other.wait_for_selector(f"{mine} >> text=its explanation failed: there is <b>too much</b> of it.")
    assert other.locator(f"{mine} button").all_inner_texts() == ["open it", "let it go"]
    other.click(f"{mine} >> text=open it")
    other.wait_for_selector(".cell-screen [role=alert] >> text=too much")
    other.wait_for_selector(mine, state="detached")


# --- files ------------------------------------------------------------------------------------------------------------


def saved(page: Any, button: str) -> Path:
    with page.expect_download() as got:
        page.click(f".takeaway >> text=/^{button}$/")
    return Path(got.value.path())


def test_a_circuit_is_saved_as_graphml_json_python_and_a_page(tab: Tab, show: Any) -> None:
    page = tab("/circuit", p=PROMPT, o="L1H1@13<-4", n="L1H1@13<-4")
    page.wait_for_selector(".node.marked")
    page.wait_for_selector(".takeaway >> text=save GraphML")
    ids = set(
        page.eval_on_selector_all(".picture .node", "all => all.map((one) => one.getAttribute('data-id'))")
    )
    document = json.loads(saved(page, "save JSON").read_text())
    graph = networkx.read_graphml(saved(page, "save GraphML"))
    assert set(graph.nodes) == {one["id"] for one in document["nodes"]} >= ids
    assert "walk_circuit" in saved(page, "save Python").read_text()
    again = show(saved(page, "save page").read_text())
    again.wait_for_selector(".circuit-view .node")


# --- the bench by keys ------------------------------------------------------------------------------------------------


def test_x_runs_the_bench_and_z_puts_everything_back(tab: Tab) -> None:
    page = tab("/cell", p=PROMPT, h="L1H1", q=5, k=2)
    page.wait_for_selector(PROVED, timeout=30_000)
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("x")  # nothing is on it yet: it opens
    page.wait_for_selector("details.bench[open]")
    page.click("text=cut this cell")
    page.wait_for_selector(".effect", timeout=30_000)
    before = page.inner_text(".effect")
    page.click(".bench > summary")
    page.evaluate("() => document.activeElement.blur()")
    with page.expect_response("**/api/edit") as asked:
        page.keyboard.press("x")
    assert asked.value.status == 200
    page.wait_for_selector("details.bench[open]")
    assert page.evaluate("() => document.activeElement.matches('.bench > summary')")
    assert page.inner_text(".effect") == before  # the same numbers
    page.keyboard.press("z")
    page.wait_for_selector(".effect", state="detached")
    assert "e" not in place_of(page)


# --- nothing is hidden ------------------------------------------------------------------------------------------------

COVERED = """() => [...document.querySelectorAll('figure > .fills')].flatMap((button) => {
  const over = button.getBoundingClientRect(), found = [];
  const walk = document.createTreeWalker(button.parentElement, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    if (button.contains(walk.currentNode) || !walk.currentNode.textContent.trim()) continue;
    const range = document.createRange();
    range.selectNodeContents(walk.currentNode);
    for (const box of range.getClientRects())
      if (box.right > over.left && box.left < over.right && box.bottom > over.top && box.top < over.bottom)
        found.push(walk.currentNode.textContent);
  }
  return found;
})"""


@pytest.mark.parametrize("width", [1280, 400])
def test_the_button_that_fills_the_window_covers_no_number(tab: Tab, width: int) -> None:
    page = tab("/cell", p=PROMPT, h="L1H1", q=5, k=2, e="cut")
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_selector(PROVED, timeout=30_000)
    page.wait_for_selector(".effect", timeout=30_000)
    assert page.locator("figure > .fills").count() >= 6
    assert page.evaluate(COVERED) == []


def test_no_table_of_a_comparison_is_wider_than_its_panel(tab: Tab) -> None:
    page = tab("/compare", p=PROMPT, p2=answer_lines(3)[1]["prompt"], h="L1H1")
    page.wait_for_selector(".difference .sentence", timeout=60_000)
    wide = "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)"
    assert page.eval_on_selector_all(".compare-screen .scroll", wide) == []
