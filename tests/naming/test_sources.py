"""What can be named, from fresh folders: a circuit file, a run of circuits, families of them, a feature bank."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_banks import random_bank
from words import worded_model

import headwise
from headwise.cli.main import main
from headwise.known_names import KnownNames
from headwise.model.model import Model
from headwise.naming.sources import read_source
from headwise.randomness import keyed
from headwise.types import Head


@pytest.fixture(scope="module")
def model() -> Model:
    return worded_model()


@pytest.fixture(scope="module")
def words(model: Model) -> list[str]:
    # Sorted: a tokenizer lists its vocabulary in another order every time.
    return sorted(word for word in model.tokenizer.get_vocab() if word.isalpha() and word.isascii())


def sentences(words: list[str], count: int, length: int) -> list[str]:
    drawn = torch.randint(len(words), (count, length), generator=keyed(0, "sentences"))
    return [" ".join(words[i] for i in row) for row in drawn.tolist()]


def circuit_file(model: Model, words: list[str], folder: Path) -> Path:
    headwise.trace(model, sentences(words, 1, 8)[0]).save(folder / "circuit.json")
    return folder / "circuit.json"


def circuits_run(model: Model, words: list[str], folder: Path) -> Path:
    lines = [
        json.dumps(
            {"prompt": one, "answer": words[n], "wrong": words[n + 30], "labels": {"half": str(n % 2)}}
        )
        for n, one in enumerate(sentences(words, 30, 7))
    ]
    (folder / "task.jsonl").write_text("\n".join(lines), encoding="utf-8")
    headwise.trace_many(model, str(folder / "task.jsonl"), out=folder / "circuits")
    return folder / "circuits"


def families_folder(model: Model, words: list[str], folder: Path) -> Path:
    headwise.find_families(circuits_run(model, words, folder), out=folder / "families")
    return folder / "families"


def bank_file(model: Model, words: list[str], folder: Path) -> Path:
    random_bank(model, Head(2, 1)).save(folder / "bank.safetensors")
    return folder / "bank.safetensors"


def folder_without_labels(model: Model, words: list[str], folder: Path) -> Path:
    file = folder / "prose.jsonl"
    file.write_text(
        "\n".join(json.dumps({"text": one}) for one in sentences(words, 200, 20)), encoding="utf-8"
    )
    headwise.find_features(model, file, heads=["L2H1"], out=folder / "unlabelled")
    return folder / "unlabelled"


@pytest.mark.parametrize(
    "make", [circuit_file, circuits_run, families_folder, bank_file, folder_without_labels]
)
def test_every_source_can_be_named_and_shown(
    make: Callable[[Model, list[str], Path], Path],
    model: Model,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = make(model, words, tmp_path)
    chosen = read_source(model, str(source), top=3)
    assert 1 <= len(chosen) <= 3
    assert {one.level for one in chosen.subjects} == {
        "feature" if make in (bank_file, folder_without_labels) else "signal"
    }
    texts = sentences(words, 120, 18)
    (tmp_path / "texts.jsonl").write_text(
        "\n".join(json.dumps({"text": one}) for one in texts), encoding="utf-8"
    )
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: model)
    asked = ["--corpus", str(tmp_path / "texts.jsonl"), "--tokens", "20", "--top", "3"]
    assert main(["name", str(source), *asked, "--out", str(tmp_path / "names")]) == 0
    capsys.readouterr()
    known = KnownNames.load(tmp_path / "names")
    assert set(known.by_signal) == {str(one) for one in chosen.subjects}
    assert all(one.evidence.startswith("names.html#") for one in known.by_signal.values())
    page = (tmp_path / "names" / "names.html").read_text(encoding="utf-8")
    for one in known.by_signal.values():
        assert f'id="{one.evidence.partition("#")[2]}"' in page.replace("id=L", 'id="L').replace("'", '"')
