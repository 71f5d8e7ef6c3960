"""Half precision: found out in a child, once, and never by a signal to the user's own process."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny_folders
import torch
from tiny import tiny
from transformers import AutoModelForCausalLM

from headwise.cli.main import main
from headwise.errors import HeadwiseError, NeedsSetting
from headwise.model.loading import half, load
from headwise.survey.collect import trace_many
from headwise.toy.small_lm import DATA

# What a child does on a processor that refuses what it announces, unless it is kept off it.
REFUSING = """
import os, signal
if os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX512_CORE":
    os.kill(os.getpid(), signal.SIGILL)
"""


class Trial:
    """A trial that dies unless one of ``sound`` is set, and counts how often it was asked."""

    def __init__(self, *sound: str) -> None:
        self.sound, self.asked = sound, []

    def __call__(self, dtype: str, variables: Mapping[str, str]) -> half.HalfOutcome:
        self.asked.append((dtype, dict(variables)))
        return "works" if variables.get(half.ISA) in self.sound else "dies"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that announces, with nothing set and nothing remembered."""
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    for name in (half.ISA, half.CAPABILITY, half.RESTARTED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(half, "announced", lambda: True)
    half._needed.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folders.write_folder(tmp_path_factory.mktemp("models") / "tiny")


def test_the_first_setting_that_works_is_taken_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial("AVX512_CORE", "AVX2")
    monkeypatch.setattr(half, "probe", trial)
    assert half.needed("bfloat16") == {half.ISA: "AVX512_CORE"}
    tried = [dict(variables).get(half.ISA) for _, variables in trial.asked]
    assert tried == [None, "AVX512_CORE_BF16", "AVX512_CORE"]
    half._needed.cache_clear()  # as another process would
    assert half.needed("bfloat16") == {half.ISA: "AVX512_CORE"}
    assert len(trial.asked) == 3
    half.needed("float16")  # another type is another question
    assert len(trial.asked) == 6


def test_a_process_started_with_the_setting_needs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial("AVX512_CORE_BF16")
    monkeypatch.setattr(half, "probe", trial)
    assert half.needed("bfloat16") == {half.ISA: "AVX512_CORE_BF16"}
    monkeypatch.setenv(half.ISA, "AVX512_CORE_BF16")
    assert half.needed("bfloat16") == {}
    assert len(trial.asked) == 2  # known from the first time


def test_another_processor_is_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "probe", trial := Trial("AVX2"))
    half.needed("bfloat16")
    monkeypatch.setattr(half, "_processor", lambda: {"flags": "amx_bf16", "model name": "another"})
    half._needed.cache_clear()
    half.needed("bfloat16")
    assert len(trial.asked) == 8


@pytest.mark.parametrize(
    ("dtype", "device"), [("float32", "cpu"), ("torch.float64", "cpu"), ("bfloat16", "cuda")]
)
def test_what_needs_no_trial_has_none(dtype: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "probe", trial := Trial())
    half.refuse_if_deadly(dtype, device)
    monkeypatch.setattr(half, "announced", lambda: False)
    half.refuse_if_deadly("bfloat16")
    assert trial.asked == []


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx2 avx512f", False),
        ("fpu amx_tile amx_bf16", True),
        ("avx512_bf16", True),
        ("fp asimd bf16", True),
        ("", False),
    ],
)
def test_what_counts_as_announced(
    flags: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    told = tmp_path / "cpuinfo"
    word = "Features" if "asimd" in flags else "flags"
    told.write_text(
        f"processor\t: 0\ncpu MHz\t: 1.0\n{word}\t: {flags}\n\nprocessor\t: 1\nflags\t: amx_tile\n"
    )
    monkeypatch.setattr(half, "_CPUINFO", told)
    half._processor.cache_clear()
    try:
        assert half.announced() is expected
        assert "cpu MHz" not in half._processor()
        monkeypatch.setattr(half, "_CPUINFO", tmp_path / "nowhere")
        half._processor.cache_clear()
        assert not half.announced()
    finally:
        half._processor.cache_clear()


def test_a_damaged_memory_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "probe", trial := Trial("AVX2"))
    for content in ("{", "[]", '{"bfloat16": "perhaps"}', "[" * 100_000):
        half._memory().parent.mkdir(parents=True, exist_ok=True)
        half._memory().write_text(content)
        half._needed.cache_clear()
        trial.asked.clear()
        assert half.needed("bfloat16") == {half.ISA: "AVX2"}
        assert len(trial.asked) == 4


def test_a_child_that_dies_is_only_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "PROBE", REFUSING)
    assert half.probe("bfloat16", {}) == "dies"
    assert half.probe("bfloat16", {half.ISA: "AVX512_CORE"}) == "works"
    assert half.needed("bfloat16") == {half.ISA: "AVX512_CORE"}


