"""How an explanation's page looks: whatever the text, the width, the theme and the length, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import Opener, browsed, fits
from explanation_documents import VISIBLE, Document, document, features, page_of
from odd_tokens import IMAGE, ODD, ODD_SHOWN

pytestmark = browsed


def test_hostile_text_is_text(show: Opener) -> None:
    data = document([*ODD, IMAGE, " to"])
    data["answer"] |= {"text": " <img src=x onerror=alert(2)>", "wrong": " שלום", "predicted": "</script>"}
    data["sentence"] = f"It reads {ODD[0]!r} before <img src=x onerror=alert(4)>."
    data["quoted"] = [repr(ODD[0])]
    data["notices"] = [ODD[0]]
    data["consequence"]["raised"] = [{"token": IMAGE, "logit": 1.0}]
    data["transfer"] = {"prompt": IMAGE, "query": 1, "key": 0, "before": 0.5, "after": 0.1}
    markup = page_of(data)
    assert markup.count("<script") == 2 and "<script>alert" not in markup
    page = show(markup)
    said = page.locator(".tokens button").all_text_contents()
    assert said == [*ODD_SHOWN, IMAGE, "·to"]
    assert page.locator(".tokens br").count() == 1
    assert page.locator("script").count() == 2
    assert page.locator("img, iframe, object, embed, [onerror], [onload]").count() == 0
    assert "<img src=x onerror=alert(4)>" in page.inner_text(".sentence")


@pytest.mark.parametrize("width", [360, 768, 1280, 1600])
def test_no_width_scrolls_sideways(show: Opener, width: int) -> None:
    data = document([f" {'word' * (i % 4)}{i}" for i in range(14)])
    page = show(page_of({**data, "features": features()}), viewport={"width": width, "height": 800})
    page.locator(f"{VISIBLE} .unfold-button").first.click()
    for one in page.locator("details").all():
        one.evaluate("(d) => { d.open = true; }")
    assert fits(page)
    table = page.locator(f"{VISIBLE} .grid-box")
    assert table.evaluate("(b) => b.scrollWidth <= b.clientWidth + 1")


def test_dark_and_print(show: Opener, data: Document, tmp_path: Path) -> None:
    page = show(page_of(data), color_scheme="dark")
    paper = "getComputedStyle(document.querySelector('.headwise')).backgroundColor"
    assert page.evaluate(paper) == "rgb(20, 23, 27)"
    page.click(".theme")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.click(".theme")
    assert page.evaluate(paper) == "rgb(20, 23, 27)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.locator(".side-table:visible").count() == 2
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    assert page.pdf(path=tmp_path / "why.pdf").startswith(b"%PDF")


def test_text_can_be_read_in_both_themes(show: Opener, data: Document) -> None:
    """Ink, quiet text, sides and verdicts against the paper and the cards: at least 4.5 to 1."""
    measure = """() => {
      const box = document.querySelector('.headwise'), probe = document.createElement('i');
      box.append(probe);
      const colour = (name) => {
        probe.style.color = `var(--${name})`;
        return getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((v) => {
          const s = v / 255;
          return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
        });
      };
      const light = (name) => { const [r, g, b] = colour(name); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const against = (a, b) => {
        const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
        return (x + 0.05) / (y + 0.05);
      };
      const inks = ['ink', 'soft', 'query', 'key', 'account', 'accent', 'good', 'bad'];
      const found = inks.flatMap((ink) => ['bg', 'card'].map((paper) => [`${ink} on ${paper}`, against(ink, paper)]));
      probe.remove();
      return found;
    }"""
    for scheme in ("light", "dark"):
        page = show(page_of(data), color_scheme=scheme)
        low = [(name, ratio) for name, ratio in page.evaluate(measure) if ratio < 4.5]
        assert low == []


def test_three_hundred_tokens(show: Opener) -> None:
    page = show(page_of(document([f" word{i}" for i in range(300)], query=299, key=140)))
    assert page.locator(".tokens button").count() == 300
    assert fits(page)
    canvas = page.locator("canvas")
    box = canvas.bounding_box()
    assert box is not None and box["width"] > 300
    canvas.hover(position={"x": box["width"] / 4, "y": box["height"] / 2})
    assert "attention" in page.inner_text(".tip")
    assert page.evaluate(
        "new Set(document.querySelector('canvas').getContext('2d').getImageData(0, 0, 600, 600).data).size > 20"
    )


def test_a_page_of_64_tokens_is_small() -> None:
    data = document([f" word{i}" for i in range(64)], query=63, key=20, writers=40)
    assert len(page_of({**data, "features": features()}).encode()) < 300_000
