"""The circuit's page in a real browser: it opens at the answer, grows on request, and groups what it shows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsing import Opener, browsed, fits
from known import names_folder
from tiny import prompts_of, tiny

import headwise
from headwise.basis_names import BasisName
from headwise.circuits.circuit import Circuit, Edge, Node
from headwise.naming.sources import signals_of
from headwise.show.circuits.page import circuit_page

pytestmark = browsed
OPENING = 30


@pytest.fixture(scope="module")
def circuit() -> Circuit:
    made = headwise.trace(tiny("llama"), [prompts_of(9)[0]])[0]
    assert len(made.edges) > 10
    return made


@pytest.fixture(scope="module")
def large() -> Circuit:
    """Ten layers of three heads at two tokens, and a token that would like to be markup."""
    nodes = [
        Node("head", layer, head, query, head % 2, 0.5)
        for layer in range(10)
        for head in range(3)
        for query in (2, 3)
    ]
    answer = Node("answer", 10, None, 3, 3)
    last = [Edge(node.id, answer.id, "query", 1.0 + (node.head or 0)) for node in nodes if node.layer == 9]
    inner = [
        Edge(a.id, b.id, "query" if a.query == b.query else "key", 0.01 * (1 + (a.head or 0)) ** 2, (1, 2))
        for a in nodes
        for b in nodes
        if a.layer + 1 == b.layer
    ]
    tokens = ("<img src=x onerror=document.title='broken'>", "b", "c", "d")
    return Circuit((*nodes, answer), (*last, *inner), tokens=tokens, prompt="x", answer="d")


@pytest.fixture
def page(show: Opener, circuit: Circuit) -> Any:
    return show(circuit_page(circuit))


def drawn(page: Any) -> int:
    return page.locator(".picture path.edge").count()


def test_channels_that_change_with_the_texts_have_no_number(show: Opener, large: Circuit) -> None:
    for kind, said in (("singular", "1, 2"), ("balanced", "2 unnumbered")):
        basis = BasisName(kind, "query", "x")  # pyright: ignore[reportArgumentType]
        page = show(circuit_page(replace(large, basis=basis)))
        page.click("button.all")
        shown = {row.locator("td").nth(4).inner_text() for row in page.locator("tr.pick").all()[-5:]}
        assert shown == {said}
        # the same words where one points at a line
        page.locator(".picture path.edge.query").first.dispatch_event(
            "pointermove", {"clientX": 9, "clientY": 9}
        )
        assert page.locator(".tip").inner_text().endswith(f"channels {said}")


def test_names_are_beside_their_edges_with_verdict_and_evidence(
    show: Opener, circuit: Circuit, tmp_path: Path
) -> None:
    hostile = "the source is <img src=x onerror=document.title='broken'>"
    verdicts = {str(one): "named" for one in signals_of([circuit])[0]}
    verdicts |= {str(node.cell.head): "beyond chance" for node in circuit.heads}
    folder = names_folder(tmp_path / "names", tiny("llama"), verdicts, hostile)
    page = show(circuit_page(circuit.with_names(folder), tmp_path))
    page.click("button.all") if page.locator("button.all").is_visible() else None
    rows = [row for row in page.locator("tr.pick").all() if "side" in row.locator("td").nth(2).inner_text()]
    assert rows
    for row in rows:
        said = row.locator("td").nth(5).inner_text()
        assert hostile in said and "named" in said and "0.81" in said
        assert (row.locator("a").get_attribute("href") or "").startswith("names/names.html#L")
    page.locator("g.node.head").first.hover()
    assert "(beyond chance, accuracy 0.81)" in page.locator(".tip").inner_text()
    assert page.locator(".names tbody tr").count() == len(verdicts)
    assert fits(page)


def test_it_opens_at_the_answer_and_grows_on_request(show: Opener, large: Circuit) -> None:
    page = show(circuit_page(large))
    assert drawn(page) == page.locator("tr.pick").count() == OPENING
    assert page.locator("g.node.answer").count() == 1
    # Whatever is drawn leads to the answer.
    ends = [row.locator("td").all_text_contents()[:2] for row in page.locator("tr.pick").all()]
    reached = {end for end in (to for _, to in ends) if end.startswith("answer")}
    while grown := {source for source, to in ends if to in reached} - reached:
        reached |= grown
    assert {source for source, _ in ends} <= reached
    page.click("button.more")
    assert drawn(page) == 2 * OPENING
    page.click("button.all")
    assert drawn(page) == page.locator("tr.pick").count() == len(large.edges) > 300
    page.click("button.fewer")
    assert drawn(page) == OPENING
    assert page.locator("img").count() == 0 and page.title() != "broken"


def test_a_small_circuit_is_drawn_whole(page: Any, circuit: Circuit) -> None:
    every = (*circuit.edges, *circuit.accounts)
    assert drawn(page) == min(OPENING, len(every))
    while page.locator("button.more:not([disabled])").count():
        page.click("button.more")
    assert drawn(page) == len(every)
    assert page.locator("g.node").count() == len({end for e in every for end in (e.source, e.target)})


def test_every_head_says_what_it_reads(show: Opener, large: Circuit) -> None:
    page = show(circuit_page(large))
    assert page.locator("g.node.head").count() > 5
    for box in page.locator("g.node.head").all():
        found = re.match(r"(L\d+H\d+)@(\d+)<-(\d+)", box.get_attribute("data-id"))
        assert found is not None
        said = box.text_content().replace("\u2068", "").replace("\u2069", "")
        assert said.startswith(found[1])
        assert "reads" in said and said.endswith(f" {found[3]}")


def test_accounts_through_mlps_are_drawn_apart_from_causes(show: Opener, circuit: Circuit) -> None:
    assert len(circuit.accounts) > 0
    page = show(circuit_page(circuit))
    assert f"{len(circuit.accounts)} account" in page.inner_text("header")
    while page.locator("button.more:not([disabled])").count():
        page.click("button.more")
    accounts = page.locator(".picture path.edge.account")
    assert accounts.count() == len(circuit.accounts)
    looks = "(e) => { const s = getComputedStyle(e); return [s.stroke, s.strokeDasharray].join(' ') }"
    others = page.locator(".picture path.edge:not(.account)").evaluate_all(f"all => all.map({looks})")
    assert len(others) == len(circuit.edges) and accounts.first.evaluate(looks) not in others
    assert "account through an MLP" in page.locator(".legend").inner_text()
    page.click(".howto summary")
    assert "not an experiment" in page.inner_text(".howto")


@pytest.mark.parametrize("by", ["layer", "head", "token"])
def test_nodes_can_be_grouped(show: Opener, large: Circuit, by: str) -> None:
    page = show(circuit_page(large))
    page.click("button.all")
    page.select_option("select.grouping", by)
    home: dict[str, Any] = {
        node.id: {"layer": node.layer, "head": node.name, "token": node.query}[by] for node in large.heads
    }
    assert page.locator("g.node:not(.answer)").count() == len(set(home.values()))
    home[large.nodes[-1].id] = "answer"
    joined = {
        (home[e.source], home[e.target], e.target == "answer@3" or e.side)
        for e in large.edges
        if home[e.source] != home[e.target]
    }
    assert drawn(page) == len(joined)
    inside = sum(home[e.source] == home[e.target] for e in large.edges)
    said = page.inner_text(".count")
    assert said == f"{len(large.edges)} of {len(large.edges)} edges" + (
        f", {inside} inside groups" if inside else ""
    )


def test_pointing_shows_numbers_and_lights_edges(page: Any) -> None:
    page.locator("g.node.head").first.hover()
    assert "attention" in page.locator(".tip").inner_text()
    assert page.locator("path.edge.hot").count() > len(page.locator(".legend path").all())
    page.mouse.move(2, 2)
    assert page.locator(".picture path.edge.hot").count() == 0
    page.locator("g.node.head").first.focus()
    page.keyboard.press("Tab")
    assert page.locator(".tip").is_visible()


def test_a_pinned_node_stays_until_escape_and_shows_more_on_request(show: Opener, large: Circuit) -> None:
    page = show(circuit_page(large))
    page.locator("g.node.head").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("g.node.pinned").count() == 1
    page.mouse.move(2, 2)
    pinned = page.get_attribute("g.node.pinned", "data-id")
    mine = sum(pinned in (e.source, e.target) for e in large.edges)
    assert 0 < page.locator("tr.pick").count() < mine
    before = drawn(page)
    page.click("button.grow")
    feeding = sum(e.target == pinned for e in large.edges)
    assert drawn(page) > before
    assert page.locator("tr.pick").count() >= feeding
    page.keyboard.press("Escape")
    assert page.locator("g.node.pinned").count() == page.locator(".picture path.edge.hot").count() == 0


def test_search_and_kinds_narrow_the_picture(page: Any) -> None:
    page.locator(".search").fill("MLP")
    assert page.locator("g.node.found").count() == page.locator("g.node.mlp").count() > 0
    page.locator(".search").fill("")
    page.uncheck(".minor")
    assert page.locator("g.node.mlp").count() == 0


def test_the_edge_table_sorts(page: Any) -> None:
    def weights() -> list[float]:
        return [
            float(row.locator("td.n").inner_text().replace("−", "-")) for row in page.locator("tr.pick").all()
        ]

    first = weights()
    assert first == sorted(first, reverse=True)
    page.locator(".edges th button", has_text="weight").click()
    assert weights() == sorted(first)
    page.locator(".edges th button", has_text="from").click()
    names = page.locator("tr.pick td:first-child").all_inner_texts()
    assert names == sorted(names)


def test_dark_print_and_narrow(show: Opener, circuit: Circuit, tmp_path: Path) -> None:
    shown = show(circuit_page(circuit), color_scheme="dark", viewport={"width": 360, "height": 800})
    paper = "getComputedStyle(document.querySelector('.headwise')).backgroundColor"
    assert shown.evaluate(paper) == "rgb(20, 23, 27)"
    assert fits(shown)
    shown.click(".theme")
    assert shown.evaluate(paper) == "rgb(255, 255, 255)"
    shown.click(".theme")
    shown.emulate_media(media="print", color_scheme="dark")
    assert shown.evaluate(paper) == "rgb(255, 255, 255)"
    assert shown.pdf(path=tmp_path / "circuit.pdf").startswith(b"%PDF")


def test_an_empty_circuit_says_so(show: Opener, circuit: Circuit) -> None:
    page = show(
        circuit_page(replace(circuit, nodes=(), edges=(), accounts=(), notes=("no head carries the answer",)))
    )
    assert "nothing to draw" in page.inner_text(".empty")
    assert "no head carries the answer" in page.inner_text(".note")


def test_the_browser_refuses_markup(browser: Any, circuit: Circuit, tmp_path: Path) -> None:
    file = tmp_path / "circuit.html"
    file.write_text(circuit_page(circuit), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    refused = "() => { try { document.body.innerHTML = '<b>'; return false } catch { return true } }"
    assert page.evaluate(refused)
    assert page.locator(".picture svg").count() == 1
    page.close()


def test_a_host_is_asked_to_explain_a_head(show: Opener, circuit: Circuit) -> None:
    """In a saved page nobody can; where the bundle is mounted by an app, the app is asked."""
    page = show(circuit_page(circuit))
    page.locator("g.node.head").first.click()
    assert page.locator("button.explain").count() == 0
    page.evaluate(
        """() => {
          const data = JSON.parse(document.getElementById('headwise-data').textContent);
          headwise.mount(document.getElementById('headwise'), data, { explain: (cell) => { window.asked = cell; } });
        }"""
    )
    page.locator("g.node.head").first.click()
    page.click("button.explain")
    asked = page.evaluate("window.asked")
    assert f"{asked['head']}@{asked['query']}<-{asked['key']}" in circuit.by_id
