"""Runs that are killed, lose a worker, meet a full disk or damaged chunks: nothing is lost, the bytes are the same."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forked import Forked
from pace import first_is_quick
from processes import alive, children_of, kill_first_child
from run_folders import flips, one_line
from toy_answers import COUNT, contents, kept, small_model

from headwise.errors import HeadwiseError
from headwise.scale import disk, folder, tables, work
from headwise.scale.engines import _kill_workers
from headwise.scale.folder import WORK
from headwise.survey import collect
from headwise.survey.collect import trace_many
from headwise.survey.records import CircuitRun
from headwise.toy.small_lm import DATA

pytestmark = pytest.mark.slow

CHUNKS = ["000-000000000.chunk", "000-000000032.chunk"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_continues_to_the_same_bytes(
    answer_file: Path, whole_run: Path, tmp_path: Path, workers: int
) -> None:
    out = tmp_path / "run"
    asked = ["circuits", str(answer_file), "--model", str(DATA), "--workers", str(workers), "--out", str(out)]
    process = Forked(asked)
    deadline = time.monotonic() + 300
    while not kept(out) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    below = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    _, told = process.communicate()
    assert process.returncode == -signal.SIGKILL, told.decode()
    assert kept(out)
    assert not (out / "prompts.parquet").exists()
    with pytest.raises(HeadwiseError, match="not finished"):
        CircuitRun.load(out)
    # Workers do not outlive the process that started them.
    while any(map(alive, below)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, below))
    reports: list[tuple[int, int]] = []
    trace_many(
        small_model(), answer_file, out=out, progress=lambda _, done, total: reports.append((done, total))
    )
    assert reports[0][0] > 0
    assert reports[-1] == (COUNT, COUNT)
    assert contents(out) == contents(whole_run)


@pytest.mark.slow
def test_a_worker_that_dies_loses_nothing(answer_file: Path, whole_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"

    def start(_: str, done: int, total: int) -> None:
        # The pool starts its processes after the first report: wait for one, then end it.
        if done == 0:
            threading.Thread(target=kill_first_child).start()

    with pytest.raises(HeadwiseError, match=r"a worker process died .* run the same command again"):
        trace_many(small_model(), answer_file, out=out, workers=2, progress=start)
    assert not (out / "prompts.parquet").exists()
    trace_many(small_model(), answer_file, out=out)
    assert contents(out) == contents(whole_run)


def test_workers_of_a_broken_pool_are_ended() -> None:
    """One that starts while the pool breaks would be waited for without end."""
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    pending = pool.submit(time.sleep, 600)
    _kill_workers(pool)
    with pytest.raises(BrokenProcessPool):
        pending.result(timeout=60)
    pool.shutdown()


def test_a_full_disk_keeps_what_was_traced(
    answer_file: Path, whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    real, written = work.replacing, []

    def fills(place: Path) -> Any:
        written.append(place)
        if len(written) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(place)

    with monkeypatch.context() as patch:
        patch.setattr(work, "replacing", fills)
        with pytest.raises(
            HeadwiseError, match=r"is full: 32 of 50 prompts are kept; free some space"
        ) as caught:
            trace_many(small_model(), answer_file, out=out)
    assert "\n" not in str(caught.value)
    assert kept(out) == [CHUNKS[0]]

    @contextmanager
    def full(place: Path) -> Iterator[Path]:
        with real(place) as part:
            yield part
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(tables, "replacing", full)
        with pytest.raises(HeadwiseError, match="is full: 50 of 50 prompts are kept"):
            trace_many(small_model(), answer_file, out=out)
    assert kept(out) == CHUNKS
    assert not list(out.glob(".*.part"))
    assert "not finished" in one_line(lambda: CircuitRun.load(out))
    trace_many(small_model(), answer_file, out=out)
    assert contents(out) == contents(whole_run)


def test_a_small_disk_is_refused_before_anything_is_made(
    answer_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(HeadwiseError, match=r"has 1.0 kB free and the run needs about \d"):
        trace_many(small_model(), answer_file, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def stopped(answer_file: Path, out: Path) -> Path:
    """Interrupt a run after its first chunk, which is kept."""

    def stop(_: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trace_many(small_model(), answer_file, out=out, progress=stop)
    assert kept(out) == CHUNKS[:1]
    return out / WORK / CHUNKS[0]


@pytest.mark.parametrize("damage", first_is_quick("flip", "empty", "half", "folder", "other place"))
def test_damaged_chunks_and_strays_are_made_anew(
    answer_file: Path, whole_run: Path, tmp_path: Path, damage: str
) -> None:
    out = tmp_path / "run"
    chunk = stopped(answer_file, out)
    content = chunk.read_bytes()
    if damage == "folder":
        chunk.unlink()
        chunk.mkdir()
    elif damage == "other place":
        chunk.rename(chunk.with_name(CHUNKS[1]))
    else:
        bad = {"empty": b"", "half": content[:50], "flip": next(flips(content, 1, "chunk"))}
        chunk.write_bytes(bad[damage])
    (out / WORK / ".headwise-1-abc.part").write_text("x")
    (out / ".headwise-1-abc.part").write_text("x")
    trace_many(small_model(), answer_file, out=out)
    assert contents(out) == contents(whole_run)


def test_what_is_in_the_folder_already_is_never_touched(
    answer_file: Path, whole_run: Path, tmp_path: Path
) -> None:
    thesis = tmp_path / "mine" / "work" / "thesis.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("mine")
    told = one_line(lambda: trace_many(small_model(), answer_file, out=tmp_path / "mine"))
    assert "holds other files ('work')" in told
    assert contents(tmp_path / "mine") == {"work/thesis.tex": b"mine"}
    # In a run that was begun, what the user puts there stays, also beside the chunks.
    out = tmp_path / "run"
    stopped(answer_file, out)
    mine = {out / "notes.txt", out / ".edges.parquet.part", out / WORK / "notes.txt", out / "work" / "a.txt"}
    for one in mine:
        one.parent.mkdir(exist_ok=True)
        one.write_text("mine")
    trace_many(small_model(), answer_file, out=out)
    assert contents(out) == contents(whole_run) | {str(one.relative_to(out)): b"mine" for one in mine}


def test_a_link_in_the_folder_is_not_written_through(
    answer_file: Path, whole_run: Path, tmp_path: Path
) -> None:
    out, victim = tmp_path / "run", tmp_path / "victim"
    chunk = stopped(answer_file, out)
    victim.write_text("mine")
    chunk.unlink()
    for place in (chunk, out / "edges.parquet"):
        place.symlink_to(victim)
    trace_many(small_model(), answer_file, out=out)
    assert victim.read_text() == "mine"
    assert contents(out) == contents(whole_run)


@pytest.mark.slow
def test_other_versions_make_their_work_anew(
    answer_file: Path, whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(folder, "package_versions", lambda: {"headwise": "0"})
        stopped(answer_file, out)
    seen: list[int] = []
    trace_many(small_model(), answer_file, out=out, progress=lambda _, done, total: seen.append(done))
    assert seen[0] == 0
    assert contents(out) == contents(whole_run)


@pytest.mark.slow
def test_a_limit_on_file_sizes_is_one_line(answer_file: Path, whole_run: Path, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        told = one_line(lambda: trace_many(small_model(), answer_file, out=tmp_path / "run"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "cannot be written (File too large): 0 of 50 prompts are kept" in told
    trace_many(small_model(), answer_file, out=tmp_path / "run")
    assert contents(tmp_path / "run") == contents(whole_run)


def test_a_refused_run_leaves_nothing_behind(
    answer_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise HeadwiseError("no")

    monkeypatch.setattr(collect, "map_chunks", refuses)
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "a" / "b" / "run", tmp_path / "empty"):
        assert one_line(lambda out=out: trace_many(small_model(), answer_file, out=out)) == "no"
    assert [p.name for p in tmp_path.rglob("*")] == ["empty"]
