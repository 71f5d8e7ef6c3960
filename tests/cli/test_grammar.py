"""One grammar: the same words in every verb, and old names say new ones."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
import typer

from headwise.cli.main import VERBS, main


def parameters() -> list[tuple[str, Any]]:
    """Every option of every verb, and of the commands under them."""
    found = []
    for name, (module, _) in VERBS.items():
        command = typer.main.get_command(import_module(module).app)
        for one in (command, *getattr(command, "commands", {}).values()):
            found += [(name, parameter) for parameter in one.params]
    return found


# --- the same word for the same thing ------------------------------------------------------------------------------


def test_an_option_is_the_same_in_every_verb() -> None:
    """What has one name has one form: a flag or a value, the same word for the value, the same text of help."""
    shared = [
        "--json",
        "--html",
        "--save",
        "--out",
        "--model",
        "--head",
        "--heads",
        "--query",
        "--key",
        "--seed",
        "--prompt-file",
        "--chat",
        "--features",
        "--answer",
        "--wrong",
        "--tau",
        "--workers",
    ]
    for option in shared:
        forms = {
            (p.is_flag, p.metavar, p.help if option != "--out" else None)
            for _, p in parameters()
            if option in p.opts
        }
        assert len(forms) == 1, (option, forms)
    assert all(p.is_flag for _, p in parameters() if "--json" in p.opts)


def test_every_verb_that_works_prints_json() -> None:
    for name, (module, _) in VERBS.items():
        command = typer.main.get_command(import_module(module).app)
        if name in ("app", "completion"):  # one serves until it is stopped, one prints a script
            continue
        subs = list(getattr(command, "commands", {}).values()) if name == "toy" else [command]
        assert all(any("--json" in p.opts for p in one.params) for one in subs), name


@pytest.mark.parametrize(
    ("arguments", "new"),
    [
        (["contrast", "binding"], "`headwise contrast` is now `headwise features TASK`"),
        (["channels", "x"], "`headwise channels` is now `headwise explain PROMPT --only what`"),
        (["attribute", "x"], "`headwise attribute` is now `headwise explain PROMPT --row --features BANK`"),
        (
            ["trace", "x", "--head", "L1H1"],
            "`headwise trace --head` is now `headwise explain PROMPT --head HEAD",
        ),
        (["trace", "x", "--json", "c.json"], "`headwise trace --save FILE`"),
        (["sinks", "--task=ioi"], "`headwise sinks --task` is now `headwise sinks TASK`"),
    ],
)
def test_an_old_name_says_the_new_one(
    arguments: list[str], new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert new in printed.err and printed.err.count("\n") == 1
    assert printed.out == ""


def test_no_colour_where_it_is_not_wanted() -> None:
    env = os.environ | {"NO_COLOR": "1", "FORCE_COLOR": ""}
    done = subprocess.run(
        [sys.executable, "-m", "headwise.cli.main", "models"], capture_output=True, text=True, env=env
    )
    assert "\x1b" not in done.stdout + done.stderr
