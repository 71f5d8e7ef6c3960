"""How much faster two workers of one thread each are than one, and what Ray costs beside plain processes.

    .venv/bin/python benchmarks/scale.py            200 prompts of the small trained model that the package carries
    .venv/bin/python benchmarks/scale.py default    48 prompts of the default model

Start-up apart: every engine first traces prompts that do not count, so that all workers have loaded the model. Engines
take turns, and the shortest of the rounds is taken: on a machine that others use, too, two workers need two free cores
at once. How many were free is said beside every round.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

import headwise
from headwise.scale.cluster import RayCluster, WorkSharing
from headwise.scale.engines import Engine, engine_for
from headwise.scale.mapping import map_chunks
from headwise.scale.work import cut
from headwise.survey.chunks import TraceJob
from headwise.tasks.answers.make import make_answers
from headwise.tasks.answers.types import AnswerPrompt

ROUNDS = 5
PART = 8
"""Prompts in a chunk: enough chunks that no worker waits long for the other at the end."""
ENGINES: dict[str, WorkSharing] = {"one": 1, "two processes": 2, "two of Ray": RayCluster(workers=2)}


def timed(engine: Engine, prompts: Sequence[AnswerPrompt]) -> tuple[float, list[bytes]]:
    """Seconds, and what was made."""
    job, began = TraceJob(), time.perf_counter()
    made = list(map_chunks(job, cut(prompts, PART), engine=engine))
    return time.perf_counter() - began, [job.to_bytes(one) for one in made]


def compared(model: headwise.Model, prompts: Sequence[AnswerPrompt]) -> None:
    torch.set_num_threads(1)
    best: dict[str, float] = {}
    made: dict[str, list[bytes]] = {}
    for number in range(ROUNDS):
        for name, workers in ENGINES.items():
            with closing(engine_for(model, workers)) as engine:
                timed(engine, prompts[: 4 * PART])
                seconds, made[name] = timed(engine, prompts)
            best[name] = min(seconds, best.get(name, seconds))
            busy = os.getloadavg()[0]
            print(
                f"round {number + 1}: {name:14} {seconds:7.2f} s   (load {busy:.1f} on {os.cpu_count()} cores)",
                flush=True,
            )
    assert made["one"] == made["two processes"] == made["two of Ray"], "the bytes differ"
    print(f"{len(prompts)} prompts in {model.name}: the same bytes by all")
    print(f"two processes against one: {best['one'] / best['two processes']:.2f} × (goal 1.7)")
    print(
        f"Ray against two processes: {best['two of Ray'] / best['two processes']:.2f} × (goal at most 1.15)"
    )


def main(which: str) -> None:
    if which == "default":
        model = headwise.load()
        prompts = make_answers("ioi", model.tokenizer, prompts=48).prompts
    else:
        from toy_answers import answer_lines, small_model, write_lines  # pyright: ignore[reportMissingImports]

        model = small_model()
        with tempfile.TemporaryDirectory() as folder:
            file = write_lines(Path(folder, "answers.jsonl"), answer_lines(200))
            prompts = make_answers(file, model.tokenizer).prompts
    compared(model, prompts)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "small")
