"""Thousands of command lines: each ends with exit code 0 or 2, in a result or one line, and no terminal is harmed."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from family_runs import planted_run
from fuzzing import COUNTS, line_is_fit, screen_is_fit, texts, tried
from hypothesis import given
from hypothesis import strategies as st
from toy_answers import answer_lines, labelled_lines, small_model, write_lines
from typer.main import get_command

import headwise
from headwise.cli.completion import _values as completions
from headwise.cli.main import VERBS, main
from headwise.model.loading import load as loader
from headwise.model.loading import store
from headwise.model.loading.catalogue import is_known
from headwise.toy.small_lm import DATA

pytestmark = pytest.mark.hostile
PROMPT = answer_lines(1)[0]
EFFORT = {
    "answers",
    "checkpoints",
    "draws",
    "items",
    "pairs",
    "prompts",
    "proved",
    "rotations",
    "sample",
    "samples",
    "scan",
    "seeds",
    "steps",
    "test",
    "traced",
    "workers",
}
"""Parameters that say how much to do: a large value is work, not a mistake."""
SMALL = ("-1", "0", "1", "2", "3")
EDGES = (
    "0",
    "1",
    "-1",
    "2",
    "7",
    "99",
    "2147483648",
    "9223372036854775808",
    "18446744073709551616",
    "9" * 5000,
    "0.5",
    "-0.0",
    "1e308",
    "1e-320",
    "nan",
    "inf",
    "-inf",
    "²",
    "١٢",
    "0x10",
    "1_000",
    " 1",
    "",
)


@lru_cache(maxsize=1)
def place() -> Path:
    """A folder deep in a folder of its own, so that no relative path leads out."""
    made = Path(tempfile.mkdtemp(prefix="headwise-commands-")) / "a" / "b" / "c" / "d"
    made.mkdir(parents=True)
    return made


@cache
def inputs() -> dict[str, str]:
    """Sound files of every kind that a command reads."""
    folder = place().parent / "inputs"
    folder.mkdir()
    answers = write_lines(folder / "answers.jsonl", answer_lines(4))
    labelled = write_lines(folder / "labelled.jsonl", labelled_lines())
    circuit = folder / "circuit.json"
    model = small_model()
    headwise.trace(model, PROMPT["prompt"], answer=PROMPT["answer"], wrong=PROMPT["wrong"]).save(circuit)
    planted_run(folder / "run", 12)
    headwise.find_features(model, str(labelled), heads="L1H0", draws=100).bank.save(
        folder / "bank.safetensors"
    )
    (folder / "garbage").write_bytes(bytes(range(256)) * 8)
    (folder / "prompt.txt").write_text(PROMPT["prompt"], encoding="utf-8")
    write_lines(folder / "corpus.jsonl", answer_lines(24))
    names = {path.stem: str(path) for path in folder.iterdir()}
    return {**names, "answers": str(answers), "labelled": str(labelled)}


def sound(verb: str, under: str) -> dict[str, Any]:
    """Arguments with which a command does a small piece of its work."""
    have = inputs()
    asked: dict[str, dict[str, Any]] = {
        "attention": {"prompt": PROMPT["prompt"]},
        "explain": {"prompt": PROMPT["prompt"], "head": "L0H0", "key": "1", "draws": "1"},
        "trace": {"prompt": PROMPT["prompt"], "answer": PROMPT["answer"], "wrong": PROMPT["wrong"]},
        "intervene": {"given": have["circuit"], "top": "1", "draws": "1"},
        "heads": {"task": have["labelled"]},
        "features": {"task": have["labelled"], "heads": "L1H0", "draws": "100"},
        "circuits": {"task": have["answers"], "out": "run", "prompts": "1", "workers": "1"},
        "families": {"runs": have["run"], "no_causality": True, "sample": "2", "out": "families"},
        "sinks": {"task": have["answers"], "prompts": "4", "traced": "2", "proved": "1", "threshold": "0.1"},
        "sparsity": {"task": have["answers"], "heads": "L1H0", "prompts": "2", "rotations": "1"},
        "payload": {"steps": "1", "samples": "16", "d_head": "4", "r1": "1", "r2": "1"},
        "alignment": {"steps": "1", "seeds": "1"},
        "training": {"checkpoints": [str(DATA), str(DATA)], "prompts": "2"},
        "remove": {"name": "smollm2"},
        "calibrate": {"corpus": have["corpus"], "texts": "8"},
        "doctor": {"model": str(DATA)},
        "completion": {"shell": "bash"},
    }
    return asked.get(under or verb, {})


@cache
def commands() -> dict[tuple[str, str], Any]:
    """Every command that there is, by its verb and the word under it, but for the one that fetches things and the one
    that goes on until it is interrupted."""
    found: dict[tuple[str, str], Any] = {}
    for verb, (module, _) in VERBS.items():
        command = get_command(import_module(module).app)
        found[verb, ""] = command
        for name, one in getattr(command, "commands", {}).items():
            found[verb, name] = one
    del found["models", "get"], found["app", ""]
    return found


LIGHT = ("attention", "explain", "trace", "intervene", "models", "doctor", "completion")


def hostile(command: Any, parameter: Any) -> st.SearchStrategy[str]:
    """Values of a parameter: such as it takes, such as it nearly takes, and anything."""
    if parameter.name in EFFORT:
        return st.sampled_from([*SMALL, "", "x", "nan", "-", "\x1b[2J"])
    known = completions(command, parameter, "")
    given = st.sampled_from(known) if known else paths()
    return st.one_of(given, st.sampled_from(EDGES), harmless())


def harmless() -> st.SearchStrategy[str]:
    """Any text that names no place outside the folder of the test."""
    return texts().filter(lambda text: not text.startswith(("/", "~")) and text.count("..") < 4)


def paths() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(
            [
                "missing",
                ".",
                "..",
                "",
                "/dev/full",
                "/dev/null",
                "/proc/self/mem",
                "/proc/nothing/x",
                "/proc/cpuinfo",
                "n" * 300,
                "n" * 300 + ".jsonl",
                "new/folder/file.html",
                "a\nb.json",
                "a\x00b",
                "caf\udce9.html",
                "\x1b[2J.html",
                "out",
            ]
        ),
        st.deferred(lambda: st.sampled_from(sorted(inputs().values()))).map(copied),
    )


def copied(path: str) -> str:
    """The name of a copy in the working folder: what a command writes must not spoil what others read."""
    return "in-" + Path(path).name


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command line."""
    kind = draw(st.integers(0, 15))
    if kind == 0:
        first = draw(st.one_of(harmless(), st.sampled_from([*VERBS, "--help", "-q", "--version", "-V"])))
        if first in ("models", "toy", "app"):
            first = "completion"
        # No verb that would start long work with its own defaults.
        rest = draw(st.lists(harmless(), max_size=4))
        return [first, *rest] if first not in VERBS or first in LIGHT else [first, "--" + draw(harmless())]
    found = commands()
    known = list(found)
    light = [one for one in known if one[0] in LIGHT]
    verb, under = draw(st.sampled_from(light if kind < 13 else known))
    parameters = {str(p.name): p for p in found[verb, under].params}
    values: dict[str, Any] = dict(sound(verb, under))
    if "model" in parameters and "model" not in values:
        values["model"] = str(DATA)
    for name in (
        draw(st.lists(st.sampled_from(sorted(parameters)), max_size=3, unique=True)) if parameters else []
    ):
        parameter = parameters[name]
        if getattr(parameter, "is_flag", False):
            values[name] = not values.get(name, False)
        elif name in values and name not in EFFORT and draw(st.integers(0, 7)) == 0:
            del values[name]
        else:
            values[name] = draw(hostile(found[verb, under], parameter))
    words, places = spelled(parameters, values, lambda: draw(st.booleans()))
    start = [verb, under] if under else [verb]
    quiet = ["-q"] if draw(st.booleans()) else []
    return [*start, *quiet, *words, *(["--"] if draw(st.booleans()) else []), *places]


