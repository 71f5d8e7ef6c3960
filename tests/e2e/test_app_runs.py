"""Run folders in a browser: tables, filters, pages without rights; studies begun, stopped and continued."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import browsed, fits
from browsing_app import Tab, place_of, tabs
from serving import Served, served
from toy_answers import answer_lines, small_model, write_lines

import headwise
from headwise.corpus import Corpus
from headwise.survey.collect import trace_many
from headwise.tasks.answers.make import make_answers

pytestmark = [browsed, pytest.mark.slow]
LINES = answer_lines(6)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("runs")
    model = small_model()
    answers = make_answers(str(write_lines(place / "lines.jsonl", LINES)), model.tokenizer)
    run = place / "<img src=x onerror=alert(1)>"
    trace_many(model, answers, out=run)
    (run / "report.html").write_text(
        "<h1>kept</h1><script>document.title = 'ran'; fetch('/api/state'); parent.alert(1)</script>"
    )
    saved = place / "model"
    model.hf.save_pretrained(saved)
    model.tokenizer.save_pretrained(saved)
    with served(model, (run,), studies=place / "studies", source=str(saved)) as opened:
        opened.enter()
        yield opened


@pytest.fixture
def tab(browser: Any, app: Served) -> Iterator[Tab]:
    with tabs(browser, app) as opened:
        yield opened


def test_a_run_folder_is_browsed_and_a_row_leads_to_its_cell(tab: Tab) -> None:
    page = tab("/runs")
    page.click(".run-list button:has-text('firings')")
    page.wait_for_selector(".run-table tbody tr")
    whole = page.locator(".run-table tbody tr").count()
    page.fill(".run-table input", "layer=1 attention>0.2")
    page.wait_for_function("n => document.querySelectorAll('.run-table tbody tr').length < n", arg=whole)
    page.click(".run-table th button:has-text('attention')")
    page.wait_for_selector(".run-table th[aria-sort=descending]")
    again = tab("/runs", **place_of(page))
    again.wait_for_selector(".run-table th[aria-sort=descending]")
    assert again.inner_text(".run-table tbody") == page.inner_text(".run-table tbody")
    assert fits(again)
    cells = page.locator(".run-table tbody tr").first.locator("td").all_inner_texts()
    page.locator(".run-table tbody tr").first.locator("button:has-text('why?')").click()
    page.wait_for_selector(".sentence:not(.soft)", timeout=30_000)
    at = place_of(page)
    assert at["h"] == f"L{cells[2]}H{cells[3]}" and (at["q"], at["k"]) == (cells[4], cells[5])
    assert at["p"] in {line["prompt"] for line in LINES}
    page.go_back()
    row = page.locator(".run-table tbody tr").first
    row.locator("button:has-text('circuit')").click()
    page.wait_for_selector(".circuit-view .node")
    at = place_of(page)
    assert at["p"] == LINES[int(cells[1])]["prompt"] and at.get("c", "0") == cells[1]


def test_a_study_is_begun_watched_stopped_and_continued(tab: Tab) -> None:
    page = tab("/runs")
    page.wait_for_selector(".begin-study")
    page.locator(".begin-study select").first.select_option("sinks")
    page.fill(".begin-study input", "60")
    page.click(".begin-study button")
    page.wait_for_selector(".study-state .running")
    page.click(".study-state button:has-text('stop')")
    page.wait_for_selector(".study-state .stopped")
    other = tab("/runs")  # two tabs see the same
    other.wait_for_selector(".study-state .stopped")
    page.click(".study-state button:has-text('continue')")
    page.wait_for_selector(".study-state .finished", timeout=60_000)
    page.click(".run-list tr:has(.study-state) button:has-text('report.html')")
    page.wait_for_selector("iframe.saved-page")
    assert page.get_attribute("iframe.saved-page", "sandbox") == "allow-scripts"


def test_all_of_a_circuit_is_traced_as_a_study(tab: Tab) -> None:
    page = tab("/circuit", p=LINES[0]["prompt"])
    page.wait_for_selector(".node.head")
    page.click(".trace-all")
    page.wait_for_selector(".circuit-view", timeout=60_000)
    again = tab("/circuit", **place_of(page))
    again.wait_for_selector(".circuit-view .node")
    assert again.inner_text(".edges tbody") == page.inner_text(".edges tbody")
    page.click("text=back to the walk")
    page.wait_for_selector(".trace-all")


def test_an_atlas_leads_from_its_index_to_a_head_and_back(browser: Any, tmp_path: Path) -> None:
    texts = tuple(line["prompt"] for line in LINES)
    corpus = Corpus("answers", texts, ("answers",) * len(texts))
    folder = tmp_path / "atlas"
    headwise.atlas(small_model(), "L1H1,L2H1", corpus=corpus, cells=2, out=folder).pages(folder)
    # Another page may ask for whatever it likes: it stays in its folder.
    (folder / "L9H9.html").write_text(
        "<p id=mine>mine</p><script>for (const page of ['../secret.html', 'other.html', {}])"
        " parent.postMessage({page}, '*')</script>"
    )
    with served(small_model(), (folder,)) as app:
        app.enter()
        with tabs(browser, app) as tab:
            page = tab("/runs")
            assert page.locator(".run-list tbody td").first.inner_text().strip("\u2068\u2069") == "atlas"
            page.click(".run-list button:has-text('report.html')")
            frame = page.frame_locator(".saved-page")
            frame.locator("#heads a").first.click()
            page.wait_for_url("**page=L1H1.html**")
            frame.locator("h1:has-text('L1H1')").wait_for()
            frame.locator("a:has-text('all heads')").click()
            page.wait_for_url("**page=report.html**")
            frame.locator("#heads a").first.wait_for()
            page.go_back()
            frame.locator("h1:has-text('L1H1')").wait_for()
            other = tab("/runs", run=0, page="L9H9.html")
            other.frame_locator(".saved-page").locator("#mine").wait_for()
            assert place_of(other)["page"] == "L9H9.html"
