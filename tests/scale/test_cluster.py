"""Ray: two nodes on loopback make the bytes of one process, also if one is killed, or the command itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import alive, children_of
from ray_cluster import ENVIRONMENT, HEAD, SECOND, Loopback, below, loopback
from toy_answers import answer_lines, contents, kept, small_model, write_lines

from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.scale.cluster import RayCluster, refuse_unreachable
from headwise.scale.nodes import joined
from headwise.survey.collect import trace_many
from headwise.toy.small_lm import DATA

PROMPTS = 300
linux = pytest.mark.skipif(sys.platform != "linux", reason="other addresses of loopback, and /proc")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("answers") / "answers.jsonl", answer_lines(PROMPTS))


@pytest.fixture(scope="module")
def alone(answers: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process makes of them."""
    out = tmp_path_factory.mktemp("alone") / "run"
    trace_many(small_model(), answers, out=out)
    return contents(out)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def command(answers: Path, out: Path, *more: str) -> list[str]:
    base = [sys.executable, "-m", "headwise.cli.main", "circuits", str(answers), "--model", str(DATA)]
    return [*base, "--out", str(out), *more]


def started(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        arguments, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def wait_for_chunk(process: subprocess.Popen[str], out: Path, count: int = 1) -> None:
    deadline = time.monotonic() + 200
    while len(kept(out)) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert kept(out) and process.poll() is None


# --- what is refused, before any work -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("10.0.0.5", "'10.0.0.5' is not a cluster's address: give HOST:PORT"),
        ("10.0.0.5:0", "'10.0.0.5:0' is not a cluster's address"),
        ("10.0.0.5:99999", "'10.0.0.5:99999' is not a cluster's address"),
        ("s3://bucket:1", "'s3://bucket:1' is not a cluster's address"),
        (
            "127.0.0.1:1",
            "no cluster answers at '127.0.0.1:1' (Connection refused): start one with `ray start",
        ),
    ],
)
def test_an_address_where_no_cluster_is_is_refused_at_once(
    address: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the model is loaded: there is none of that name."""
    began = time.monotonic()
    assert (
        main(["circuits", "ioi", "--out", str(tmp_path / "run"), "--ray", address, "--model", "/nowhere"])
        == 2
    )
    assert time.monotonic() - began < 10
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


_SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""What everything that speaks HTTP/2 says first."""


def _answered(status: bytes, last: bool = True) -> bytes:
    """Fields of a stream, in the bytes of HTTP/2."""
    body = b"\x88" + status
    return _SETTINGS + len(body).to_bytes(3, "big") + bytes([1, 4 + last, 0, 0, 0, 1]) + body


def _asked(*replies: bytes) -> float:
    """Ask who answers, where this is what is said; gives the seconds it took."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.recv(1000)
                for reply in replies:
                    line.sendall(reply)
                    time.sleep(0.05)
                line.recv(1000)  # until the other end has heard enough

        threading.Thread(target=answer, daemon=True).start()
        began = time.monotonic()
        refuse_unreachable(RayCluster(f"127.0.0.1:{server.getsockname()[1]}"))
        return time.monotonic() - began


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.0 400 Bad request\r\n\r\n",
        b"220 smtp.example.org ESMTP ready\r\n",
        _SETTINGS + b"\0\0\0\7\0\0\0\0\0",
        _answered(b""),
        _answered(b"@\x0bgrpc-status\x0212"),
    ],
    ids=["HTTP/1", "mail", "HTTP/2, hanging up", "HTTP/2", "another service of gRPC"],
)
def test_something_else_that_answers_is_not_ray(reply: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(HeadwiseError, match=r"what answers at '127.0.0.1:\d+' is not Ray"):
        _asked(reply)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("status", [b"\x010", b"\x0216"], ids=["an id", "a token first"])
def test_what_knows_the_question_for_a_cluster_is_ray(status: bytes) -> None:
    whole = _answered(b"", last=False) + _answered(b"@\x0bgrpc-status" + status)
    assert _asked(whole[:30], whole[30:]) < 3  # also in pieces


def test_what_says_nothing_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.scale.cluster.ANSWERS_WITHIN", 0.3)
    with pytest.raises(HeadwiseError, match=r"no cluster answers at '127.0.0.1:\d+' \(timed out\)"):
        _asked()


def test_ray_without_an_address_takes_nothing_from_the_words_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["circuits", "--ray", "no-such-task", "--out", str(tmp_path / "run")]) == 2
    assert "no-such-task" in capsys.readouterr().err


def test_a_ray_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")

    def late(**_: object) -> None:
        raise Exception("The current node timed out\nduring startup.")  # as Ray says it

    monkeypatch.setattr(ray, "init", late)
    line = (
        r"^Ray could not be started on this machine \(The current node timed out during startup\.\): try again when it "
        r"is less busy, or let 2 processes share the work without Ray$"
    )
    with pytest.raises(HeadwiseError, match=line), joined(RayCluster(workers=2), 2):
        pass


def test_no_workers_are_too_few() -> None:
    with pytest.raises(HeadwiseError, match="workers=0 cannot do anything"):
        RayCluster(workers=0)


@linux
@pytest.mark.cluster
def test_a_node_with_other_versions_is_refused(tmp_path: Path, answers: Path) -> None:
    other = tmp_path / "packages" / "transformers-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 0.0.1\n")
    path = f"{other.parent}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"
    with loopback(PYTHONPATH=path) as running:
        process = started(command(answers, tmp_path / "run", "--ray", running.address))
        _, said = process.communicate(timeout=200)
    assert process.returncode == 2
    assert f"the node {SECOND} has transformers 0.0.1, and this machine" in said.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@linux
@pytest.mark.cluster
def test_what_a_cluster_cannot_do_is_one_line_before_any_work(
    cluster: Loopback, answers: Path, tmp_path: Path
) -> None:
    script = f"""
import sys
import headwise, torch
from headwise.scale.cluster import RayCluster
from headwise.survey.collect import trace_many
model = headwise.load({str(DATA)!r}, check=False)
def refused(model, out, **given):
    try:
        trace_many(model, {str(answers)!r}, out=out, workers=RayCluster({cluster.address!r}, **given))
    except headwise.HeadwiseError as error:
        print(error)
refused(model, {str(tmp_path / "a")!r}, workers=3)
model.origin = {{**model.origin, "name": "/no/such/folder"}}
refused(model, {str(tmp_path / "b")!r})
changed = headwise.load({str(DATA)!r}, check=False)
next(changed.hf.parameters()).data[0, 0] += 1
refused(changed, {str(tmp_path / "c")!r})
from headwise.scale import engines
engines.ModelSource.of = classmethod(lambda cls, model: cls(model.origin, model.weight_hash, bytes=10**15))
refused(headwise.load({str(DATA)!r}, check=False), {str(tmp_path / "d")!r}, workers=2)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    many, folder, weights, memory = done.stdout.splitlines()
    assert many.startswith("3 workers need as many free CPUs, and the cluster at")
    assert many.endswith("has 2: give fewer workers")
    assert "does not see the model's folder '/no/such/folder'" in folder
    assert "with the weights" in weights and "give every node the same files" in weights
    assert memory.startswith("workers=2 would hold 2000.0 TB of weights (1000.0 TB each), and the cluster at")
    assert not list(tmp_path.iterdir())


# --- the same bytes -------------------------------------------------------------------------------------------------


@linux
@pytest.mark.cluster
def test_two_nodes_make_the_bytes_of_one_process(
    cluster: Loopback, answers: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    process = started(command(answers, tmp_path / "run", "--ray", cluster.address, "--workers", "2"))
    _, said = process.communicate(timeout=250)
    assert process.returncode == 0, said
    assert contents(tmp_path / "run") == alone
    last = [line for line in said.splitlines() if "done by node" in line][-1]
    assert HEAD in last and SECOND in last


@linux
@pytest.mark.cluster
def test_a_killed_command_is_continued_on_the_cluster(
    cluster: Loopback, answers: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = command(answers, out, "--ray", cluster.address, "--workers", "2")
    process = started(arguments)
    wait_for_chunk(process, out)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = kept(out)
    assert before and not (out / "prompts.parquet").exists()
    # Its actors end with it; until then their CPUs are taken.
    cluster.wait_for(2)
    deadline = time.monotonic() + 60
    while True:
        again = started(arguments)
        _, said = again.communicate(timeout=250)
        if again.returncode == 0 or "free CPUs" not in said or time.monotonic() > deadline:
            break
    assert again.returncode == 0, said
    first = next(line for line in said.splitlines() if "tracing:" in line)
    assert f"tracing: {32 * len(before)} of {PROMPTS}" in first
    assert contents(out) == alone


@linux
@pytest.mark.cluster
def test_a_node_killed_in_the_middle_loses_nothing(
    answers: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with loopback() as running:
        process = started(command(answers, out, "--ray", running.address, "--workers", "2"))
        wait_for_chunk(process, out)
        running.nodes[1].kill()
        _, said = process.communicate(timeout=250)
    assert process.returncode == 0, said
    assert "was lost: what it was at is begun again" in said
    assert contents(out) == alone


@linux
@pytest.mark.cluster
def test_ray_of_its_own_ends_with_the_command_even_if_that_is_killed(
    answers: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = command(answers, out, "--ray", "--workers", "2")
    process = started(arguments)
    wait_for_chunk(process, out)
    under = below(process.pid)
    assert len(under) > 3
    process.send_signal(signal.SIGKILL)
    process.communicate()
    # The workers end at once; Ray's own agents take a minute to notice.
    deadline = time.monotonic() + 150
    while any(map(alive, under)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, under))
    again = started(arguments)
    _, said = again.communicate(timeout=250)
    assert again.returncode == 0, said
    assert not children_of(again.pid)
    assert contents(out) == alone


@pytest.mark.cluster
def test_ray_of_its_own_needs_no_settings_and_leaves_no_token(
    answers: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    """As a user runs it, who has set nothing for Ray: it is closed to others, and the home folder stays as it was."""
    plain = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("RAY_")}
    home, out = tmp_path / "home", tmp_path / "run"
    home.mkdir()
    done = subprocess.run(
        command(answers, out, "--ray", "--workers", "1"),
        env=plain | {"HOME": str(home), "HEADWISE_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert contents(out) == alone
    assert not (home / ".ray").exists()
