"""The folder of an atlas: interrupted anywhere, it continues to the same bytes, whoever does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pace import first_is_quick
from run_folders import one_line
from toy_answers import answer_lines, contents, kept, small_model

import headwise
from headwise.corpus import Corpus
from headwise.portraits import peaks, study
from headwise.portraits.result import Atlas

TEXTS = tuple(line["prompt"] for line in answer_lines(10))
ASKED: dict[str, Any] = {"corpus": Corpus("answers", TEXTS, ("answers",) * len(TEXTS)), "cells": 3}
STAGES = ("attention", "accounts", "writers and channels")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "MAX_TOKENS", 40)
    monkeypatch.setattr(study, "BATCH", 3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peaks, "MAX_TOKENS", 40)
        patch.setattr(study, "BATCH", 3)
        headwise.atlas(small_model(), "L1H1,L2H1", out=out, **ASKED)
    return contents(out)


@pytest.mark.parametrize("stage", first_is_quick(*STAGES))
def test_an_interrupted_run_continues_to_the_same_bytes(
    stage: str, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def interrupt(name: str, done: int, total: int) -> None:
        if name == stage and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        headwise.atlas(small_model(), "L1H1,L2H1", out=out, progress=interrupt, **ASKED)
    assert kept(out)
    told: list[tuple[str, int]] = []
    found = headwise.atlas(
        small_model(), "L1H1,L2H1", out=out, progress=lambda name, done, _: told.append((name, done)), **ASKED
    )
    assert contents(out) == whole
    assert [done for name, done in told if name == stage][1] > 0
    assert {name for name, _ in told} == set(STAGES)
    assert Atlas.load(out).to_json() == {**found.to_json(), "seconds": 0.0}
    line = one_line(lambda: headwise.atlas(small_model(), "L1H1", out=out, **ASKED))
    assert "holds another run (atlas with other heads" in line


@pytest.mark.slow
def test_two_workers_find_the_same(whole: dict[str, bytes], tmp_path: Path) -> None:
    headwise.atlas(small_model(), "L1H1,L2H1", out=tmp_path / "run", workers=2, **ASKED)
    assert contents(tmp_path / "run") == whole
