"""Fixtures of the tests of a study's folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from box_runs import go, lines
from toy_answers import contents, write_lines

from headwise.contrast import study as study_module


@pytest.fixture(scope="module")
def small_shards() -> Iterator[None]:
    """Few prompts in each, so that there is much to interrupt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_module, "SHARD", 8)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("lines") / "boxes.jsonl", lines())


@pytest.fixture(scope="module")
def whole(file: Path, tmp_path_factory: pytest.TempPathFactory, small_shards: None) -> dict[str, bytes]:
    """The files of a run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    go(file, out)
    return contents(out)
