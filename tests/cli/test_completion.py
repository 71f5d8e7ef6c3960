"""Completion as the shells do it: each sources the script and completes command lines with the real command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pace import first_is_quick

from headwise.cli.completion import SCRIPTS, candidates
from headwise.cli.main import VERBS, main


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a file of its own, and ``headwise`` on the path."""
    command = tmp_path / "bin" / "headwise"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m headwise.cli.main "$@"\n')
    command.chmod(0o755)
    for shell, script in SCRIPTS.items():
        (tmp_path / f"completion.{shell}").write_text(script)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "prompts.jsonl").touch()
    return tmp_path


def shell(place: Path, *command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]} here")
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    source = os.pathsep.join(
        filter(None, (str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH")))
    )
    env = os.environ | {"PATH": path, "HOME": str(place), "PYTHONPATH": source}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=place / "here",
        env=env,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    assert done.stderr == ""
    return done.stdout


# the words before the cursor; what they may become: exactly, or at least with a trailing ellipsis
LINES = [
    (["expl"], ["explain"]),
    (["trace", "two words", "--mode", ""], ["exact", "published"]),
    (["circuits", "gr"], ["greater-than"]),
    (["toy", "pay"], ["payload"]),
    (["toy", "alignment", "--case", "n"], ["none"]),
    (["explain", "--model", "sm"], ["smollm2"]),
    (["explain", "--prompt-"], ["--prompt-file"]),
    (["completion", ""], ["bash", "zsh", "fish"]),
]


@pytest.mark.parametrize(("words", "wanted"), LINES, ids=lambda value: " ".join(value))
def test_bash(place: Path, words: list[str], wanted: list[str]) -> None:
    listed = " ".join(f"'{word}'" for word in ["headwise", *words])
    script = (
        f"source ../completion.bash; complete -p headwise >/dev/null || exit 1; COMP_WORDS=({listed}); "
        f"COMP_CWORD={len(words)}; _headwise_complete; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    assert shell(place, "bash", "--norc", "-c", script).split("\n")[:-1] == wanted


@pytest.mark.parametrize(("words", "wanted"), first_is_quick(*LINES), ids=lambda value: " ".join(value))
def test_zsh(place: Path, words: list[str], wanted: list[str]) -> None:
    listed = " ".join(f"'{word}'" for word in ["headwise", *words])
    script = (
        # What the line editor would show is told by the two functions that the script hands its findings to.
        "autoload -U compinit; compinit -u -D; source ../completion.zsh; "
        "[[ $_comps[headwise] = _headwise ]] || exit 1; "
        "_describe() { print -l -- ${(P)argv[-1]}; }; _files() { print files; }; "
        f"words=({listed}); CURRENT=$#words; _headwise"
    )
    found = shell(place, "zsh", "-f", "-c", script).splitlines()
    assert [line.partition(":")[0] for line in found] == wanted


@pytest.mark.parametrize(("words", "wanted"), LINES, ids=lambda value: " ".join(value))
def test_fish(place: Path, words: list[str], wanted: list[str]) -> None:
    line = " ".join(f"'{word}'" if " " in word else word for word in ["headwise", *words])
    found = shell(place, "fish", "-N", "-c", f'source ../completion.fish; complete -C "{line}"').splitlines()
    assert sorted(one.partition("\t")[0] for one in found) == sorted(wanted)


def test_files_are_left_to_the_shell(place: Path) -> None:
    words = ["heads", "prom"]
    assert candidates(words) == []
    bash = "source ../completion.bash; complete -p headwise"
    assert "-o default" in shell(place, "bash", "--norc", "-c", bash)
    fish = 'source ../completion.fish; complete -C "headwise heads prom"'
    if shutil.which("fish"):
        assert shell(place, "fish", "-N", "-c", fish).split("\t")[0].strip() == "prompts.jsonl"
    if shutil.which("zsh"):
        script = (
            "compdef() { :; }; source ../completion.zsh; _files() { print files; }; "
            "words=(headwise heads prom); CURRENT=3; _headwise"
        )
        assert shell(place, "zsh", "-f", "-c", script) == "files\n"


def test_every_verb_and_option_is_offered() -> None:
    assert [name for name, _ in candidates([""])] == list(VERBS)
    offered = {name for name, _ in candidates(["explain", "a prompt", "--"])}
    assert {"--head", "--key", "--only", "--quiet", "--help"} <= offered
    # bash takes a joined value apart, others leave it whole
    assert candidates(["trace", "--mode", "=", "pub"]) == [("published", "")]
    assert candidates(["trace", "--mode="]) == [("--mode=exact", ""), ("--mode=published", "")]
    assert candidates(["no such verb", ""]) == []


def test_how_a_model_is_loaded_is_offered_where_one_is() -> None:
    assert candidates(["doctor", "--dtype", "bf"]) == [("bfloat16", "")]
    assert candidates(["trace", "text", "--device-map="]) == [("--device-map=auto", "")]
    assert candidates(["--dtype", "float16", "expl"]) == candidates(["expl"]) != []
    assert candidates(["explain", "--offload", ""]) == []  # a folder, which the shell knows better
    assert candidates(["trace", "--dtype=float16", "--mode", "pub"]) == [("published", "")]
    assert {"--dtype", "--offload"} <= {name for name, _ in candidates(["sinks", "--"])}
    assert not {"--dtype", "--offload"} & {name for name, _ in candidates(["models", "--"])}


def test_the_script_is_printed_and_needs_no_torch(capsys: pytest.CaptureFixture[str]) -> None:
    for name, script in SCRIPTS.items():
        assert main(["completion", name]) == 0
        assert capsys.readouterr().out == script
    assert main(["completion", "csh"]) == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err
    code = (
        "import sys; from headwise.cli.completion import candidates\n"
        "for verb, _ in candidates(['']): candidates([verb, '']), candidates([verb, '--'])\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
