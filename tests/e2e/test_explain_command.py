"""``headwise explain`` as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.cli.main import main
from headwise.model.model import Model

PROMPT = "When John and Mary went to the store, John gave a drink to"
pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _loaded(smollm2: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: smollm2)
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_new_process_prints_the_three_parts_and_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "headwise.cli.main",
            "explain",
            PROMPT,
            "--wrong",
            " John",
            "--html",
            str(page),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    for part in (
        "\nWhat × who, in log-odds\n",
        "\nWhat it does with it\n",
        "\nProof\n",
        "specific",
        "instead of",
    ):
        assert part in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "\x1b" not in done.stdout
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "vocabulary" not in done.stdout  # the page shows it on request


def test_json_is_one_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", PROMPT, "--head", "L22H4", "--key", " Mary", "--query", "-1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["head"], document["query"], document["key"]) == ("L22H4", 13, 3)
    assert document["proof"]["error"] < 1e-5
    assert document["proof"]["after"]["attention"] < document["cause"]["threshold"]


@pytest.mark.parametrize(
    "prompt",
    [
        "🙂🙃 said the 👩‍🚀 to the 👩‍🚀",
        "שלום עולם, אמר דוד לרות. דוד נתן ספר ל",
        "one\ntwo\n\nthree\none\n",
        "<script>alert(1)</script> & <b>bold</b> [red]markup[/red]",
    ],
)
def test_any_text_is_shown_as_text(prompt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "why.html"
    assert main(["explain", prompt, "--html", str(page)]) == 0
    assert "Proof" in capsys.readouterr().out
    assert "<script>alert(1)" not in page.read_text(encoding="utf-8")


def test_ten_thousand_characters(capsys: pytest.CaptureFixture[str]) -> None:
    prompt = ("international communication responsibilities and understanding " * 160)[:10_000]
    assert main(["explain", prompt, "--json", "--draws", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["tokens"]) > 500
    assert document["proof"]["error"] < 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", ""], "the prompt is empty"),
        (["explain", PROMPT, "--head", "L99H0"], "L99H0 does not exist"),
        (["explain", PROMPT, "--head", "nine"], "'nine' is not a head"),
        (["explain", PROMPT, "--head", "L1H0", "--query", "77"], "position 77 is outside the prompt"),
        (["explain", PROMPT, "--head", "L1H0", "--query", "2", "--key", "5"], "comes after query"),
        (["explain", PROMPT, "--head", "L1H0", "--key", "Bob"], "key 'Bob' is not in the prompt"),
        (["explain", PROMPT, "--features", "nowhere"], "there are no features at"),
        (["explain", PROMPT, "--html", "/proc/nothing/page.html"], "cannot be written"),
        (
            ["explain", PROMPT, "--answer", " Mary Poppins", "--wrong", " Mary"],
            "' Mary Poppins' begins with ' Mary', so the two answers do not part",
        ),
        (["explain", PROMPT, "--color"], "--color"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [line for line in printed.err.strip().splitlines() if not line.startswith("headwise: explaining")]
    assert len(lines) == 1
    assert message in lines[0]
