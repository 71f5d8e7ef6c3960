"""How often is something claimed where nothing is there? The benchmark in small, and whole runs on a trained model."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from headwise.contrast.study import find_features
from headwise.intervals import wilson
from headwise.model.loading.load import load
from headwise.randomness import keyed
from headwise.toy.language import NAMES, sentences
from headwise.toy.small_lm import DATA

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "calibration.py"
TRIED = 60


def benchmark() -> ModuleType:
    if str(BENCHMARK.parent) not in sys.path:
        sys.path.insert(0, str(BENCHMARK.parent))  # it reads a file beside it
    spec = importlib.util.spec_from_file_location("calibration_benchmark", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.calibration
@pytest.mark.parametrize("name", list(benchmark().TRIALS))
def test_nothing_is_rarely_called_something_and_much_often(name: str) -> None:
    module = benchmark()
    trial, effects = module.TRIALS[name]
    assert wilson(module.rate(trial, 0.0, TRIED), TRIED)[0] <= 0.05
    power = [module.rate(trial, effect, 20) for effect in effects]
    assert power[0] <= power[-1] + 2 and power[-1] >= 14


def shuffled_lines(path: Path, seed: int, number: int = 48) -> Path:
    """Sentences of two people; which of them is called positive is drawn by lot."""
    lines = []
    lots = torch.randint(2, (number,), generator=keyed(seed, "lots")).tolist()
    for one, lot in zip(sentences(number, seed, "calibration"), lots, strict=True):
        people = [word for word in one.text.split() if word in NAMES][:2]
        names = ("right", "wrong") if lot else ("wrong", "right")
        text = one.text
        for person, name in zip(people, names, strict=True):
            before, after = text.split(f"{person} ", 1)
            text = f"{before}[[{name}:{person}]] {after}"
        groups = {"entity": people[0], "wording": str(one.wording)}
        line = {"prompt": text, "positive": ["right"], "negative": ["wrong"], "groups": groups}
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.calibration
def test_whole_runs_on_shuffled_labels_support_next_to_nothing(tmp_path: Path) -> None:
    model = load(DATA)
    supported = 0
    for seed in range(40):
        file = shuffled_lines(tmp_path / f"{seed}.jsonl", seed)
        found = find_features(model, file, heads="L1H0,L2H1", draws=100, seed=seed)
        supported += any(f.supported for f in found.features) or any(h.supported for h in found.heads)
    assert supported <= 5
