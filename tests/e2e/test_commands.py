"""The commands as a user runs them, on the real default model, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny import tiny

from headwise.cli.main import main
from headwise.model.model import Model

PROMPT = "When John and Mary went to the store, John gave a drink to"


def headwise(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "300"}
    return subprocess.run(
        [sys.executable, "-m", "headwise.cli.main", *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )


@pytest.mark.real
def test_doctor_passes_on_the_default_model() -> None:
    done = headwise("doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"model", "family", "layers", "heads", "kv_heads", "checks", "ok"}
    assert (found["family"], found["layers"], found["heads"], found["kv_heads"]) == ("llama", 30, 9, 3)
    assert found["ok"]
    assert len(found["checks"]) == 8
    for check in found["checks"]:
        assert set(check) == {"name", "error", "tolerance", "ok"}
        assert check["error"] <= 1e-5


@pytest.mark.real
def test_attention_answers_mary_and_fits_the_terminal() -> None:
    done = headwise("attention", PROMPT, "--to", " John", "--to", " Mary")
    assert done.returncode == 0, done.stderr
    assert "Answer: ' Mary' 0.9" in done.stdout
    assert "' to' (13) attends to ' Mary' (3)" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.real
def test_attention_as_json_equals_the_models_own_pattern(smollm2: Model) -> None:
    done = headwise("attention", PROMPT, "--to", "3", "--json", "--top", "3")
    place = json.loads(done.stdout)["places"][0]
    pattern = smollm2.capture(PROMPT, queries=-1, keys=3, want=("pattern",)).pattern[0, :, 0, 0]
    best = pattern.topk(3)
    assert [row["head"] for row in place["heads"]] == [str(smollm2.heads[i]) for i in best.indices]
    assert [row["attention"] for row in place["heads"]] == pytest.approx(best.values.tolist(), abs=1e-5)


def broken_model(folder: Path, value: float) -> str:
    """A model with one row of a weight set to a value."""
    model = tiny("llama")
    with torch.no_grad():
        model.hf.model.layers[1].self_attn.k_proj.weight[0] = value
    model.hf.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return str(folder)


def test_doctor_fails_on_a_model_whose_numbers_overflow(tmp_path: Path) -> None:
    done = headwise("doctor", broken_model(tmp_path / "huge", 3e38))
    assert done.returncode == 1, done.stderr
    assert "FAILED" in done.stdout
    assert "cannot be trusted" in done.stdout


def test_doctor_names_the_weight_that_is_not_a_number(tmp_path: Path) -> None:
    done = headwise("doctor", broken_model(tmp_path / "broken", float("nan")))
    assert done.returncode == 2
    assert "model.layers.1.self_attn.k_proj.weight" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.real
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attention", PROMPT, "--to", "Bob"], "token 'Bob' is not in the prompt"),
        (["attention", PROMPT, "--to", "99"], "position 99 is outside the prompt, which has 14 tokens"),
        (
            ["attention", PROMPT, "--to", "5", "--query", "2"],
            "key ' to' (5) comes after query ' and' (2), which cannot see it",
        ),
        (
            ["attention", PROMPT, "--query", "John"],
            "query 'John' occurs at positions 1 and 9: pass one of them",
        ),
        (["attention", ""], "the prompt is empty"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_two(
    arguments: list[str],
    message: str,
    smollm2: Model,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "headwise.model.loading.load.load", lambda *_, **__: smollm2
    )  # loaded once, not once a case
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) == 1
    assert message in printed.err


def _tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"<unk>": 0, **{f"w{i}": i for i in range(1, 61)}}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
