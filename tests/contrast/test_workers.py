"""A study of features shared among processes: the same bytes, also after one of them dies."""

from __future__ import annotations

import threading
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch
from box_runs import go
from processes import kill_first_child
from run_folders import one_line
from toy_answers import contents, kept, small_model
from words import worded_model

import headwise
from headwise.contrast.study import find_features, scan_heads
from headwise.tasks.labelled.make import make_task

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_shards")]
SMALL: dict[str, Any] = {"prompts": 40, "test": 12, "scan": 20}


def test_two_workers_find_the_same(tmp_path: Path) -> None:
    model = worded_model()
    model.hf.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    loaded, threads = headwise.load(tmp_path / "model", check=False), torch.get_num_threads()
    asked: dict[str, Any] = {"heads": "L1H2,L2H0", "through_model": 20, **SMALL, "test": 20}
    started: set[int | None] = set()

    def look(stage: str, done: int, total: int) -> None:
        started.update(child.pid for child in active_children())

    find_features(loaded, "binding", out=tmp_path / "one", **asked)
    find_features(loaded, "binding", out=tmp_path / "two", workers=2, progress=look, **asked)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert len(started) == 2, "the same processes make every stage"
    assert not active_children()
    task = make_task("binding", loaded.tokenizer, **SMALL)
    assert scan_heads(loaded, task) == scan_heads(loaded, task, workers=2)
    assert torch.get_num_threads() == threads


def test_a_worker_that_dies_loses_nothing(file: Path, tmp_path: Path) -> None:
    model, out = small_model(), tmp_path / "run"

    def start(stage: str, done: int, total: int) -> None:
        if stage == "fitting box" and done == 0:
            threading.Thread(target=kill_first_child).start()

    asked: dict[str, Any] = {"heads": "L1H2"}
    told = one_line(lambda: find_features(model, file, out=out, workers=2, progress=start, **asked))
    assert "a worker process died" in told and "run the same command again" in told
    assert kept(out)
    for place in (out, tmp_path / "whole"):
        find_features(model, file, out=place, **asked)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_model_that_other_processes_cannot_load_is_one_line(file: Path, tmp_path: Path) -> None:
    told = one_line(lambda: go(file, tmp_path / "run", workers=2))
    assert "was not loaded by headwise.load" in told and "use workers=1" in told
    assert not (tmp_path / "run").exists()
