"""A study of features that is interrupted, killed or out of room: the same bytes in the end, or one line."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from box_runs import go, lines, stopped
from forked import Forked
from processes import alive, children_of
from run_folders import one_line
from toy_answers import contents, write_lines

import headwise
from headwise.contrast import study as study_module
from headwise.contrast.result import FILES, FeaturesResult
from headwise.contrast.study import find_features
from headwise.errors import HeadwiseError
from headwise.scale import disk, folder, work
from headwise.scale.folder import WORK
from headwise.toy.small_lm import DATA

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_shards")]


@pytest.mark.parametrize("stage", ["finding heads", "fitting box", "testing swaps"])
def test_an_interrupted_run_ends_with_the_same_bytes_in_every_file(
    file: Path, tmp_path: Path, whole: dict[str, bytes], stage: str
) -> None:
    out = tmp_path / "run"
    assert stopped(file, out, stage, 9)
    go(file, out)
    assert contents(out) == whole
    assert set(whole) == {*FILES, "manifest.json"}


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_run_continues_to_the_same_bytes(file: Path, tmp_path: Path, workers: str) -> None:
    out, undisturbed = tmp_path / "run", tmp_path / "whole"
    # Whatever the clock does: as soon as two shards are there, the process is gone.
    small = "import headwise.contrast.study as s; s.SHARD = 8; from headwise.cli.main import run; run()"
    asked = ["features", str(file), "--model", str(DATA), "--heads", "L1H2", "--out", str(out)]
    asked += ["--workers", workers]
    process = Forked(asked, code=small)
    deadline = time.monotonic() + 300
    while (
        len(list((out / WORK).glob(work.CHUNKS))) < 2
        and process.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.001)
    below = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate()
    assert process.returncode == -signal.SIGKILL, told.decode()
    assert "not finished" in one_line(lambda: FeaturesResult.load(out))
    while any(map(alive, below)) and time.monotonic() < deadline:  # or they would write there still
        time.sleep(0.05)
    model = headwise.load(DATA, check=False)
    for place in (out, undisturbed):
        find_features(model, file, heads="L1H2", out=place)
    assert contents(out) == contents(undisturbed)


def test_changed_prompts_are_another_run(file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    mine = tmp_path / "boxes.jsonl"
    turned = [{**x, "positive": x["negative"], "negative": x["positive"]} for x in lines()]
    for finished in (True, False):
        write_lines(mine, lines())
        out = tmp_path / f"run-{finished}"
        if finished:
            go(mine, out)
        else:
            stopped(mine, out, "fitting box", 16)
        before = contents(out)
        write_lines(mine, turned)
        assert "holds another run (features with other examples)" in one_line(lambda out=out: go(mine, out))
        assert contents(out) == before
    write_lines(mine, lines())
    go(mine, out)
    assert contents(out) == whole


def test_only_one_process_works_in_a_folder(file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    out, told = tmp_path / "run", []

    def meanwhile(stage: str, done: int, total: int) -> None:
        if stage == "fitting box" and not told:
            told.append(one_line(lambda: go(file, out)))

    go(file, out, progress=meanwhile)
    assert "is being written by another process" in told[0]
    assert contents(out) == whole


def test_what_is_in_the_folder_already_is_never_touched(
    file: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    thesis = tmp_path / "mine" / "work" / "thesis.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("mine")
    told = one_line(lambda: go(file, tmp_path / "mine"))
    assert "holds other files ('work')" in told
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == [
        "mine",
        "mine/work",
        "mine/work/thesis.tex",
    ]
    # In a run that was begun, what the user puts there stays, also beside the chunks.
    out = tmp_path / "run"
    stopped(file, out, "fitting box", 16)
    kept = {
        out / "notes.txt",
        out / ".edges.parquet.part",
        out / WORK / "notes.txt",
        out / "work" / "notes.txt",
    }
    for one in kept:
        one.parent.mkdir(exist_ok=True)
        one.write_text("mine")
    go(file, out)
    assert all(one.read_text() == "mine" for one in kept)
    assert contents(out) == whole | {str(one.relative_to(out)): b"mine" for one in kept}


def test_a_link_in_the_folder_is_not_written_through(
    file: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    out, victim = tmp_path / "run", tmp_path / "victim"
    first, *_ = stopped(file, out, "fitting box", 16)
    victim.write_text("mine")
    first.unlink()
    for place in (first, out / "features.json"):
        place.symlink_to(victim)
    go(file, out)
    assert victim.read_text() == "mine"
    assert contents(out) == whole


@pytest.mark.parametrize("name", ["food/drink", "f" * 300, "x/../../../victim", "a|b"])
def test_features_may_have_any_name(tmp_path: Path, name: str) -> None:
    mine = write_lines(tmp_path / "named.jsonl", lines(("box", name)))
    (tmp_path / "sub").mkdir()
    found = go(mine, tmp_path / "sub" / "run")
    assert {f.name for f in found.features} == {"box", name, "all features"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["named.jsonl", "sub"]


def test_other_versions_make_their_work_anew(
    file: Path, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(folder, "package_versions", lambda: {"headwise": "0"})
        stopped(file, out, "testing swaps", 1)
    seen: list[tuple[str, int]] = []
    go(file, out, progress=lambda stage, done, total: seen.append((stage, done)))
    assert ("finding heads", 8) in seen
    assert contents(out) == whole


def test_a_full_disk_keeps_what_was_done(
    file: Path, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, written = tmp_path / "new" / "run", []
    real = work.replacing

    def fills(place: Path) -> Any:
        written.append(place)
        if len(written) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(place)

    with monkeypatch.context() as patch:
        patch.setattr(work, "replacing", fills)
        assert "is full: 3 finished parts of the work are kept; free some space" in one_line(
            lambda: go(file, out)
        )
    assert len(list((out / WORK).glob(work.CHUNKS))) == 3
    # The same while the last files are written.
    with monkeypatch.context() as patch:
        patch.setattr(folder.sealed, "to_bytes", _full)
        assert "is full" in one_line(lambda: go(file, out))
    assert "not finished" in one_line(lambda: FeaturesResult.load(out))
    go(file, out)
    assert contents(out) == whole


def _full(*_: Any) -> bytes:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_limit_on_file_sizes_is_one_line(file: Path, tmp_path: Path, whole: dict[str, bytes]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        told = one_line(lambda: go(file, tmp_path / "run"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be written (File too large)" in told
    go(file, tmp_path / "run")
    assert contents(tmp_path / "run") == whole


def test_a_small_disk_is_refused_before_anything_is_made(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: usage)
    assert "has 1.0 kB free and the run needs about" in one_line(lambda: go(file, tmp_path / "new" / "run"))
    assert not list(tmp_path.iterdir())


def test_a_refused_run_leaves_nothing_behind(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise HeadwiseError("no")

    monkeypatch.setattr(study_module, "fit_contrast", refuses)
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "a" / "b" / "run", tmp_path / "empty"):
        assert one_line(lambda out=out: go(file, out)) == "no"
    assert [p.name for p in tmp_path.rglob("*")] == ["empty"]


def test_the_document_holds_no_time(whole: dict[str, bytes]) -> None:
    assert "seconds" not in json.loads(whole["features.json"])
