"""One grammar: the same words in every verb, refused before anything heavy is imported, and old names say new ones."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import typer
from words import worded_model

from headwise.cli.main import VERBS, main
from headwise.cli.prompts import read_prompt
from headwise.errors import HeadwiseError

PROMPT = "The hat is in Box A. The pen is in Box B. The hat is in Box"


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
        if name == "completion":
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


# --- refused before anything heavy is imported ------------------------------------------------------------------------

NOWHERE = "/proc/nothing/file"
REFUSED = [
    (["explain"], "a prompt is missing"),
    (["explain", " "], "the prompt is empty"),
    (["explain", "x", "--draws", "0"], "--draws"),
    (["explain", "x", "--tau", "-1"], "--tau -1 is not an attention"),
    (["explain", "x", "--features", "/nowhere"], "there are no features at '/nowhere'"),
    (["explain", "x", "--seed", "-3"], "--seed -3 is out of range"),
    (["explain", "x", "--only", "why"], "'why' is not one of 'what', 'who'"),
    (["explain", "x", "--html", NOWHERE], "cannot be written"),
    (["explain", "x", "--save", NOWHERE], "cannot be written"),
    (["explain", "x", "--row", "--key", "2"], "--key is not used with --row"),
    (["explain", "x", "--row"], "give --features BANK"),
    (["explain", "x", "--method", "shapley"], "--method is used only with --row"),
    (["explain", "x", "--top", "3"], "--top is used only with --only"),
    (["explain", "x", "--prompt-file", "y"], "were both given"),
    (["explain", "--prompt-file", "/nowhere"], "'/nowhere' cannot be read"),
    (["explain", "x", "--head", "head nine"], "'head nine' is not a head: write it as L9H6"),
    (["features", "binding", "--heads", "L1H2,zz"], "'zz' is not a head"),
    (["sparsity", "ioi", "--heads", "L1H"], "'L1H' is not a head"),
    (["attention", ""], "the prompt is empty"),
    (["attention", "x", "--top", "0"], "--top"),
    (["trace", "x", "--mode", "nope"], "'nope' is not one of 'exact', 'published'"),
    (["trace", "x", "--html", NOWHERE], "cannot be written"),
    (["trace", "x", "--save", NOWHERE], "cannot be written"),
    (["trace", "x", "--graphml", NOWHERE], "cannot be written"),
    (["trace", "x", "--attribution-graph", NOWHERE], "cannot be written"),
    (["intervene", "/nowhere"], "cannot read '/nowhere'"),
    (["heads", "bindings"], "there is no task 'bindings': did you mean 'binding'?"),
    (["heads"], "a task is missing: give TASK, or --roles"),
    (["heads", "--roles", "--pairs", "3"], "--pairs is not used with --roles: leave it out"),
    (["heads", "binding", "--roles"], "is not used with --roles: leave it out"),
    (["heads", "ioi"], "'ioi' is a task with answers, but labelled prompts are needed here"),
    (["heads", "binding", "--format", "x"], "'x' is not one of"),
    (["features", "binding", "--draws", "9"], "--draws"),
    (["features", "binding", "--out", NOWHERE], "cannot be written"),
    (["circuits", "ioo", "--out", "x"], "there is no task 'ioo'"),
    (["circuits", "ioi", "--out", "/usr"], "'/usr' holds other files"),
    (["circuits", "ioi", "--out", NOWHERE], "cannot be written"),
    (["circuits", "ioi", "--out", "x", "--workers", "0"], "--workers"),
    (["families", "/nowhere"], "the run '/nowhere' does not exist"),
    (["families", "/usr", "--distance", "x"], "'x' is not one of"),
    (["sinks", "iou"], "there is no task 'iou'"),
    (["sinks", "--texts", "/nowhere"], "cannot read '/nowhere'"),
    (["sinks", "--parked", "2"], "--parked"),
    (["sinks", "--out", NOWHERE], "cannot be written"),
    (["sparsity", "none.jsonl"], "there is no file 'none.jsonl'"),
    (["sparsity", "{bad}"], "has a bad line: line 1: not JSON"),
    (["circuits", "{bad}", "--out", "x"], "has a bad line: line 1: not JSON"),
    (["circuits", "{labelled}", "--out", "x"], "has 8 bad lines: line 1: the field 'answer' is missing"),
    (["sinks", "{bad}"], "has a bad line: line 1: not JSON"),
    (["heads", "{bad}"], "has a bad line: line 1: not JSON"),
    (["features", "{answers}"], "has a bad line: line 1: the field 'positive' is missing"),
    (
        ["heads", "{labelled}", "--prompts", "9"],
        "--prompts is not used with prompts of your own: leave it out",
    ),
    (["features", "{labelled}", "--prompts", "9"], "prompts of your own do not take --prompts: leave it out"),
    (
        ["heads", "binding", "--categories", "5"],
        "the task 'binding' does not take --categories: leave it out",
    ),
    (["features", "filter", "--pairs", "5"], "the task 'filter' does not take --pairs: leave it out"),
    (["features", "filter", "--categories", "²"], "category '²' is not known: choose from fruits"),
    (["features", "filter", "--categories", "7"], "7 categories are not prepared"),
    (["features", "binding", "--contrasts", "x"], "contrast 'x' is not known: write order"),
    (["toy", "training", "--checkpoints", "x"], "needs at least two checkpoints, and only 'x' was given"),
    (["sparsity", "ioi", "--out", NOWHERE], "cannot be written"),
    (["toy", "payload", "--latents", "x"], "'x' is not one of"),
    (["toy", "training", "--out", NOWHERE], "cannot be written"),
    (["doctor", "--dtype", "int8"], "'int8' is not one of"),
    (
        ["attention", "x", "--start", "-1"],
        "invalid value '-1' for --start: it should be greater than or equal to 0",
    ),
    (["explain", "x", "--start", "2.5"], "invalid value '2.5' for --start: it should be a valid integer"),
    (
        ["trace", "x", "--start", "-1"],
        "invalid value '-1' for --start: it should be greater than or equal to 0",
    ),
    (["intervene"], "a circuit is missing: give FILE, or PROMPT with --silence, --mean or --patch"),
    (["intervene", "x", "--silence", "L1"], "'L1' is not a head"),
    (["intervene", "x", "--patch", "L1H2@to", "--from", "y"], "'to' in 'L1H2@to' is not a position"),
    (["intervene", "x", "--silence", "L1H2", "--start", "-1"], "invalid value '-1' for --start"),
    (["intervene", "x", "--silence", "L1H2", "--edges", "a -> b"], "--edges is not used with --silence"),
    (
        ["intervene", "x", "--mean", "L1H2", "--action", "boost"],
        "--action is not used with --mean: leave it out",
    ),
    (["intervene", "x", "--mean", "L1H2", "--silence", "L1H3"], "--silence and --mean were both given"),
    (
        ["intervene", "x", "--patch", "L1H2"],
        "--patch takes values from another prompt: give it with --from PROMPT",
    ),
    (
        ["intervene", "x", "--silence", "L1H2", "--from", "y"],
        "--from is used only with --patch: leave it out",
    ),
    (["intervene", "x", "--align", "1=2"], "--align is used only with --action patch: leave it out"),
    (
        ["intervene", "x", "--patch", "L1H2", "--align", "1-2"],
        "'1-2' is not two positions: write them as 9=10",
    ),
    (["intervene", "x", "--patch", "L1H2", "--align", "1=2,1=3"], "names position 1 twice: give it once"),
    (["intervene", "x", "--action", "patch"], "--action patch takes values from another prompt"),
    (
        ["intervene", "x", "--answer", "y"],
        "--answer is used only with --silence, --mean or --patch: leave it out",
    ),
    (["intervene", " ", "--silence", "L1H2"], "the prompt is empty"),
    (["trace", "x", "--rule", "x"], "'--rule': 'x' is not one of"),
]


def test_what_is_wrong_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    """One process for all of them: none may import what is heavy, each says one line."""
    files = {
        "{bad}": ["{"],
        "{answers}": ['{"prompt": "x", "answer": "y"}'],
        "{labelled}": ['{"prompt": "[[a:x]] y", "positive": ["a"], "negative": [[0, 1]]}'] * 8,
    }
    places = {name: tmp_path / f"{name.strip('{}')}.jsonl" for name in files}
    for name, lines in files.items():
        places[name].write_text("\n".join(lines))
    code = """
