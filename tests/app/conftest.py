"""One app for all tests of a file, with a small trained model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from serving import Served, served
from toy_answers import small_model


@pytest.fixture(scope="module")
def app() -> Iterator[Served]:
    with served(small_model()) as opened:
        opened.enter()
        yield opened
