"""Take the pictures of pages in docs/assets anew, from real runs: ``python tools/shoot_docs.py``.

It explains and traces with the default model, opens the pages in a browser (Chromium on the PATH, or named in
HEADWISE_CHROMIUM) and keeps the parts that docs/gallery.md and README.md show.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headwise
from headwise.show.circuits.page import circuit_page

ASSETS = Path(__file__).parent.parent / "docs" / "assets"
DEMO = "Mr. Dursley was thin. Mrs. Potter was kind. Mr. Durs"
"""As in the Makefile."""
PROMPT = "When John and Mary went to the store, John gave a drink to"
WIDE, HIGH = 1280, 1100


def pages() -> dict[str, str]:
    """The pages that pictures are taken of."""
    model = headwise.load()
    answer, wrong = " Mary", " John"
    return {
        "demo": headwise.explain(model, DEMO).to_html(),
        "explain": headwise.explain(model, PROMPT, answer=answer, wrong=wrong).to_html(),
        "circuit": circuit_page(headwise.trace(model, PROMPT, answer=answer, wrong=wrong)),
    }


def shoot(browser: Any, made: dict[str, str], folder: Path) -> None:
    """The top of every page, and of an explanation its table, its proof and the circuit around it."""
    for name, markup in made.items():
        file = folder / f"{name}.html"
        file.write_text(markup, encoding="utf-8")
        page = browser.new_page(viewport={"width": WIDE, "height": HIGH}, color_scheme="light")
        page.goto(file.as_uri())
        page.screenshot(path=ASSETS / f"{name}.png")
        if name == "explain":
            for part, section in (("table", ".table"), ("proof", ".proof"), ("circuit", ".around")):
                page.locator(f"section{section}").screenshot(path=ASSETS / f"explain-{part}.png")
        page.close()


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("HEADWISE_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium found: install it, or set HEADWISE_CHROMIUM to a browser")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        shoot(opened, pages(), Path(folder))
        opened.close()
