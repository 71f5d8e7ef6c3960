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
"""Opens a page, from its text or its file; settings are those of a browser's page, such as ``viewport``."""


@contextmanager
def running() -> Iterator[Any]:
    """A browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield opened
        opened.close()


def opened(browser: Any, file: Path, tried: list[str], **settings: Any) -> Any:
    """A page in the browser, and in ``tried`` all that a page must not do: say, ask for, or open something."""
    shown = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **settings})
    shown.on("console", lambda said: tried.append(f"{said.type}: {said.text}"))
    shown.on("pageerror", lambda error: tried.append(str(error)))
    shown.on("dialog", lambda dialog: (tried.append(f"dialog {dialog.message}"), dialog.dismiss()))
    # What a page makes itself (data, blob) comes from nowhere else.
    allowed = (file.as_uri(), "data:", "blob:")
    shown.on("request", lambda asks: None if asks.url.startswith(allowed) else tried.append(asks.url))
    shown.route(re.compile(r"^(?!file:)"), lambda route: route.abort())
    shown.goto(file.as_uri())
    return shown


@contextmanager
def watched(browser: Any, folder: Path) -> Iterator[Opener]:
    """Opens pages, from their text or their file; in the end none of them may have tried anything."""
    tried: list[str] = []
    pages: list[Any] = []

    def opener(page: str | Path, **settings: Any) -> Any:
        pages.append(opened(browser, _file(page, folder, len(pages)), tried, **settings))
        return pages[-1]

    yield opener
    for shown in pages:
        shown.close()
    assert tried == []


def _file(page: str | Path, folder: Path, number: int) -> Path:
    if isinstance(page, Path):
        return page
    file = folder / f"page{number}.html"
    file.write_text(page, encoding="utf-8", errors="replace")
    return file


def fits(shown: Any) -> bool:
    """Nothing makes the page scroll sideways."""
    return shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
