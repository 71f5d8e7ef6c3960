"""The page of an explanation's document, in a real browser: what is drawn, what reacts, and that nothing leaves it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from browsing import Opener, browsed
from explanation_documents import VISIBLE, Document, document, features, page_of, rows_of
from tiny import prompts_of, tiny

from headwise.why.explain import explain

pytestmark = browsed


@pytest.fixture
def test_parts_come_in_the_order_in_which_a_person_asks(show: Opener, data: Document) -> None:
    page = show(page_of({**data, "features": features()}))
    assert page.inner_text(".sentence") == data["sentence"]
    headings = [text.split("\n")[0] for text in page.locator("h1, h2").all_inner_texts()]
    assert headings[0].startswith("Why does L23H3 at")
    assert headings[1:] == [
        "Prompt",
        "Place or content?",
        "What and who",
        "Consequence",
        "Proof",
        "The circuit around it",
        "By named feature",
        "Why not elsewhere?",
        "The whole head",
    ]
    figures = page.locator("figure:not([hidden])")
    for i in range(figures.count()):
        if "effects" not in (figures.nth(i).get_attribute("class") or ""):
            assert figures.nth(i).locator("details table tbody tr").count() > 0


def test_channels_that_change_with_the_texts_have_no_number(show: Opener, data: Document) -> None:
    assert 17 not in data["numbered"] and data["cause"]["query"]["signals"][0]["channels"] == [3, 17]
    page = show(page_of(data))
    for place in (page.locator(".rivals"), page.locator(VISIBLE)):
        for one in place.locator("details").all():
            one.evaluate("element => element.open = true")
    assert "3 (+1.10), unnumbered (+0.70)" in page.locator(".rivals").inner_text()
    assert "3, 1 unnumbered" in page.locator(VISIBLE).inner_text()


def test_signals_and_other_prompts_have_their_own_controls(show: Opener, data: Document) -> None:
    assert show(page_of(data)).locator(".transfer").count() == 0
    before, after = data["proof"]["before"], data["proof"]["after"]
    other = {
        "prompt": "Well. <i>When</i>",
        "tokens": ["Well", ".", " <i>When</i>"],
        "query": 2,
        "key": 1,
        "writers": [{"writer": "MLP20", "reads": None}],
        "missing": [{"writer": "L20H0", "reads": 9}],
        "before": before,
        "after": after,
        "predicted": 0.09,
        "controls": data["controls"],
        "holds": {"said": True, "value": 0.93, "p": 0.012},
    }
    unknown = {**other, "after": None, "holds": {"said": None, "value": None, "p": None}}
    page = show(page_of({**data, "transfer": [other, unknown]}))
    said = page.locator(".transfer li").all_inner_texts()
    assert len(said) == 2 and page.locator(".transfer i").count() == 0
    assert "share 0.93" in said[0] and "It transfers." in said[0] and "L20H0" in said[0]
    assert "cannot be said" in said[1] and "It transfers" not in said[1]
    finer = page.locator(f"{VISIBLE} p", has_text="In finer parts").inner_text()
    assert "specific" in finer and "against random directions" in finer


def test_a_rival_that_is_ahead_is_not_said_to_lose(show: Opener, data: Document) -> None:
    rival = {"key": 0, "attention": 0.2, "gap": -1.7, "channels": [{"channel": 3, "value": 0.4}]}
    page = show(page_of({**data, "rivals": [rival]}))
    assert "is ahead, though it loses in channels 3" in page.inner_text(".rivals")


def test_place_and_consequence(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    said = page.inner_text("section.place")
    for name in ("content", "place", "interaction"):
        assert f"{data['place'][name]:+.2f}".replace("-", "−") in said
    assert "%" not in said
    effects = page.inner_text("section.consequence")
    for token in ("·Mary", "·John", "·Sarah", "·him"):
        assert token in effects
    assert "+1.30" in effects and "0.400" in effects
    elsewhere = copy.deepcopy(data)
    elsewhere["consequence"] |= {"direct": None, "path": None}
    said = show(page_of(elsewhere)).inner_text("section.consequence")
    assert "Directly: nothing" in said and "no other token" in said


def test_proof_shows_prediction_edit_and_the_spread_of_controls(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    panels = page.locator("section.proof svg.dots")
    assert panels.count() == 2
    assert panels.first.locator(".ring").count() == 2
    assert panels.first.locator(".spread").count() == 3
    bins = [sum(n > 0 for n in one["attention"]["histogram"]) for one in data["controls"]]
    assert panels.first.locator(".bin").count() == sum(bins)
    words = page.locator("section.proof .verdict b").all_inner_texts()
    assert words == ["specific", "redundant", "matters"]
    said = page.inner_text("section.proof .verdict")
    for part in ("0.62", "p = 0.012", "50 %", "−0.72", "p = 0.048"):
        assert part in said
    assert page.locator(".chips .chip").all_inner_texts() == words


def test_the_proof_is_drawn_by_the_yardstick_of_its_controls(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    label = "section.proof svg.dots >> nth=1"
    said = page.get_attribute(label, "aria-label")
    assert "log-probability" in said and "without the cause −0.72" in said
    data["answer"]["measured_by"] = "lead"
    page = show(page_of(data))
    said = page.get_attribute(label, "aria-label")
    assert "lead of" in said and "without the cause −2.40" in said
    assert "lead of the answer" in page.inner_text("section.proof .verdict")


def test_a_verdict_can_say_no(show: Opener, data: Document) -> None:
    for word, p in (("specific", 0.4), ("redundant", None), ("matters", 0.6)):
        data["verdict"][word] = {"said": False, "value": 0.05, "p": p}
    page = show(page_of(data))
    words = page.locator("section.proof .verdict b").all_inner_texts()
    assert words == ["not specific", "not redundant", "does not matter"]
    assert page.locator(".chip.bad").count() == 2
    data["verdict"]["matters"]["value"] = -1.7
    assert show(page_of(data)).locator("section.proof .verdict b").last.inner_text() == "not shown to matter"


def test_nothing_found_is_said(show: Opener, data: Document) -> None:
    none = {
        "writers": [],
        "order": "fixed",
        "diffuse": False,
        "after": None,
        "signals": [],
        "signals_after": None,
    }
    data["cause"] |= {"headline": None, "query": none, "key": none}
    for row in data["who"]:
        row["cause"] = False
    data["proof"] |= {"side": None, "after": None, "predicted": None, "error": None, "next": None}
    data["controls"] = []
    data["verdict"] = {
        w: {"said": None, "value": None, "p": None} for w in ("specific", "redundant", "matters")
    }
    data["notices"] = ["No head brings much of the answer."]
    page = show(page_of(data))
    assert "nothing is proved" in page.inner_text("section.proof")
    assert "No set of whole writers" in page.inner_text(VISIBLE)
    assert page.locator("tr.cause").count() == 0
    assert page.inner_text(".note") == data["notices"][0]
    assert page.locator(".chip.unknown").count() == 3


def test_a_single_visible_key_leaves_nothing_to_explain(show: Opener) -> None:
    data = document(query=0, key=0)
    data["log_odds"] |= {"total": 0.0, "keys": 1}
    data["consequence"]["path"] = None
    page = show(page_of(data))
    assert "nothing to explain" in page.inner_text("section.table")
    assert page.locator("section.place").count() == 0


def heat(page: Any) -> list[float]:
    styles = page.locator(".tokens button").evaluate_all(
        "all => all.map((b) => b.style.getPropertyValue('--a'))"
    )
    return [float(one) for one in styles]


def test_tokens_show_any_row_by_mouse_and_keyboard(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    before = heat(page)
    assert len(before) == len(data["tokens"])
    assert abs(before[9] - 0.71**0.5) < 1e-3
    page.click(".tokens button >> nth=7")
    assert heat(page) != before
    assert page.get_attribute(".tokens button >> nth=7", "aria-pressed") == "true"
    assert page.locator(".tokens button.unseen").count() == 6
    page.click("button.back")
    assert heat(page) == before
    page.focus(".tokens button >> nth=13")
    for key in ("Home", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert page.get_attribute(".tokens button >> nth=2", "aria-pressed") == "true"
    page.focus("canvas")
    page.keyboard.press("ArrowUp")
    assert "this cell" in page.inner_text(".spot")


def test_without_a_pattern_the_explained_row_alone_is_shown(show: Opener, data: Document) -> None:
    del data["pattern"]
    page = show(page_of(data))
    assert page.locator("canvas").count() == 0
    assert page.locator(".tokens button:disabled").count() == len(data["tokens"]) - 1


def test_the_circuit_around_it(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    around = page.locator("section.around")
    assert around.locator(".node.firing").count() == 1
    for line in ("query", "key", "account"):
        assert around.locator(f".picture .edge.{line}").count() > 0
    causes = {
        (side, row["writer"]) for side in ("query", "key") for row in rows_of(data, side) if row["cause"]
    }
    assert around.locator(".node.marked").count() == len(causes)


def test_named_features(show: Opener, data: Document) -> None:
    page = show(page_of({**data, "features": features()}))
    assert page.locator(".parts .bar").count() == 3
    assert page.locator(".featurewriters").count() == 2
    assert page.locator(".featuretests .ring").count() == 4
    assert "<b>subject</b>" in page.inner_text(".parts")


def test_a_host_is_asked_to_explain_other_cells(show: Opener, data: Document) -> None:
    page = show(page_of(data))
    assert page.locator("button.explain").count() == 0
    page.evaluate(
        """() => {
          window.asked = [];
          const data = JSON.parse(document.getElementById('headwise-data').textContent);
          const host = { explain: (cell) => { window.asked.push(cell); } };
          headwise.mount(document.getElementById('headwise'), data, host);
        }"""
    )
    page.locator(f"{VISIBLE} button.explain").first.click()
    page.click(".tokens button >> nth=7")
    page.click(".prompt button.explain")
    asked = page.evaluate("window.asked")
    writers = {(row["writer"], 13, row["reads"]) for row in rows_of(data, "query")}
    assert (asked[0]["head"], asked[0]["query"], asked[0]["key"]) in writers
    assert (asked[1]["head"], asked[1]["query"]) == ("L23H3", 7)


def test_a_real_explanation_is_drawn_from_its_own_document(show: Opener) -> None:
    """The contract between the document and the page: nothing that the one says is unknown to the other."""
    why = explain(tiny("llama"), prompts_of(11)[0], head="L3H1", query=-1, draws=19)
    page = show(why.to_html())
    assert page.inner_text(".sentence") == why.sentence
    document = why.to_json()
    # Every writer of the cause has a row in the table of its side, and each is in the page's one bundle of rows.
    side = document["cause"]["headline"]
    table = page.inner_text(VISIBLE)
    for one in document["cause"][side]["writers"]:
        assert one["writer"].replace("MLP", "MLP ") in table or one["writer"] in table


def test_names_come_with_verdict_accuracy_and_evidence(show: Opener, data: Document) -> None:
    row = next(row for row in rows_of(data, "query") if row["cause"])
    name = {
        "level": "head",
        "text": "the source is <img src=x onerror=document.title='broken'>",
        "verdict": "named",
        "accuracy": {"mean": 0.8125, "low": 0.75, "high": 0.875},
        "q": 0.001,
        "flags": ["positional"],
        "by": "rules",
        "evidence": "names.html#L23H3",
    }
    rare = {**name, "text": None, "verdict": "too rare", "accuracy": None, "flags": []}
    writer = f"L23H3 query {row['writer']}"
    names = {
        "run": "runs/names",
        "corpus": "wikipedia-excerpt",
        "basis": data["basis"],
        "other_basis": 2,
        "signals": {"L23H3 sink": rare, "L23H3": name, writer: {**name, "evidence": "names.html#w"}},
    }
    page = show(page_of({**data, "names": {**names, "link": "../runs/names"}}))
    head = page.locator("header .named").all_inner_texts()
    assert head[0].startswith("L23H3 sink: too rare") and "named" in head[1] and "0.81" in head[1]
    assert page.locator("header .named q").inner_text().strip('\u2068\u2069“”"') == name["text"]
    links = page.locator("section.names a")
    assert links.count() == 3
    assert links.first.get_attribute("href") == "../runs/names/names.html#L23H3"
    said = page.locator("section.names").inner_text()
    assert "0.81 (0.75 to 0.88)" in said and "[positional]" in said and "2 names of channels" in said
    # a row of the table says that its writer has a name, and a tooltip says which
    marked = page.locator(f"{VISIBLE} tr.cause th .role", has_text="named")
    assert marked.count() == 1
    page.locator(f"{VISIBLE} tr.cause th .writer").first.hover()
    assert "named, accuracy 0.81" in page.locator(".tip").inner_text()
    assert show(page_of({**data, "names": {**names, "link": "file:///runs/names"}})).locator("a").count() == 5
    # without a way to the run, or with one that is no file's, its place is told instead
    for link in (
        None,
        "javascript:alert(1)",
        "//example.org/a",
        "https://example.org",
        "file://host/a",
        "\\\\a",
    ):
        page = show(page_of({**data, "names": {**names, "link": link}}))
        assert page.locator("a").count() == 0
    assert "runs/names/names.html#L23H3" in page.locator("section.names").inner_text()
