"""Standard streams that are not UTF-8, full or closed: the command as a process, started by a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no sh")

# A verb that prints what our tables hold, without a model.
PRINTS = """
import sys, types
from headwise.cli import main
from headwise.cli.outputs import print_json
def verb(args, **_):
    text = "' café' → 0.9 ██ 🍎"
    print_json({"token": text}) if "--json" in args else print(text)
    print("progress", file=sys.stderr)
sys.modules["said"] = types.SimpleNamespace(app=verb); main.VERBS["say"] = ("said", "")
sys.argv = ["headwise", "say", *sys.argv[1:]]
main.run()
"""


def shell(line: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(PRINTS)} {line}"
    return subprocess.run(["sh", "-c", command], capture_output=True, env=os.environ | env, timeout=120)


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("ascii", rb"' caf\xe9' -> 0.9 ## \U0001f34e"),
        ("latin-1", "' café' -> 0.9 ## \\U0001f34e".encode("latin-1")),
        ("utf-8", "' café' → 0.9 ██ 🍎".encode()),
    ],
)
def test_a_character_that_the_encoding_lacks_is_written_out(encoding: str, printed: bytes) -> None:
    done = shell("", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed + b"\n", b"progress\n")


def test_json_is_json_in_any_encoding() -> None:
    import json

    for encoding in ("ascii", "latin-1"):
        done = shell("--json", PYTHONIOENCODING=encoding)
        assert json.loads(done.stdout.decode(encoding)) == {"token": "' café' → 0.9 ██ 🍎"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_stdout_is_one_line() -> None:
    for line in ("> /dev/full", "--json > /dev/full"):
        done = shell(line)
        assert done.returncode == 2
        assert done.stderr.decode().splitlines()[-1] == (
            "headwise: standard output cannot be written (No space left on device): free some space, or send it "
            "elsewhere"
        )
        assert b"Traceback" not in done.stderr


def test_a_closed_stdout_is_one_line() -> None:
    done = shell(">&-")
    assert done.returncode == 2
    assert done.stderr == (
        b"headwise: standard output is closed: leave it open, or send it to a file or /dev/null\n"
    )


@pytest.mark.parametrize("line", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_nothing_depends_on_stderr(line: str) -> None:
    done = shell(line)
    assert (done.returncode, done.stdout) == (0, "' café' → 0.9 ██ 🍎\n".encode())


def test_all_streams_closed_still_end_with_a_code() -> None:
    assert shell("<&- >&- 2>&-").returncode == 2
