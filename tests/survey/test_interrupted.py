"""Runs that are killed, lose a worker, meet a full disk or damaged chunks: nothing is lost, the bytes are the same."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from toy_answers import COUNT, contents, kept, small_model

import headwise
from headwise.errors import HeadwiseError
from headwise.survey import chunks, collect
from headwise.survey.collect import trace_many
from headwise.survey.records import CircuitRun, TablesWriter
from headwise.survey.workers import _kill_workers
from headwise.toy.small_lm import DATA


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_continues_to_the_same_bytes(
    answer_file: Path, whole_run: Path, tmp_path: Path, workers: int
) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "headwise.cli.main", "circuits", str(answer_file), "--model", str(DATA),
               "--workers", str(workers), "--out", str(out)]  # fmt: skip
    source = str(Path(headwise.__file__).parent.parent)
    process = subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": source}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
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


def test_a_worker_that_dies_loses_nothing(answer_file: Path, whole_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"

    def start(_: str, done: int, total: int) -> None:
        # The pool starts its processes after the first report: wait for one, then end it.
        if done == 0:
            threading.Thread(target=_kill_first_child).start()

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


def _kill_first_child() -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in multiprocessing.active_children():
            os.kill(child.pid or 0, signal.SIGKILL)
            return
        time.sleep(0.01)


def test_a_full_disk_keeps_what_was_traced(
    answer_file: Path, whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    real, written = chunks.write_through, []

    def fills(path: Path, content: bytes) -> None:
        written.append(path)
        if len(written) > 4:
            path.write_bytes(content[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "write_through", fills)
        with pytest.raises(
            HeadwiseError, match=r"is full: 32 of 50 prompts are kept; free some space"
        ) as caught:
            trace_many(small_model(), answer_file, out=out)
    assert "\n" not in str(caught.value)
    assert kept(out) == ["00000000"]

    def full(self: TablesWriter, tables: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(TablesWriter, "add", full)
        with pytest.raises(HeadwiseError, match="is full: 50 of 50 prompts are kept"):
            trace_many(small_model(), answer_file, out=out)
    assert kept(out) == ["00000000", "00000032"]
    assert not list(out.glob(".*.part"))
    trace_many(small_model(), answer_file, out=out)
    assert contents(out) == contents(whole_run)


def test_a_small_disk_is_refused_before_anything_is_made(
    answer_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(collect.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(HeadwiseError, match=r"has 1.0 kB free and the run needs about \d"):
        trace_many(small_model(), answer_file, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_damaged_chunks_and_strays_are_made_anew(answer_file: Path, whole_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"

    def stop(_: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trace_many(small_model(), answer_file, out=out, progress=stop)
    assert kept(out) == ["00000000"]
    file = out / "work" / "00000000" / "edges.parquet"
    file.write_bytes(file.read_bytes()[:50])
    (out / "work" / ".00000032.1.part").mkdir()
    (out / ".probe-1").touch()
    (out / ".edges.parquet.part").write_text("x")
    trace_many(small_model(), answer_file, out=out)
    assert contents(out) == contents(whole_run)
