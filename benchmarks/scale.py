"""How much faster two workers of one thread each are than one, and what Ray costs beside plain processes.

    .venv/bin/python benchmarks/scale.py [PROMPTS]          200 prompts of the default model: a few minutes
    .venv/bin/python benchmarks/scale.py small [PROMPTS]    the small trained model that the package carries

Start-up apart: every engine is started and first traces prompts that do not count, so that all workers have loaded the
model. Then the prompts are cut into rounds, and in each round every engine traces the same prompts, in turns. On a
machine that others use, too, two workers need two free cores at once, and time on the wall says little: beside it, in
brackets, is the time of the processor, of all processes that an engine has. Two workers that need c times the processor
time of one are 2/c times as fast where two cores are free.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
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
PART = 4
"""Prompts in a chunk: enough chunks that no worker waits long for the other at the end of a round."""
ENGINES: dict[str, WorkSharing] = {"one": 1, "two processes": 2, "two of Ray": RayCluster(workers=2)}


def processor_time() -> float:
    """Seconds of the processor that this process and all that it began have taken so far, those of Ray included."""
    seconds: dict[int, float] = {}
    parent: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
        except OSError:  # it has just ended
            continue
        parent[int(folder.name)] = int(fields[1])
        # utime and stime, and those of children that have ended
        seconds[int(folder.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def ours(process: int) -> bool:
        while process not in (0, os.getpid()):
            process = parent.get(process, 0)
        return process != 0

    return sum(taken for process, taken in seconds.items() if ours(process))


@dataclass(frozen=True)
class Taken:
    """Seconds on the wall and of the processor, and what was made in them."""

    wall: float
    processor: float
    made: list[bytes]


def timed(engine: Engine, prompts: Sequence[AnswerPrompt]) -> Taken:
    job, began, used = TraceJob(), time.perf_counter(), processor_time()
    made = list(map_chunks(job, cut(prompts, PART), engine=engine))
    wall, processor = time.perf_counter() - began, processor_time() - used
    return Taken(wall, processor, [job.to_bytes(one) for one in made])


def compared(model: headwise.Model, prompts: Sequence[AnswerPrompt]) -> None:
    torch.set_num_threads(1)
    rounds: list[dict[str, Taken]] = []
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(closing(engine_for(model, workers)))
            for name, workers in ENGINES.items()
        }
        for engine in engines.values():
            timed(engine, prompts[: 4 * PART])
        size = -(-len(prompts) // ROUNDS)
        for low in range(0, len(prompts), size):
            # Each engine comes first, second and third in turns: whatever else the machine does hits all alike.
            order = list(engines)[len(rounds) % 3 :] + list(engines)[: len(rounds) % 3]
            rounds.append({name: timed(engines[name], prompts[low : low + size]) for name in order})
            said = "   ".join(
                f"{name} {one.wall:6.1f} s ({one.processor:.1f} s)"
                for name, one in sorted(rounds[-1].items())
            )
            print(f"round {len(rounds)}: {said}   load {os.getloadavg()[0]:.1f}", flush=True)
    for one in rounds:
        assert len({tuple(taken.made) for taken in one.values()}) == 1, "the bytes differ"
    print(f"{len(prompts)} prompts in {model.name}: the same bytes by all ({os.cpu_count()} cores)")
    report(rounds, "two processes", "one", goal="faster: goal 1.7", faster=True)
    report(rounds, "two of Ray", "two processes", goal="the time: goal at most 1.15", faster=False)


def report(rounds: Sequence[dict[str, Taken]], name: str, other: str, *, goal: str, faster: bool) -> None:
    """One engine against another: on the wall, median over rounds, and of the processor in all rounds together."""
    walls = [one[name].wall / one[other].wall for one in rounds]
    processor = sum(one[name].processor for one in rounds) / sum(one[other].processor for one in rounds)
    wall = statistics.median(1 / ratio if faster else ratio for ratio in walls)
    print(f"{name} against {other}: {wall:.2f} × {goal} (median of {len(walls)} rounds)")
    print(f"    {processor:.2f} × its processor time")


def main(which: str, number: int) -> None:
    if which == "default":
        model = headwise.load()
        prompts = make_answers("ioi", model.tokenizer, prompts=number).prompts
    else:
        from toy_answers import answer_lines, small_model, write_lines  # pyright: ignore[reportMissingImports]

        model = small_model()
        with tempfile.TemporaryDirectory() as folder:
            file = write_lines(Path(folder, "answers.jsonl"), answer_lines(number))
            prompts = make_answers(file, model.tokenizer).prompts
    compared(model, prompts)


if __name__ == "__main__":
    small = "small" in sys.argv[1:]
    numbers = [int(given) for given in sys.argv[1:] if given.isdecimal()]
    main("small" if small else "default", numbers[0] if numbers else 200)
