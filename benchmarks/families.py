"""Many circuits, side by side with bare forward passes. Prints ratios.

python benchmarks/families.py                      all parts
python benchmarks/families.py speed [PROMPTS]      (a) prompts traced a second against bare forward passes (64 prompts)
python benchmarks/families.py memory [FEW MANY]    (b) peak memory of a run by its number of prompts (60 and 240)

The bounds are for `memory 300 3000`, which takes long; smaller numbers are printed as what they are.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

BATCH = 16


def taken(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def speed(count: int = 64) -> None:
    """Whole chunks, as a run traces them, in turns with bare passes over the same prompts; one thread for all."""
    import headwise
    from headwise.channels.channels import layer_channels
    from headwise.families.chunks import CHUNK, TraceRules, cut, trace_chunk
    from headwise.model.batch import Batch
    from headwise.tasks.answer_tasks import make_answers

    torch.set_num_threads(1)
    model = headwise.load()
    for layer in range(model.n_layers):
        layer_channels(model, layer)
    answers = make_answers("ioi", model.tokenizer, prompts=count)
    chunks = cut(answers.prompts)
    rules = TraceRules()

    def forward(rows: list[list[int]]) -> None:
        with torch.no_grad():
            model.hf(input_ids=Batch.of(rows).ids, use_cache=False)

    trace_chunk(model, cut(answers.prompts[:4])[0], rules)
    traced, single, batched = [], [], []
    for chunk in chunks:  # in turns, so that a busy moment of the machine hits all alike
        ids = [list(model.tokenizer(p.prompt).input_ids) for p in chunk.prompts]
        by_length = sorted(ids, key=len)
        single.append(taken(lambda ids=ids: [forward([row]) for row in ids]))
        traced.append(taken(lambda chunk=chunk: trace_chunk(model, chunk, rules)))
        batches = [by_length[i : i + BATCH] for i in range(0, len(by_length), BATCH)]
        batched.append(taken(lambda batches=batches: [forward(rows) for rows in batches]))
    rate, alone, together = (count / sum(times) for times in (traced, single, batched))
    print(f"(a) {count} prompts of ioi, chunks of {CHUNK}, {torch.get_num_threads()} thread, {model.name}")
    print(f"    traced                        {rate:8.2f} prompts a second")
    print(f"    bare forward, one by one      {alone:8.2f} a second   ratio {rate / alone:5.2f} (goal 0.25)")
    print(f"    bare forward, {BATCH} at a time    {together:8.2f} a second   ratio {rate / together:5.2f}")


def memory_of(count: int) -> None:
    """Peak resident memory of one run, in a process of its own."""
    import resource

    import headwise
    from headwise.families.collect import trace_many

    model = headwise.load()
    with tempfile.TemporaryDirectory() as folder:
        traced = len(trace_many(model, "ioi", prompts=count, out=Path(folder) / "run").traced)
        size = sum(file.stat().st_size for file in (Path(folder) / "run").iterdir())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{peak} {size} {traced}")


def memory(few: int = 60, many: int = 240) -> None:
    print("(b) peak memory of a run, model included")
    peaks = []
    for count in (few, many):
        start = time.perf_counter()
        out = subprocess.run(
            [sys.executable, __file__, "memory-of", str(count)], capture_output=True, text=True, check=True
        ).stdout
        peak, size, traced = map(int, out.strip().splitlines()[-1].split())
        peaks.append(peak)
        print(
            f"    {count:5d} prompts   {peak / 2**20:8.0f} MB peak   {size / 1e6:7.1f} MB on disk   {traced} traced   "
            f"{time.perf_counter() - start:.0f} s"
        )
    print(f"    {many} against {few}: {peaks[1] / peaks[0]:.2f} (goal 1.3 for 3000 against 300)")


PARTS: dict[str, Callable[..., None]] = {"speed": speed, "memory": memory}

if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            for part in PARTS.values():
                part()
        case ["memory-of", count]:
            memory_of(int(count))
        case [name, *numbers] if name in PARTS and all(n.isdigit() for n in numbers):
            PARTS[name](*map(int, numbers))
        case _:
            raise SystemExit(__doc__)
