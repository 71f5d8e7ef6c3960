"""The page of an explanation, opened in a real browser: what is drawn, what reacts, and that nothing leaves it."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import prompts_of, tiny

from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.show.notebook import explanation
from headwise.show.why.page import page, write_page
from headwise.why.explain import Explanation, explain
from headwise.why.proof import FeatureTest, Outcome
from headwise.why.what import FeaturePart
from headwise.why.who import FeatureWriter, FeatureWriters

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
CHROMIUM = os.environ.get("HEADWISE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
browsed = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium found: install it, or set HEADWISE_CHROMIUM to a browser"
)
SWITCHES = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
ODD = [
    "<script>alert(1)</script>",
    "\n",
    " 🎉",
    "👩‍👩‍👧",
    " שלום",
    " مرحبا",
    "\u202e",
    "</",
    "&amp;",
    "\t",
    " ",
    "{{data}}",
]


@pytest.fixture(scope="module")
def why() -> Explanation:
    return explain(tiny("llama"), prompts_of(12)[0], draws=5)


@pytest.fixture(scope="module")
def featured(why: Explanation) -> Explanation:
    """The same with two named features, whose names are as untrusted as the prompt."""
    names = ("<b>subject</b>", "position")
    half = why.what.relative / 4
    parts = tuple(FeaturePart(name, 2, half * (1 - 3 * i), half) for i, name in enumerate(names))
    written = tuple(
        FeatureWriters(
            name,
            1.0,
            tuple(FeatureWriter(w.component, w.side, w.position, w.share) for w in why.who.writers),
            0.0,
        )
        for name in names
    )
    tests = tuple(
        FeatureTest(name, kind, 0.2, Outcome(0.2, 0.5, 1.0), (0.1, 0.3, 0.4), 66.0)
        for name in names
        for kind in ("ablation", "swap")
    )
    return replace(
        why,
        what=replace(why.what, features=parts, unexplained=why.what.relative - sum(p.value for p in parts)),
        who=replace(why.who, features=written),
        proof=replace(why.proof, features=tests),
    )


@pytest.fixture(scope="module")
def odd(why: Explanation) -> Explanation:
    answer = replace(why.answer, text=" <img src=x onerror=alert(2)>", wrong_text=" שלום")
    return replace(why, tokens=tuple(ODD), prompt="".join(ODD), answer=answer)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield opened
        opened.close()


Opener = Callable[..., "playwright.Page"]


@pytest.fixture
def show(browser, tmp_path: Path) -> Iterator[Opener]:
    """Open an explanation's page; afterwards it must have asked for nothing, said nothing, and opened no dialog."""
    troubles: list[str] = []
    asked: list[str] = []
    pages = []

    def open_page(why: Explanation, **settings: object):
        file = write_page(why, tmp_path / "why.html")
        shown = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **settings})
        shown.on("console", lambda said: troubles.append(f"{said.type}: {said.text}"))
        shown.on("pageerror", lambda error: troubles.append(str(error)))
        shown.on("dialog", lambda dialog: (troubles.append(f"dialog {dialog.message}"), dialog.dismiss()))
        shown.on("request", lambda request: asked.append(request.url))
        shown.route(re.compile(r"^(?!file:)"), lambda route: route.abort())
        shown.goto(file.as_uri())
        pages.append(shown)
        return shown

    yield open_page
    for shown in pages:
        shown.close()
    assert troubles == []
    assert [url for url in asked if not url.endswith("/why.html") and not url.startswith("data:")] == []


def heat(shown) -> list[str]:
    return shown.eval_on_selector_all(
        "#tokens button", "all => all.map(b => b.style.getPropertyValue('--a'))"
    )


@browsed
def test_clicked_token_becomes_the_row(show: Opener, why: Explanation) -> None:
    shown = show(why)
    before = heat(shown)
    assert len(before) == 12
    row = why.pattern[why.query].sqrt()
    torch.testing.assert_close(torch.tensor([float(a) for a in before]), row, atol=5e-3, rtol=0)
    other = 7 if why.query != 7 else 6
    shown.click(f"#tokens button >> nth={other}")
    assert heat(shown) != before
    assert shown.get_attribute(f"#tokens button >> nth={other}", "aria-pressed") == "true"
    assert shown.locator("#tokens button.unseen").count() == 11 - other
    shown.click("#back")
    assert heat(shown) == before