def test_a_child_killed_from_outside_says_nothing_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "PROBE", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(HeadwiseError, match="ended by signal 9"):
        half.needed("bfloat16")
    assert not half._memory().exists()
    monkeypatch.setattr(half, "PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(half, "PATIENCE", 0.2)
    with pytest.raises(HeadwiseError, match="cannot be found out"):
        half.needed("bfloat16")


@pytest.mark.slow
def test_the_working_folder_is_not_asked_for_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(half, "PROBE", "import torch")
    half.probe("bfloat16", {})
    assert not (tmp_path / "ran").exists()


def test_python_is_told_what_to_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half, "probe", Trial("AVX512_CORE_BF16"))
    line = r"set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts, or use float32"
    with pytest.raises(HeadwiseError, match=line):
        load.load(folder, dtype="bfloat16")
    with pytest.raises(HeadwiseError, match=line):
        tiny("llama", torch.float16)  # a model made by hand
    assert load.load(folder).dtype == torch.float32
    monkeypatch.setattr(half, "probe", Trial())
    half._needed.cache_clear()
    half._memory().unlink()
    with pytest.raises(HeadwiseError, match="cannot be computed on this processor, whatever is set"):
        load.load(folder, dtype="bfloat16")


def test_what_to_set_can_be_sent_from_a_worker() -> None:
    error = pickle.loads(pickle.dumps(NeedsSetting("set it", {"A": "1"})))
    assert (str(error), error.variables) == ("set it", {"A": "1"})


def test_the_command_line_asks_to_start_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(half, "probe", Trial("AVX512_CORE_BF16"))
    asked: list[Mapping[str, str]] = []
    assert main(["doctor", str(folder), "--dtype", "bfloat16"], start_again=asked.append) == 2
    assert asked == [{half.ISA: "AVX512_CORE_BF16"}]
    assert "before Python starts" in capsys.readouterr().err


# The command with a processor that refuses; every start leaves a line.
COMMAND = f"""
import os, sys
from headwise.model.loading import half
half.PROBE = {REFUSING!r}
half.announced = lambda: True
with open(os.environ["STARTS"], "a") as log:
    print(os.getpid(), os.environ.get(half.ISA), "torch" in sys.modules, file=log)
from headwise.cli.main import run
run()
"""


def command(log: Path, *words: Any, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, words)],
        env={**os.environ, "STARTS": str(log), **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_the_command_line_starts_itself_again_once(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "starts"
    done = command(log, "doctor", folder, "--dtype", "bfloat16", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"]
    assert done.stderr == ""
    first, second = (line.split() for line in log.read_text().splitlines())
    assert first[0] == second[0]  # the same process, so that whoever waits for it notices nothing
    assert (first[1], second[1]) == ("None", "AVX512_CORE")
    assert second[2] == "False"
    # Remembered: the next command needs no trial, and a command that was started again never loops.
    done = command(log, "doctor", folder, "--dtype", "bfloat16", **{half.RESTARTED: "1"})
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "set ONEDNN_MAX_CPU_ISA=AVX512_CORE before Python starts" in done.stderr
    assert len(log.read_text().splitlines()) == 3


@pytest.fixture(scope="module")
def halves_run(answer_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that somebody made in bfloat16, where that works (this process has been started so that it does)."""
    out = tmp_path_factory.mktemp("halves") / "run"
    trace_many(load.load(DATA, dtype="bfloat16"), answer_file, out=out)
    return out


@pytest.mark.slow
def test_families_of_a_run_in_half_precision_start_again(halves_run: Path, tmp_path: Path) -> None:
    """Nobody asks for half precision here: the run's manifest does."""
    log, words = tmp_path / "starts", ("--model", DATA, "--sample", "2", "--json")
    done = command(log, "families", halves_run, "--out", tmp_path / "families", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_families"] >= 1
    assert "ONEDNN" not in done.stderr
    first, second = (line.split() for line in log.read_text().splitlines())
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("None", "AVX512_CORE")
    # Without edited passes no model is loaded, and the first start is the only one.
    done = command(log, "families", halves_run, "--no-causality", "--out", tmp_path / "more", "--json")
    assert done.returncode == 0, done.stderr
    assert len(log.read_text().splitlines()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["explain"], ["attention"], ["trace", "--answer", "mary"]])
def test_weights_kept_in_half_precision_need_no_second_start(verb: list[str], tmp_path: Path) -> None:
    """Verbs compute in single precision, whatever a folder keeps: no trial, one start."""
    kept = AutoModelForCausalLM.from_pretrained(DATA, dtype=torch.bfloat16)
    kept.save_pretrained(tmp_path / "model")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DATA / file, tmp_path / "model")
    log, prompt = tmp_path / "starts", "then anna and mary went to the park . anna gave a book to"
    done = command(log, verb[0], prompt, *verb[1:], "--model", tmp_path / "model", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert [line.split()[1] for line in log.read_text().splitlines()] == ["None"]
    assert not half._memory().parent.exists()


def test_finding_out_does_not_load_torch() -> None:
    code = "import sys; from headwise.model.loading import half; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", half.HALVES)
def test_this_very_processor_has_a_way(folder: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing set and nothing known, as a user would start it."""
    monkeypatch.undo()
    environment = {k: v for k, v in os.environ.items() if k not in (half.ISA, half.CAPABILITY)}
    done = subprocess.run(
        [sys.executable, "-m", "headwise.cli.main", "doctor", str(folder), "--dtype", dtype],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
