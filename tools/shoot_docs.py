"""Take the pictures of pages in docs/assets anew, from real runs: ``python tools/shoot_docs.py``.

It explains and traces with the default model, opens the pages in a browser (Chromium on the PATH, or named in
HEADWISE_CHROMIUM) and keeps the parts that docs/gallery.md and README.md show; with ``--app`` only those of the app,
with ``--atlas DIR`` only those of an atlas that ``headwise head --all --out DIR`` made.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headwise
from headwise.show.circuits.page import circuit_page

ASSETS = Path(__file__).parent.parent / "docs" / "assets"
DEMO = "Mr. Dursley was thin. Mrs. Potter was kind. Mr. Durs"
"""As in the Makefile."""
PROMPT = "When John and Mary went to the store, John gave a drink to"
PORTRAYED = "L18H6"
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


def shoot_atlas(browser: Any, folder: Path) -> None:
    """The index of an atlas, and the page of one head, in light and dark."""
    for name, file in (("atlas", "report.html"), ("portrait", f"{PORTRAYED}.html")):
        for scheme, end in (("light", ""), ("dark", "-dark")):
            page = browser.new_page(viewport={"width": WIDE, "height": HIGH}, color_scheme=scheme)
            page.goto((folder / file).resolve().as_uri())
            page.screenshot(path=ASSETS / f"{name}{end}.png")
            page.close()


def shoot_app(browser: Any) -> None:
    """The app with the indirect-object prompt: every head, a cell with a number that explains itself and with what the
    bench takes away, and the circuit that feeds it."""
    from headwise.app.server import listening, prepared
    from headwise.app.session import Session

    bound = listening(0)
    server, link = prepared(Session(headwise.load()), bound, {"p": PROMPT})
    serving = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    serving.start()
    page = browser.new_page(viewport={"width": WIDE, "height": HIGH}, color_scheme="light")
    page.set_default_timeout(120_000)
    page.goto(link)
    page.wait_for_selector(".pictures canvas")
    page.locator("select").first.select_option("brings")
    page.wait_for_timeout(500)
    page.screenshot(path=ASSETS / "app-heads.png")
    page.click(".app-bar nav >> text=Cell")
    page.wait_for_selector(".sentence:not(.soft)")
    page.locator("dl.facts [data-num='log-odds']").hover()
    page.screenshot(path=ASSETS / "app-cell.png")
    page.locator("tr.cause input.tick").first.click()
    page.wait_for_selector(".effect")
    page.locator("section.table").scroll_into_view_if_needed()
    page.screenshot(path=ASSETS / "app-bench.png")
    page.click("text=put everything back")
    page.click("text=who fed this?")
    page.wait_for_selector(".node-panel .sentence")
    page.mouse.move(5, HIGH - 5)
    page.screenshot(path=ASSETS / "app-circuit.png")
    page.close()
    server.should_exit = True
    serving.join()


if __name__ == "__main__":
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("HEADWISE_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium found: install it, or set HEADWISE_CHROMIUM to a browser")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        if "--atlas" in sys.argv[1:]:
            shoot_atlas(opened, Path(sys.argv[-1]))
            sys.exit()
        shoot_app(opened)
        if "--app" not in sys.argv[1:]:
            shoot(opened, pages(), Path(folder))
        opened.close()