def spelled(
    parameters: dict[str, Any], values: dict[str, Any], joined: Callable[[], bool]
) -> tuple[list[str], list[str]]:
    """Values as the words of a line, options first; ``joined`` says whether the next one is ``--name=value``."""
    words: list[str] = []
    places: list[str] = []
    for name, value in values.items():
        flag = next((one for one in parameters[name].opts if one.startswith("--")), None)
        if value is True and flag:
            words.append(flag)
        elif value is not False:
            for one in value if isinstance(value, list) else [value]:
                if flag is None:
                    places.append(str(one))
                else:
                    words += [f"{flag}={one}"] if joined() else [flag, str(one)]
    return words, places


def read_once(name: Any = None, *, dtype: Any = "float32", **options: Any) -> Any:
    """The loader, except that the small model is read once, and no other known one at all."""
    if name is None or is_known(str(name)) or str(name) == str(DATA):
        return _small(str(dtype))
    return _load(name, dtype=dtype, **options)


_load = loader.load


@cache
def _small(dtype: str) -> Any:
    return _load(DATA, dtype=dtype, check=False)


@pytest.fixture(scope="module", autouse=True)
def elsewhere() -> Iterator[None]:
    """Commands run in a folder of their own, with a cache of their own, no network and no browser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWISE_CACHE", str(place().parent / "cache"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr(loader, "load", read_once)
        patch.setattr(webbrowser, "open", lambda url: True)
        inputs()
        patch.chdir(place())
        yield
    shutil.rmtree(place().parents[3], ignore_errors=True)


def run(arguments: Sequence[str], typed: bytes) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    # `models remove` is among them: never the user's own cache.
    assert str(store.cache_folder()).startswith(str(place().parents[3]))
    for path in place().iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for path in {value for word in arguments for value in word.split("=") if value.startswith("in-")}:
        source = place().parent / "inputs" / path.removeprefix("in-")
        if source.is_dir():
            shutil.copytree(source, place() / path)
        elif source.is_file():
            shutil.copy(source, place() / path)
    out, said, before = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(typed))
    state = torch.get_default_dtype(), torch.get_num_threads()
    try:
        with redirect_stdout(out), redirect_stderr(said):
            code = main(arguments)
    finally:
        sys.stdin = before
    assert state == (torch.get_default_dtype(), torch.get_num_threads())
    return code, out.getvalue(), said.getvalue()


def _asks_for_json(arguments: list[str]) -> bool:
    """Whether ``--json`` is surely meant as a flag: behind another option it may be that option's value."""
    if "--json" not in arguments or {"-h", "--help", "--version"} & set(arguments):
        return False
    return not arguments[arguments.index("--json") - 1].startswith("-")


