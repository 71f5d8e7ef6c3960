"""Pages in a real browser, which must ask for nothing, say nothing and open no dialog."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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

Opener = Callable[..., Any]
"""Opens the text of a page; settings are those of a browser's page, such as ``viewport``."""


@contextmanager
def running() -> Iterator[Any]:
    """A browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield opened
        opened.close()


@contextmanager
def watched(browser: Any, folder: Path) -> Iterator[Opener]:
    """Opens pages from a file; in the end none of them may have tried anything."""
    troubles: list[str] = []
    asked: list[str] = []
    pages: list[Any] = []

    def opener(markup: str, **settings: Any) -> Any:
        file = folder / f"page{len(pages)}.html"
        file.write_text(markup, encoding="utf-8", errors="replace")
        shown = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **settings})
        shown.on("console", lambda said: troubles.append(f"{said.type}: {said.text}"))
        shown.on("pageerror", lambda error: troubles.append(str(error)))
        shown.on("dialog", lambda dialog: (troubles.append(f"dialog {dialog.message}"), dialog.dismiss()))
        shown.on("request", lambda request: asked.append(request.url))
        shown.route(re.compile(r"^(?!file:)"), lambda route: route.abort())
        shown.goto(file.as_uri())
        pages.append(shown)
        return shown

    yield opener
    for shown in pages:
        shown.close()
    assert troubles == []
    assert [url for url in asked if not re.search(r"/page\d+\.html$|^data:", url)] == []


def fits(shown: Any) -> bool:
    """Nothing makes the page scroll sideways."""
    return shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
