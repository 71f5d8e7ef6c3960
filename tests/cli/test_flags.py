"""The library names parameters, the command line options, and one place translates."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import headwise
from headwise.cli.flags import with_flags
from headwise.cli.main import main

LIBRARY = Path(headwise.__file__).parent
COMMANDS = {
    LIBRARY / "model" / "loading" / "fetch.py",  # speaks to pip, not to people
    LIBRARY / "app" / "studies.py",  # starts commands of this very program
    *(
        LIBRARY / "research" / f"{name}.py" for name in ("studies", "presets", "reproduce", "cost")
    ),  # so do these, or read them
}


def messages(file: Path) -> list[tuple[int, str]]:
    """The strings of a module that are not docstrings; of an f-string its constant pieces, joined."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    plain = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            found.append((node.lineno, "".join(map(str, parts))))
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in plain | inside
        ):
            found.append((node.lineno, node.value))
    return found


def test_no_message_of_the_library_names_an_option_of_the_command_line() -> None:
    looked = 0
    for file in sorted(LIBRARY.rglob("*.py")):
        if LIBRARY / "cli" in file.parents or file in COMMANDS:
            continue
        for line, text in messages(file):
            looked += 1
            # A whole command to run may be quoted: `headwise models get NAME --accept-license`.
            bare = re.sub(
                r"`(?:headwise|ray start) [^`]*`|^headwise [A-Za-z ]+( --task TASK)? --out DIR$", "", text
            )
            assert not re.search(r"(?<![\w-])--[a-z]{2}", bare) or text == " --accept-license", (
                f"{file.relative_to(LIBRARY)}:{line}: {text!r}"
            )
    assert looked > 1000


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("draws=0 leaves no controls: give 1 or more", "--draws 0 leaves no controls: give 1 or more"),
        ("choose another out= folder", "choose another --out folder"),
        ("give it with model=", "give it with --model"),
        ("the prompt 'tau=3' is odd", "the prompt 'tau=3' is odd"),
        ("strength=2 is no option here", "strength=2 is no option here"),
    ],
)
def test_a_parameter_becomes_its_option(message: str, said: str) -> None:
    known = {"draws": "--draws", "out": "--out", "tau": "--tau", "model": "--model"}
    assert with_flags(message, known) == said


def test_a_command_says_its_own_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert main(["circuits", "ioi", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("choose an --out folder that is empty or new\n")