@tried(0.25)
@given(lines(), st.one_of(st.just(PROMPT["prompt"].encode()), st.binary(max_size=20)))
def test_command_lines(arguments: list[str], typed: bytes) -> None:
    code, out, said = run(arguments, typed)
    screen_is_fit(out)
    screen_is_fit(said)
    target = f"command line: {arguments[0] if arguments[0] in VERBS else 'no verb'}"
    assert "Traceback" not in said
    if code == 0:
        COUNTS[target, "taken"] += 1
        if _asks_for_json(arguments):
            json.loads(out)
        return
    assert code == 2, (code, said)
    COUNTS[target, "refused"] += 1
    *before, last = said.splitlines()
    assert last.startswith("headwise: "), said
    line_is_fit(last)
    # What is said before is progress (or a note on a file of prompts), and that is said only where it is wanted.
    assert all(line.startswith("headwise: ") for line in before), said
    assert not before or "-q" not in arguments or arguments[0] in ("circuits", "sinks", "sparsity"), said
    assert not [name for name in os.listdir(".") if name.endswith(".part")]


def test_what_lines_are_made_from_is_taken_as_it_is() -> None:
    """A line that were refused before anything is changed in it would try nothing of its command."""
    for (verb, under), command in commands().items():
        parameters = {str(p.name): p for p in command.params}
        values = sound(verb, under)
        if not values or under == "remove":  # there is nothing to remove in a cache of one's own
            continue
        values |= {"model": str(DATA)} if "model" in parameters and "model" not in values else {}
        words, places = spelled(parameters, values, lambda: False)
        code, _, said = run([verb, *([under] if under else []), *words, *places], b"")
        assert code == 0, (verb, under, said)
