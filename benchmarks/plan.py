"""`headwise plan` against what happens: time and memory of commands, on models of three sizes and two lengths.

    .venv/bin/python benchmarks/plan.py [MODEL TOKENS]

The small trained model that the package carries, a random one of 25 million parameters, and the default model, the last
at two lengths. Each has a process of its own with one thread, and every command runs on five prompts of ordinary text:
the median of its time on the processor, and the peak of its memory. The machine is probed before and after, so that
what others do on it meanwhile slows both alike. Goals: time within 30 %, memory within 15 %.
"""

from __future__ import annotations

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
CASES = (("small", 16), ("random", 48), ("default", 32), ("default", 128))
COMMANDS = ("attention", "explain", "trace", "circuits")


def main(cases: tuple[tuple[str, int], ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = {"small": _small, "random": lambda: _random(Path(folder)), "default": lambda: "default"}
        for name, tokens in cases:
            asked = [sys.executable, __file__, "one", place[name](), str(tokens)]
            subprocess.run(asked, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)


def _line(name: str, command: str, tokens: int, found: dict[str, float]) -> str:
    said = [f"{Path(name).name:8} {command:10} T = {tokens:4}:"]
    for what, unit, scale in (("seconds", "s", 1.0), ("bare", "s", 1.0), ("memory", "MB", 1e-6)):
        real, planned = found[what], found[f"planned_{what}"]
        said.append(
            f"{what} {real * scale:.3g} {unit}, planned {planned * scale:.3g} ({planned / real - 1:+.0%});"
        )
    return " ".join(said)


def _small() -> str:
    from headwise.toy.small_lm import DATA

    return str(DATA)


def _random(folder: Path) -> str:
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
    }
    LlamaForCausalLM(LlamaConfig(vocab_size=8000, **sizes)).save_pretrained(folder / "random")
    AutoTokenizer.from_pretrained(_small()).save_pretrained(folder / "random")
    return str(folder / "random")


def _prompts(model: Any, name: str, tokens: int) -> list[str]:
    """Five prompts of so many tokens: sentences that the small vocabulary has words for, or ordinary text."""
    if name == "default":
        from headwise.sinks.texts import TEXTS

        whole = model.tokenizer(" ".join(TEXTS)).input_ids
    else:
        from headwise.toy.language import sentences

        whole = model.tokenizer(" ".join(one.text for one in sentences(200, 0, "plan"))).input_ids
    parts = [whole[start : start + tokens] for start in range(0, RUNS * tokens, tokens)]
    return [model.tokenizer.decode(part) for part in parts]


def _task(model: Any, name: str, folder: Path, number: int) -> Any:
    """Four prompts with answers."""
    from headwise.tasks.answers.make import make_answers

    if name == "default":
        return make_answers("ioi", model.tokenizer, prompts=4, seed=number)
    from headwise.toy.language import sentences

    file, some = folder / f"{number}.jsonl", {one.text: one for one in sentences(16, number, "plan")}
    lines = [
        {"prompt": one.text, "answer": one.answer, "wrong": one.wrong} for one in list(some.values())[:4]
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return make_answers(file, model.tokenizer)


def _call(command: str, model: Any, name: str, folder: Path) -> Callable[[int, str], object]:
    import headwise
    from headwise.why.attention import strongest_heads

    def circuits(number: int, prompt: str) -> object:
        """Four prompts of a task, which are about as long for every seed."""
        return headwise.trace_many(
            model, _task(model, name, folder, number), out=folder / f"{time.monotonic_ns()}"
        )

    return {
        "attention": lambda number, prompt: strongest_heads(model, prompt),
        "explain": lambda number, prompt: headwise.explain(model, prompt),
        "trace": lambda number, prompt: headwise.trace(model, prompt),
        "circuits": circuits,
    }[command]


def one(name: str, tokens: int) -> None:
    """Measure the commands in this process, and say what was planned."""
    import torch

    import headwise
    from headwise.model.sizes import sizes_of
    from headwise.planning.plan import plan_work
    from headwise.planning.probe import measured_pace

    torch.set_num_threads(1)
    given = None if name == "default" else name
    sizes, model = sizes_of(given), headwise.load(given)
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS if Path(name).name != "random" else COMMANDS[:-1]:  # it knows no answers
            before = measured_pace(sizes)
            found = _measured(model, _call(command, model, name, Path(folder)), _prompts(model, name, tokens))
            length = tokens if command != "circuits" else _length(model, _task(model, name, Path(folder), 0))
            paces = (before, measured_pace(sizes))
            plans = [
                plan_work(sizes, pace, tokens=length, prompts=4, available=10**15).costs for pace in paces
            ]
            costs = [cost for plan in plans for cost in plan if cost.command == command]
            found |= {
                "planned_seconds": statistics.fmean(cost.seconds for cost in costs),
                "planned_bare": statistics.fmean(pace.bare(sizes, tokens) for pace in paces),
                "planned_memory": costs[0].memory,
            }
            print(_line(name, command, length, found), flush=True)


def _length(model: Any, task: Any) -> int:
    return round(statistics.fmean(len(model.prompt_ids(one.prompt)) for one in task.prompts))


def _measured(model: Any, call: Callable[[int, str], object], prompts: list[str]) -> dict[str, float]:
    """Medians of the command's time and of a bare pass in turn, and the peak of memory."""
    import torch

    taken, bare = list[float](), list[float]()
    call(0, prompts[0])
    Path("/proc/self/clear_refs").write_text("5")  # the peak is that of what follows
    for number, prompt in enumerate(prompts):
        ids = torch.tensor([model.prompt_ids(prompt)])
        start = time.process_time()
        with torch.no_grad():
            model.hf(ids, use_cache=False)
        middle = time.process_time()
        call(number, prompt)
        bare.append(middle - start)
        taken.append(time.process_time() - middle)
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    return {"seconds": statistics.median(taken), "bare": statistics.median(bare), "memory": peak}


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main(((sys.argv[1], int(sys.argv[2])),) if len(sys.argv) > 2 else CASES)
