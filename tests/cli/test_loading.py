"""How a model is loaded, said on the command line: the same model, and the same numbers, as Python's ``load``."""

from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from alike import assert_alike

import headwise
from headwise.app import studies, wire_edits, wire_runs
from headwise.app.takeaway import Takeaway
from headwise.cli import loading
from headwise.cli.main import VERBS, main
from headwise.cli.verb import loads
from headwise.model.loading import load as home
from headwise.model.model import Model
from headwise.scale import engines
from headwise.toy.small_lm import DATA

PROMPT = "then mary gave the hat to"
LOADING = {
    *(
        "app",
        "attention",
        "explain",
        "trace",
        "intervene",
        "heads",
        "head",
        "features",
        "circuits",
        "families",
    ),
    *("sinks", "name", "sparsity", "reproduce", "calibrate", "doctor"),
}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Model]:
    """The models that commands load."""
    found: list[Model] = []
    really = home.load

    def load(*given: Any, **settings: Any) -> Model:
        found.append(really(*given, **settings))
        return found[-1]

    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(home, "load", load)
    return found


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--model", str(DATA), "--json", "-q"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return json.loads(said.out)


def numbers(document: Any) -> Any:
    return {name: value for name, value in document.items() if name not in ("seconds", "timing")}


def test_half_precision_is_that_of_python(seen: list[Model], capsys: pytest.CaptureFixture[str]) -> None:
    whole = printed(capsys, "trace", PROMPT)
    half = printed(capsys, "--dtype", "bfloat16", "trace", PROMPT)
    assert [model.dtype for model in seen] == [torch.float32, torch.bfloat16]
    assert numbers(half) == numbers(printed(capsys, "trace", PROMPT, "--dtype=bfloat16"))
    expected = headwise.trace(headwise.load(DATA, dtype="bfloat16"), PROMPT).to_json()
    assert_alike(numbers(half), numbers(expected), 1e-6)
    assert seen[0].weight_hash != seen[1].weight_hash
    assert seen[1].weight_hash in json.dumps(half) and seen[0].weight_hash in json.dumps(whole)
    assert main(["attention", "--model", str(DATA), "-q", "--dtype", "float16", "--", "--dtype"]) == 0
    assert seen[-1].dtype == torch.float16  # what comes after -- is the prompt


def test_layers_on_disk_give_the_same_numbers(
    seen: list[Model], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {f"gpt_neox.{name}": "cpu" for name in ("embed_in", "emb_dropout", "rotary_emb", "layers.0")}
    places |= {"gpt_neox.layers.1": "cpu", "gpt_neox.layers.2": "disk", "gpt_neox.final_layer_norm": "disk"}
    places |= {"lm_head": "cpu"}
    file = tmp_path / "map.json"
    file.write_text(json.dumps(places))
    whole = printed(capsys, "explain", PROMPT, "--draws", "19")
    spread = printed(
        capsys,
        "explain",
        PROMPT,
        "--draws",
        "19",
        "--device-map",
        str(file),
        "--offload",
        str(tmp_path / "off"),
    )
    kept = {name for name, one in seen[-1].hf.named_parameters() if one.device.type == "meta"}
    assert any(".layers.2." in name for name in kept) and not any(".layers.0." in name for name in kept)
    assert_alike(numbers(spread), numbers(whole), 1e-4)
    limited = printed(capsys, "attention", PROMPT, "--device-map", "auto", "--max-memory", "cpu=100KB")
    assert "disk" in set(seen[-1].hf.hf_device_map.values())
    assert_alike(limited, printed(capsys, "attention", PROMPT), 1e-4)


def test_workers_load_what_was_asked_for(
    seen: list[Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker is told the model's origin, and nothing else."""
    task, out = tmp_path / "task.jsonl", tmp_path / "run"
    task.write_text(
        "".join(
            json.dumps({"prompt": f"then {name} gave a book to", "answer": "paul", "wrong": name}) + "\n"
            for name in ("mary", "grace")
        )
    )
    printed(
        capsys, "circuits", str(task), "--out", str(out), "--workers=1", "--dtype=bfloat16", "--device=cpu"
    )
    assert json.loads((out / "manifest.json").read_text())["config"]["dtype"] == "bfloat16"
    source = engines.ModelSource.of(seen[-1])
    assert (source.origin["dtype"], source.origin["device"]) == ("bfloat16", "cpu")
    monkeypatch.setattr(engines, "_loaded", None)
    assert engines.loaded(source).weight_hash == seen[0].weight_hash
    assert seen[-1] is not seen[0] and seen[-1].dtype == torch.bfloat16


def test_the_app_hands_on_how_its_model_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr(studies, "begin_command", lambda words, **_: begun.append(words))
    words = ("--dtype=bfloat16", "--device=cpu")
    studies.Studies(tmp_path, "m", words).begin(wire_runs.SinksStudy(kind="sinks"))
    assert begun[0][-4:] == ["--model", "m", *words]
    origin = {"name": "m", "dtype": "bfloat16", "device": "cpu", "device_map": None, "revision": None}
    asked = wire_edits.PlaceAsked(screen="prompt", text="- x")
    said = Takeaway(asked, "m", [], words, origin).said()
    assert "--model m --dtype=bfloat16 --device=cpu -- '- x'" in said.command
    assert "headwise.load('m', dtype='bfloat16', device='cpu')\n" in said.python


def test_help_says_how_where_a_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    takes = {verb: loads(import_module(module).app) for verb, (module, _) in VERBS.items()}
    assert {verb for verb, taken in takes.items() if taken == tuple(loading.OPTIONS)} == LOADING
    # A plan reads no weights: all it is told is how wide each would be.
    assert {verb: taken for verb, taken in takes.items() if taken and verb not in LOADING} == {
        "plan": ("--dtype",)
    }
    for verb, taken in takes.items():
        assert main([verb, "--help"]) == 0
        shown = capsys.readouterr().out
        assert [name for name in loading.OPTIONS if f"\n  {name} " in shown] == list(taken)


def test_no_command_loads_in_a_way_of_its_own() -> None:
    """A new command cannot forget the options: only their module knows the library's ``load``."""
    folder, users = Path(loading.__file__).parent, set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and "load" in {name.name for name in node.names}:
                users.add((file.stem, node.module))
    assert ("loading", "headwise.model.loading.load") in users
    others = {module for stem, module in users if stem != "loading"}
    assert others == {"headwise.cli.loading"}
    assert {stem for stem, _ in users} - {"loading", "explain_more", "explain_row"} == LOADING - {"reproduce"}