@browsed
def test_tokens_by_keyboard(show: Opener, why: Explanation) -> None:
    shown = show(why)
    shown.focus(f"#tokens button >> nth={why.query}")
    for key in ("Home", "ArrowRight", "ArrowRight", "Enter"):
        shown.keyboard.press(key)
    assert shown.get_attribute("#tokens button >> nth=2", "aria-pressed") == "true"
    shown.focus("#map")
    shown.keyboard.press("ArrowUp")
    assert "this cell" in shown.inner_text("#cell")


@browsed
def test_figures_are_drawn_and_have_tables(show: Opener, featured: Explanation) -> None:
    shown = show(featured)
    widths = shown.eval_on_selector_all(
        "#channels .fill", "all => all.map(f => f.getBoundingClientRect().width)"
    )
    assert len(widths) == 8 and max(widths) > 50
    assert shown.locator("#features .fill").count() == 3
    assert shown.locator(".featurewriters").count() == 2
    assert shown.locator("#writers .fill").count() == len(featured.who.writers)
    assert shown.locator("#circuit .edge").count() == len(featured.who.writers)
    assert shown.locator("#proofpanels svg").count() == 3
    assert shown.locator("#proofpanels .ring").count() == len(featured.proof.tests)
    # ink on the canvas: not every pixel is the same
    assert shown.evaluate(
        "new Set(document.getElementById('map').getContext('2d').getImageData(0, 0, 600, 600).data).size > 20"
    )
    figures = shown.locator("figure")
    assert figures.count() >= 9
    for i in range(figures.count()):
        assert figures.nth(i).locator("details table tbody tr").count() > 0
    shown.click("#howto summary")
    for words in ("scale · q_d · k_s", "mean of the other visible logits", "Shapley", "percentile = "):
        assert words in shown.inner_text("#howto")
    assert shown.inner_text("#features").count("<b>subject</b>") == 1


@browsed
def test_component_lights_its_bars_and_edges(show: Opener, why: Explanation) -> None:
    shown = show(why)
    writer = why.who.writers[0]
    for point in (
        lambda: shown.hover("#writers .bar >> nth=0"),
        lambda: shown.focus("#writers .bar >> nth=0"),
    ):
        point()
        lit = shown.eval_on_selector_all("#channels .bar.hot", "all => all.map(b => b.dataset.link)")
        assert {f"c{c}" for c in writer.channels} == set(" ".join(lit).split())
        assert shown.locator("#circuit .edge.hot").count() == 1
        shown.mouse.move(2, 2)
    shown.evaluate("document.activeElement.blur()")
    assert shown.locator(".hot").count() == 0
    shown.click("#circuit .pill[data-link] >> nth=0")
    shown.mouse.move(2, 2)
    assert shown.locator("#writers .bar.hot").count() == 1
    shown.keyboard.press("Escape")
    assert shown.locator(".linking").count() == 0


