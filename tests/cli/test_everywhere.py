"""What holds for every verb: the same help, ``--quiet``, and wrong uses in one line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import typer

from headwise.cli.main import VERBS, main, overview
from headwise.progress import Working, is_quiet


def commands() -> list[list[str]]:
    """Every verb, and every command of a verb that has some."""
    found = []
    for name, (module, _) in VERBS.items():
        inner = typer.main.get_command(import_module(module).app)
        found += [[name], *([name, one] for one in getattr(inner, "commands", {}))]
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_help_looks_the_same_everywhere(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("-h", "--help"):
        assert main([*command, option]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith(f"Usage: headwise {' '.join(command)} [OPTIONS]")
        assert "-h, --help" in printed
        assert "--install-completion" not in printed
        assert "╭" not in printed


@pytest.mark.parametrize(
    ("arguments", "listed"), [(["toy"], "payload"), (["--help"], "doctor"), ([], "doctor")]
)
def test_a_bare_group_prints_its_help(
    arguments: list[str], listed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.count("Usage: headwise ") == 1
    assert f"\n  {listed} " in printed.out
    assert printed.err == ""


def test_the_overview_names_every_verb_once_under_its_heading() -> None:
    blocks = overview().split("\n\n")
    named = {block.split("\n")[0]: [row.split()[0] for row in block.split("\n")[1:]] for block in blocks[2:]}
    assert named == {
        "Look at one prompt:": ["app", "attention", "explain", "trace", "intervene"],
        "Find in many:": ["heads", "head", "features", "circuits", "families", "sinks", "name", "sparsity"],
        "Worlds with known answers:": ["toy"],
        "The research behind it:": ["reproduce"],
        "Models:": ["models", "calibrate", "corpus", "doctor"],
        "Beyond one machine:": ["plan", "copy"],
        "Shell:": ["completion"],
        "Options of commands that load a model, before or after the command:": [
            *("--dtype", "--device", "--device-map", "--max-memory", "--offload")
        ],
        "Options, before or after any command:": ["-h,", "-q,", "-V,"],
    }


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_version_is_told_in_every_verb(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--version"]) == 0
    assert capsys.readouterr().out.startswith("headwise ")


@pytest.mark.parametrize("arguments", [["-q", "say"], ["say", "--quiet"], ["--quiet", "say", "word"]])
def test_quiet_is_heard_before_and_after_the_verb(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = _verb(monkeypatch)
    assert main(arguments) == 0
    assert heard == [(True, [word for word in arguments if word == "word"])]
    assert not is_quiet()
    assert capsys.readouterr().err == ""


def test_without_quiet_progress_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = _verb(monkeypatch)
    assert main(["say", "--", "--quiet"]) == 0
    assert heard == [(False, ["--", "--quiet"])]
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "headwise: working ...",
        "headwise: working: done in 0 s",
        "headwise: stage: 3 prompts",
        "headwise: long: 1 of 3 prompts",
    ]


def _verb(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, list[str]]]:
    """A verb of three kinds of progress; what it was given is returned."""
    import sys
    import types

    from headwise.cli.progress import stage_bars, timed_bar

    heard: list[tuple[bool, list[str]]] = []

    def verb(args: list[str], **_: object) -> None:
        heard.append((is_quiet(), args))
        monkeypatch.setattr(Working, "_PATIENCE", -1.0)
        with Working("working") as progress:
            progress.stage("at it")
        with stage_bars() as bar:
            bar("stage", 1, 3)
        with timed_bar() as bar:
            bar("long", 1, 3)

    monkeypatch.setitem(sys.modules, "said", types.SimpleNamespace(app=verb))
    monkeypatch.setitem(VERBS, "say", ("said", ""))
    return heard


def test_thousands_of_digits_are_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy", "alignment", "--seeds", "9" * 5000]) == 2
    line = capsys.readouterr().err
    assert "--seeds" in line
    assert line.count("\n") == 1
    assert len(line) < 300


def test_a_toy_run_of_any_name_leaves_the_terminal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["toy", "alignment", "--steps", "1", "--seeds", "1", "--out", "run\x1b[2J\r"]) == 0
    said = capsys.readouterr()
    assert "run: run\\x1b[2J\\x0d" in said.out
    assert not set("\x1b\r") & set(said.out)
    assert said.err == ""  # no bar, and no empty line in its place
