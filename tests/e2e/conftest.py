"""A browser for every module that opens pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Opener, running, watched
from browsing_app import Tab, tabs
from explanation_documents import Document, document
from serving import Served, served
from toy_answers import small_model


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """For one module: while a browser runs, so does its event loop, which other tests must not meet."""
    with running() as started:
        yield started


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Opener]:
    """Opens pages, of which none may have tried anything by the end of the test."""
    with watched(browser, tmp_path) as opener:
        yield opener


@pytest.fixture(scope="module")
def app() -> Iterator[Served]:
    """One app for all tests of a file, with a small trained model."""
    with served(small_model()) as opened:
        opened.enter()
        yield opened


@pytest.fixture
def tab(browser: Any, app: Served) -> Iterator[Tab]:
    """A tab of it, which may have asked nobody else by the end of the test."""
    with tabs(browser, app) as opened:
        yield opened


@pytest.fixture
def data() -> Document:
    """The document of an explanation, for pages that draw it."""
    return document()