@browsed
def test_dark_and_print(show: Opener, why: Explanation, tmp_path: Path) -> None:
    shown = show(why, color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert shown.evaluate(paper) == "rgb(20, 23, 27)"
    shown.click("#theme")
    assert shown.evaluate(paper) == "rgb(255, 255, 255)"
    shown.click("#theme")
    shown.emulate_media(media="print", color_scheme="dark")
    assert shown.evaluate(paper) == "rgb(255, 255, 255)"
    shown.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert shown.locator("details:not([open])").count() == 0
    shown.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert shown.locator("details[open]").count() == 0
    assert shown.pdf(path=tmp_path / "why.pdf").startswith(b"%PDF")


@browsed
def test_hostile_prompt_is_text(show: Opener, odd: Explanation) -> None:
    shown = show(odd)
    said = shown.eval_on_selector_all("#tokens button", "all => all.map(b => b.textContent)")
    assert said[:6] == ["<script>alert(1)</script>", "⏎", "·🎉", "👩‍👩‍👧", "·שלום", "·مرحبا"]
    assert said[6:] == ["U+202E", "</", "&amp;", "⇥", "·", "{{data}}"]
    assert shown.locator("#tokens br").count() == 1
    assert shown.locator("script").count() == 2
    assert shown.locator("img").count() == 0
    assert "onerror" in shown.inner_text("#sentence")


@browsed
def test_three_hundred_tokens(show: Opener, why: Explanation) -> None:
    pattern = torch.softmax(torch.randn(300, 300).masked_fill(~torch.ones(300, 300).tril().bool(), -9e9), -1)
    question = replace(why.question, cell=why.question.cell._replace(query=299, key=140))
    shown = show(
        replace(why, tokens=tuple(f" word{i}" for i in range(300)), pattern=pattern, question=question)
    )
    assert shown.locator("#tokens button").count() == 300
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = shown.locator("#map").bounding_box()
    assert box is not None and box["width"] > 300
    shown.locator("#map").hover(position={"x": box["width"] / 4, "y": box["height"] / 2})
    assert "attention" in shown.inner_text("#tip")
    assert "word" in shown.inner_text("#cell")


@browsed
def test_narrow_screen_does_not_scroll_sideways(show: Opener, odd: Explanation) -> None:
    shown = show(odd, viewport={"width": 390, "height": 800})
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


@browsed
@pytest.mark.real
def test_real_model(show: Opener, smollm2: Model) -> None:
    why = explain(smollm2, "When John and Mary went to the store, John gave a drink to")
    shown = show(why)
    assert str(why.head) in shown.inner_text("h1")
    assert shown.inner_text("#sentence") == why.sentence
    assert shown.inner_text("#verdict").startswith("Proof holds")


def test_page_is_small_and_closed(why: Explanation, odd: Explanation) -> None:
    text = page(why)
    assert len(text.encode()) < 300_000
    assert not re.search(r"(src|href)\s*=\s*[\"']?(?!data:)\w+:", text)
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "") and "https:" not in text
    assert page(odd).count("<script") == 2
    assert "<script>alert" not in page(odd)
    pattern = torch.rand(300, 300).tril()
    long = replace(why, tokens=tuple("x" * 300), pattern=pattern)
    assert len(page(long).encode()) < 1_500_000


def test_pattern_survives(why: Explanation) -> None:
    found = re.search(r'"bytes":2,"cells":"([^"]+)"', page(why))
    assert found is not None
    import numpy as np

    cells = np.frombuffer(base64.b64decode(found[1]), "<u2") / 65535
    expected = why.pattern.numpy()[np.tril_indices(12)]
    assert abs(cells - expected).max() < 1e-5


def test_lone_surrogate_can_be_written(why: Explanation, tmp_path: Path) -> None:
    broken = replace(why, tokens=("\ud83d", *why.tokens[1:]))
    assert write_page(broken, tmp_path / "a.html").stat().st_size > 1000
    explanation(broken).encode()


def test_unwritable_path_is_one_line(why: Explanation, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "a.html", tmp_path, Path(""), tmp_path / "a\0.html"):
        with pytest.raises(HeadwiseError, match="cannot be written") as error:
            write_page(why, path)
        assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_stopped_writing_leaves_nothing(
    why: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    target = tmp_path / "a.html"
    target.write_text("before")
    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_page(why, target)
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]
    assert target.read_text() == "before"


def test_notebook_repr_needs_no_script(featured: Explanation, odd: Explanation) -> None:
    text = explanation(featured)
    assert text.count("<table") == 3 and "<script" not in text
    assert "&lt;b&gt;subject" in text
    assert "<img" not in explanation(odd)


def test_figure_holds_the_three_parts(featured: Explanation) -> None:
    traces = featured.figure().to_dict()["data"]
    assert len(traces) >= 4
    assert {trace["type"] for trace in traces} == {"bar", "scatter"}


@browsed
def test_nothing_found_is_said(show: Opener, why: Explanation) -> None:
    """No cause on either side: the page says that there is no proof, and draws what there is."""
    who = replace(why.who, writers=(), features=())
    shown = show(replace(why, who=who, proof=replace(why.proof, tests=(), features=())))
    assert shown.inner_text("#verdict").startswith("Proof fails")
    assert "nothing to remove" in shown.inner_text("#proof")
    assert shown.locator("#circuit .pill").count() == 2


@browsed
def test_token_that_reads_itself(show: Opener) -> None:
    why = explain(tiny("gpt2"), prompts_of(9)[0], head="L2H1", query=5, key=5, draws=3)
    shown = show(why)
    assert shown.locator("#tokens button.query.key").count() == 1
    ends = shown.eval_on_selector_all(
        "#circuit .pill:not([data-link])", "all => all.map(p => p.getBoundingClientRect().x)"
    )
    assert abs(ends[0] - ends[1]) > 100
