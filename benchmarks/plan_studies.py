"""Studies as `headwise plan` foresees them, against small whole runs of their commands.

    .venv/bin/python benchmarks/plan_studies.py [small|other|default] [RUNS]

The small trained model that the package carries, a random one of another shape than any that work was counted on, and
the default model. Every command runs in one process of one thread, as a user gives it: the median of its time on the
processor, loading apart, and the peak of its memory. The machine is probed before and after all of them. Goals: time
within 30 %, memory within 15 %.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNS = 5
OWN = (
    # The row of the plan, the command, and how many prompts or texts it goes over.
    ("heads TASK", "heads {folder}/objects-90.jsonl", 90),
    ("features TASK", "features {folder}/objects-90.jsonl --hold-out answer --out {out} --workers 1", 90),
    ("explain (a task)", "explain --task {folder}/answers-16.jsonl", 16),
    ("circuits", "circuits {folder}/answers-32.jsonl --out {out} --workers 1", 32),
    ("sparsity", "sparsity {folder}/answers-16.jsonl --workers 1", 16),
    ("intervene (a task)", "intervene --task {folder}/answers-16.jsonl --prompts 8", 8),
    ("head", "head L1H1 --corpus {folder}/texts.jsonl --workers 1", 120),
    ("name", "name L1H1 --corpus {folder}/texts.jsonl --texts 128", 128),
    ("name (all heads)", "name all --corpus {folder}/texts.jsonl --texts 128", 128),
)
CANNOT = ("circuits", "sparsity", "intervene (a task)", "head")
"""What a random model cannot be asked: it knows no answers, and its heads look at nothing much."""
DEFAULT = (
    ("heads TASK", "heads binding --prompts 32", 32),
    ("features TASK", "features binding --prompts 30 --out {out} --workers 1", 30),
    ("explain (a task)", "explain --task ioi --prompts 8", 8),
    ("circuits", "circuits ioi --prompts 16 --out {out} --workers 1", 16),
    ("sparsity", "sparsity ioi --prompts 8 --workers 1", 8),
    ("intervene (a task)", "intervene --task ioi --prompts 4", 4),
    ("head", "head L12H3 --texts 32 --workers 1", 32),
    ("name", "name L12H3 --texts 64 --corpus wikipedia-excerpt", 64),
)
LENGTHS = {"heads TASK": 76, "features TASK": 76}
"""Tokens of the default model's prompts in tasks other than ioi."""


def one(kind: str, runs: int) -> None:
    """Measure the commands with one model, and say what was planned."""
    import torch

    import headwise
    from headwise.model.sizes import sizes_of
    from headwise.planning.plan import command_cost
    from headwise.planning.probe import measured_pace
    from headwise.planning.work import WORK

    torch.set_num_threads(1)
    rows = {row.command: row for row in WORK}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        name = {"small": _small, "other": lambda: _other(folder), "default": lambda: None}[kind]()
        sizes, model = sizes_of(name), headwise.load(name)
        length = 17 if kind == "default" else _files(folder, model)
        del model  # the commands load their own
        loading = statistics.median(_processor(lambda: headwise.load(name)) for _ in range(3))
        before, found = measured_pace(sizes), list[tuple[str, int, float, int]]()
        for command, words, count in DEFAULT if kind == "default" else OWN:
            if kind == "other" and command in CANNOT:
                continue
            taken, peak = _measured(words, name, folder, runs)
            found.append((command, count, taken - loading, peak))
        paces = (before, measured_pace(sizes))
        for command, count, taken, peak in found:
            tokens = rows[command].tokens or (LENGTHS.get(command, length) if kind == "default" else length)
            costs = [
                command_cost(sizes, pace, rows[command], count, tokens, available=10**15) for pace in paces
            ]
            planned = statistics.fmean(cost.seconds for cost in costs)
            print(
                f"{kind:8} {command:18} {count:4} × {tokens:3}: {taken:.3g} s, planned {planned:.3g} "
                f"({planned / taken - 1:+.0%}); {peak / 1e6:.0f} MB, planned {costs[0].memory / 1e6:.0f} "
                f"({costs[0].memory / peak - 1:+.0%})",
                flush=True,
            )


def _measured(words: str, name: str | None, folder: Path, runs: int) -> tuple[float, int]:
    """The median time of a command, and the peak of memory."""
    from headwise.cli.main import main

    def run() -> None:
        given = words.format(folder=folder, out=folder / f"{time.monotonic_ns()}").split()
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = main([*given, *(() if name is None else ("--model", name))])
        if status:
            raise SystemExit(f"{words}: {said.getvalue()}")

    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of what follows
    taken = statistics.median(_processor(run) for _ in range(runs))
    return taken, int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def _processor(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


# --- models and prompts ----------------------------------------------------------------------------------------------


def _small() -> str:
    from headwise.toy.small_lm import DATA

    return str(DATA)


def _other(folder: Path) -> str:
    """A random model of a shape that no work was counted on, with shared keys."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    sizes: dict[str, Any] = {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    }
    LlamaForCausalLM(LlamaConfig(vocab_size=8000, **sizes)).save_pretrained(folder / "other")
    AutoTokenizer.from_pretrained(_small()).save_pretrained(folder / "other")
    return str(folder / "other")


def _files(folder: Path, model: Any) -> int:
    """Prompts and texts in words that the small vocabulary has; gives the prompts' length in tokens."""
    from headwise.toy.language import sentences

    made = list({one.text: one for one in sentences(400, 0, "plan")}.values())
    for count in (16, 32, 90):
        some = made[:count]
        answers = [{"prompt": one.text, "answer": one.answer, "wrong": one.wrong} for one in some]
        objects = [
            {
                "prompt": _marked(one.text, one.answer, one.wrong),
                "positive": ["answer"],
                "negative": ["wrong"],
                "groups": {"answer": one.answer, "wording": str(one.wording + 1)},
                "feature": "object",
            }
            for one in some
        ]
        _write(folder / f"answers-{count}.jsonl", answers)
        _write(folder / f"objects-{count}.jsonl", objects)
    texts = [" ".join(one.text for one in sentences(8, seed, "texts")) for seed in range(300)]
    _write(folder / "texts.jsonl", [{"text": text} for text in texts])
    return round(statistics.fmean(len(model.prompt_ids(one.text)) for one in made))


def _marked(text: str, answer: str, wrong: str) -> str:
    words = text.split(" ")
    for role, word in (("answer", answer), ("wrong", wrong)):
        words[words.index(word)] = f"[[{role}:{word}]]"
    return " ".join(words)


def _write(file: Path, lines: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        asked = [word for word in sys.argv[1:] if not word.isdecimal()] or ["small", "other", "default"]
        runs = next((word for word in sys.argv[1:] if word.isdecimal()), str(RUNS))
        for kind in asked:
            subprocess.run(
                [sys.executable, __file__, "one", kind, runs],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                check=True,
            )