import contextlib, io, json, sys
from headwise.cli.main import main
said = []
for arguments in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(arguments)
    heavy = [name for name in ("torch", "transformers") if name in sys.modules]
    said.append([code, out.getvalue(), err.getvalue(), heavy])
print(json.dumps(said))
"""
    asked = json.dumps([[str(places.get(word, word)) for word in arguments] for arguments, _ in REFUSED])
    done = subprocess.run(
        [sys.executable, "-c", code], input=asked, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for (arguments, message), (code, out, err, heavy) in zip(REFUSED, json.loads(done.stdout), strict=True):
        assert (code, out, heavy) == (2, "", []), (arguments, err)
        assert message in err and err.count("\n") == 1, (arguments, err)


def test_the_usual_place_of_families_is_tried_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "families").write_text("a file")
    assert main(["families", str(tmp_path)]) == 2
    assert f"{str(tmp_path / 'families')!r} cannot be written" in capsys.readouterr().err


def test_every_path_is_tried_as_soon_as_it_is_read() -> None:
    """A new option for a file or folder cannot forget it."""
    later = {
        "prompt_file",
        "runs",
    }  # looked at first thing inside the verb, for they depend on another option
    seen = set()
    for module, _ in VERBS.values():
        for command in import_module(module).app.registered_commands:
            for name, hint in get_type_hints(command.callback, include_extras=True).items():
                if get_origin(hint) is Annotated and "Path" in repr(get_args(hint)[0]) and name not in later:
                    seen.add(name)
                    assert get_args(hint)[1].callback is not None, (module, name)
    assert seen >= {"out", "html", "save", "graphml", "attribution_graph", "features", "texts"}


# --- prompts ----------------------------------------------------------------------------------------------------------


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
    asked = ["explain", PROMPT, "--head", "L1H2", "-q"]
    for part, said in (
        ([], "without the 1 writer marked *"),
        (["--only", "who"], "1 signal; without it attention"),
    ):
        assert main([*asked, *part]) == 0
        shown = capsys.readouterr().out
        assert said in shown
        assert "1 signals" not in shown.replace("11 signals", "")
        assert "1 writers" not in shown.replace("11 writers", "")


def test_no_colour_where_it_is_not_wanted() -> None:
    env = os.environ | {"NO_COLOR": "1", "FORCE_COLOR": ""}
    done = subprocess.run(
        [sys.executable, "-m", "headwise.cli.main", "models"], capture_output=True, text=True, env=env
    )
    assert "\x1b" not in done.stdout + done.stderr
