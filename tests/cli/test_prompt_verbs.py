"""The verbs that take a prompt: where it comes from, which tokens are meant, and what is printed."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from words import worded_model

from headwise.cli.main import main
from headwise.cli.prompts import read_prompt
from headwise.errors import HeadwiseError

PROMPT = "The hat is in Box A. The pen is in Box B. The hat is in Box"


def test_a_prompt_comes_from_a_file_or_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"\xef\xbb\xbfone\ntwo \r\n")
    assert read_prompt(None, file) == "one\ntwo "
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(" café\n\n".encode()), "ascii"))
    assert read_prompt("-", None) == " café\n"
    file.write_bytes(b"caf\xe9")
    with pytest.raises(HeadwiseError, match=r"is not UTF-8 text \(byte 3\)"):
        read_prompt(None, file)
    with pytest.raises(HeadwiseError, match="cannot be read"):
        read_prompt(None, tmp_path)


def test_a_model_without_a_chat_template_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = worded_model()
    monkeypatch.setattr(model.tokenizer, "chat_template", None)
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: model)
    for verb in ("attention", "explain", "trace"):
        assert main([verb, PROMPT, "--chat", "-q"]) == 2
        line = capsys.readouterr().err
        assert "the model's tokenizer has no chat template" in line and line.count("\n") == 1


@pytest.fixture
def tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: worded_model())


@pytest.mark.usefixtures("tiny_model")
@pytest.mark.parametrize("verb", ["attention", "explain", "trace"])
def test_every_prompt_verb_reads_files_and_chats(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT + "\n")

    def tokens(*arguments: str) -> list[str]:
        assert main([verb, *arguments, "--json", "-q"]) == 0
        return json.loads(capsys.readouterr().out)["tokens"]

    plain = tokens("--prompt-file", str(file))
    assert plain == tokens(PROMPT)
    chat = tokens("--prompt-file", str(file), "--chat")
    assert [t.strip() for t in chat[:2]] == ["<s>", "<u>"] and chat.count("<s>") == 1
    assert len(chat) > len(plain)


# --- positions, closing lines, parts ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny_model")
@pytest.mark.parametrize(
    "arguments",
    [
        ["attention", PROMPT, "--query", "hat"],
        ["explain", PROMPT, "--head", "L1H2", "--query", "hat"],
        ["explain", PROMPT, "--head", "L1H2", "--key", "hat"],
    ],
)
def test_an_ambiguous_token_is_refused_with_its_positions(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "-q"]) == 2
    what = arguments[-2].removeprefix("--")
    assert f"{what} 'hat' occurs at positions 2 and 16: pass one of them" in capsys.readouterr().err


@pytest.mark.usefixtures("tiny_model")
def test_closing_lines_use_the_same_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, saved = tmp_path / "new" / "p.html", tmp_path / "s.json"
    for verb in ("explain", "trace"):
        assert main([verb, PROMPT, "--html", str(page), "--save", str(saved), "-q"]) == 0
        assert capsys.readouterr().out.splitlines()[-2:] == [f"page: {page}", f"saved: {saved}"]
        assert json.loads(saved.read_text())["tokens"]
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
        page.unlink()


@pytest.mark.usefixtures("tiny_model")
def test_trace_shows_as_many_rows_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", PROMPT, "-q", "--json"]) == 0
    edges = sum(edge["kind"] != "account" for edge in json.loads(capsys.readouterr().out)["edges"])
    assert edges > 3
    for top in (1, 3, edges, edges + 5):
        assert main(["trace", PROMPT, "-q", "--top", str(top)]) == 0
        lines = capsys.readouterr().out.splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("from "))
        # behind the causal edges comes what MLPs had read, in a table of its own
        end = next((i for i, line in enumerate(lines) if line.startswith("through MLPs")), len(lines))
        rows = [line for line in lines[start + 1 : end] if line.strip() and not line.startswith("… and")]
        assert len(rows) == min(top, edges)
        assert (f"… and {edges - top} more edge" in "\n".join(lines)) == (top < edges)


@pytest.mark.usefixtures("tiny_model")
@pytest.mark.parametrize("part", ["what", "who"])
def test_one_part_in_full(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explain", PROMPT, "--head", "L1H2", "--only", part, "-q"]
    assert main([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert part in document and not {"what", "who", "proof"} - {part} & set(document)
    assert main([*asked, "--top", "2"]) == 0
    shown = capsys.readouterr().out
    assert f"L1H2: {document['tokens'][document['query']]!r} ({document['query']}) attends to" in shown
    if part == "what":
        channels = document["channels"]
        assert len(channels["energies"]) == len(channels["control"]) == worded_model().d_head
        assert sum(channels["control"]) == pytest.approx(document["relative"]["logit"], abs=1e-6)
        assert sum(channels["log_odds"]) == pytest.approx(document["log_odds"]["total"], abs=1e-6)
    else:
        sides = {row["side"] for row in document["who"]}
        assert sides == {"query", "key"} == set(document["cause"]) & sides
    if part == "what":
        assert f"… and {worded_model().d_head - 2} smaller channels" in shown


@pytest.mark.usefixtures("tiny_model")
def test_a_channel_that_works_against_the_attention_has_a_minus(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", PROMPT, "--head", "L1H2", "--only", "what", "--top", "99", "-q"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "█" in line]
    signs = {float(row.split()[-1]) < 0 for row in rows}
    assert signs == {True, False}
    for row in rows:
        assert ("-█" in row) == (float(row.split()[-1]) < 0), row


@pytest.mark.usefixtures("tiny_model")
def test_one_signal_is_not_signals(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explain", PROMPT, "--head", "L0H0", "-q"]
    for part, said in (
        ([], "without the writer marked *"),
        (["--only", "who"], "1 signal; without it attention"),
    ):
        assert main([*asked, *part]) == 0
        shown = capsys.readouterr().out
        assert said in shown
        assert "1 signals" not in shown.replace("11 signals", "")
        assert "1 writers" not in shown.replace("11 writers", "")
