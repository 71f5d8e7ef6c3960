"""A browser for every module that opens pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Opener, running, watched


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
