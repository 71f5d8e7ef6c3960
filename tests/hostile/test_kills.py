"""Runs that are killed at any moment, whose disk is full in the middle, and whose files lose single bits.

Each must end, when the same command is given again, with the bytes of a run that nobody disturbed.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import Forked
from run_folders import flips, holding, one_line
from toy_answers import contents, kept, write_lines

import headwise
from headwise.scale.folder import WORK
from headwise.survey.reading import FILES
from headwise.survey.records import CircuitRun
from headwise.toy.small_lm import DATA

pytestmark = pytest.mark.hostile
KILLS = int(os.environ.get("HEADWISE_KILLS", "4"))
"""How often each kind of run is killed."""
WORDS = ("jam", "pen", "key", "map", "cup", "hat", "tea", "egg")
# Small chunks, so that there is much to interrupt.
SMALL = (
    "import headwise.contrast.study as s, headwise.survey.collect as c; s.SHARD = 8; c.CHUNK = 4; "
    "from headwise.cli.main import run; run()"
)


def labelled(path: Path) -> Path:
    return write_lines(
        path,
        [
            {
                "prompt": f"The [[right:{a}]] is in Box A . The [[wrong:{b}]] is in Box B . The {a} is in Box",
                "positive": ["right"],
                "negative": ["wrong"],
                "groups": {"entity": a},
                "feature": "box",
            }
            for a in WORDS
            for b in WORDS
            if a != b
        ],
    )


class Command:
    """One command with a run folder, in a process of its own."""

    def __init__(self, folder: Path, answers: Path, kind: str) -> None:
        self.verb = {
            "circuits": ["circuits", str(answers), "--workers", "1"],
            "circuits, two workers": ["circuits", str(answers), "--workers", "2"],
            "features": ["features", str(labelled(folder / "boxes.jsonl")), "--heads", "L1H2"],
        }[kind]

    def start(self, out: Path, code: str = SMALL) -> Forked:
        source = str(Path(headwise.__file__).parent.parent)
        return Forked(
            [*self.verb, "--model", str(DATA), "--out", str(out)],
            code=code,
            environment=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        )

    def finish(self, out: Path) -> dict[str, bytes]:
        process = self.start(out)
        told = process.communicate(timeout=300)[1].decode()
        assert process.returncode == 0, told
        # The report is a picture of the run, and not part of it.
        return {name: content for name, content in contents(out).items() if name != "report.html"}


@pytest.fixture(scope="module", params=["circuits", "circuits, two workers", "features"])
def command(
    request: pytest.FixtureRequest, answer_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Command:
    return Command(tmp_path_factory.mktemp("command"), answer_file, request.param)


@pytest.fixture(scope="module")
def whole(command: Command, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], float]:
    """The files of a run that nobody disturbed, and how long it works after its folder is there."""
    out = tmp_path_factory.mktemp("whole") / "run"
    process = command.start(out)
    while not out.exists() and process.poll() is None:
        time.sleep(0.01)
    began = time.monotonic()
    assert process.wait(300) == 0, process.communicate()[1].decode()
    seconds = time.monotonic() - began
    return command.finish(out), seconds


def test_killed_at_random_moments(
    command: Command, whole: tuple[dict[str, bytes], float], tmp_path: Path
) -> None:
    expected, seconds = whole
    draw, effective = random.Random(str(command.verb[0])), 0
    # Every start of two workers loads the model three times: fewer rounds take as long.
    kills = KILLS // 2 if "--workers" in command.verb and "2" in command.verb else KILLS
    for number in range(kills):
        out = tmp_path / f"run-{number}"
        # Now and then twice, and in the middle of going on.
        for _ in range(1 + number % 2):
            process = command.start(out)
            while not out.exists() and process.poll() is None:
                time.sleep(0.002)
            time.sleep(draw.uniform(0, seconds))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            effective += process.returncode == -signal.SIGKILL
        assert command.finish(out) == expected
        shutil.rmtree(out)
    assert effective >= kills // 2


def test_two_at_once(command: Command, whole: tuple[dict[str, bytes], float], tmp_path: Path) -> None:
    out = tmp_path / "run"
    first, second = command.start(out), command.start(out)
    told = [process.communicate(timeout=300)[1].decode() for process in (first, second)]
    codes = sorted([first.returncode, second.returncode])
    # The slower one is refused, or comes when all is done.
    assert codes in ([0, 2], [0, 0]), told
    if codes == [0, 2]:
        assert any("is being written by another process" in one for one in told)
    assert command.finish(out) == whole[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB, where this process may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    made = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not made or made.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up(
    command: Command, whole: tuple[dict[str, bytes], float], small_disk: Path
) -> None:
    """Without the check before the work, which would refuse it."""
    blind = SMALL.replace(
        "from headwise",
        "import headwise.scale.study as f; c.refuse_small_disk = f.refuse_small_disk = lambda *_: None; from headwise",
    )
    out = small_disk / "run"
    process = command.start(out, blind)
    told = process.communicate(timeout=300)[1].decode()
    assert process.returncode == 2, told
    assert "is full: " in told.splitlines()[-1]
    assert "Traceback" not in told
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert command.finish(out) == whole[0]


@pytest.mark.parametrize("limit", [3_000, 20_000])
def test_a_limit_on_file_sizes(
    command: Command, whole: tuple[dict[str, bytes], float], tmp_path: Path, limit: int
) -> None:
    out = tmp_path / "run"
    code = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({limit}, {resource.RLIM_INFINITY})); {SMALL}"
    process = command.start(out, code)
    told = process.communicate(timeout=300)[1].decode()
    assert "Traceback" not in told
    assert process.returncode in (0, 2), told
    if process.returncode:
        assert "File too large" in told.splitlines()[-1]
    assert command.finish(out) == whole[0]


def test_a_worker_that_is_killed(answer_file: Path, tmp_path: Path) -> None:
    command, out = Command(tmp_path, answer_file, "circuits, two workers"), tmp_path / "run"
    process = command.start(out)
    deadline = time.monotonic() + 120
    while not kept(out) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    workers = [pid for pid in _children(process.pid) if b"spawn_main" in _words(pid)]
    assert workers
    os.kill(workers[0], signal.SIGKILL)
    told = process.communicate(timeout=120)[1].decode()
    assert process.returncode in (0, 2)
    if process.returncode:
        assert "a worker process died" in told.splitlines()[-1]
        assert (out / WORK).exists()
    assert not any(b"spawn_main" in _words(pid) for pid in workers)
    command.finish(out)
    assert CircuitRun.load(out).traced


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_flipped_bits_of_a_finished_run(whole_run: Path, tmp_path: Path) -> None:
    """Two hundred in every file: each is refused in one line."""
    shutil.copytree(whole_run, tmp_path / "run")
    for name in (*FILES, "manifest.json"):
        file = tmp_path / "run" / name
        for other in flips(file.read_bytes(), 200, name):
            with holding(file, other):
                assert name in one_line(lambda: CircuitRun.load(tmp_path / "run"))
    assert CircuitRun.load(tmp_path / "run").traced
