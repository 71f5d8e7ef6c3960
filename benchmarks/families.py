"""Many circuits, side by side with bare forward passes and with plain loops. Prints ratios.

python benchmarks/families.py                      all parts
python benchmarks/families.py speed [PROMPTS]      (a) prompts traced per second against bare passes (64 prompts)
python benchmarks/families.py memory [FEW MANY]    (b) peak memory of a run by its number of prompts (60 and 240)
python benchmarks/families.py distance [CIRCUITS]  (c) all distances against a loop over pairs of sets (3000 circuits)
python benchmarks/families.py analysis [CIRCUITS]  (d) the whole analysis of families without edited passes (3000)

The bounds are for `memory 300 3000`, which takes a while; smaller numbers are printed as what they are.
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
    from headwise.bases.basis import Bases
    from headwise.model.batch import Batch
    from headwise.scale.work import cut
    from headwise.survey.chunks import CHUNK, TraceJob, trace_chunk
    from headwise.tasks.answers.make import make_answers

    torch.set_num_threads(1)
    model = headwise.load()
    for layer in range(model.n_layers):
        Bases.of(model).layer(layer)
    answers = make_answers("ioi", model.tokenizer, prompts=count)
    chunks = cut(answers.prompts, CHUNK)
    rules = TraceJob()

    def forward(rows: list[list[int]]) -> None:
        with torch.no_grad():
            model.hf(input_ids=Batch.of(rows).ids, use_cache=False)

    trace_chunk(model, cut(answers.prompts[:4], CHUNK)[0], rules)
    traced, single, batched = [], [], []
    for chunk in chunks:  # in turns, so that a busy moment of the machine hits all alike
        ids = [list(model.tokenizer(p.prompt).input_ids) for p in chunk.items]
        by_length = sorted(ids, key=len)
        single.append(taken(lambda ids=ids: [forward([row]) for row in ids]))
        traced.append(taken(lambda chunk=chunk: trace_chunk(model, chunk, rules)))
        batches = [by_length[i : i + BATCH] for i in range(0, len(by_length), BATCH)]
        batched.append(taken(lambda batches=batches: [forward(rows) for rows in batches]))
    rate, alone, together = (count / sum(times) for times in (traced, single, batched))
    print(f"(a) {count} prompts of ioi, chunks of {CHUNK}, {torch.get_num_threads()} thread, {model.name}")
    print(f"    traced                        {rate:8.2f} prompts per second")
    print(
        f"    bare forward, one by one      {alone:8.2f} per second   ratio {rate / alone:5.2f} (goal 0.25)"
    )
    print(f"    bare forward, {BATCH} at a time    {together:8.2f} per second   ratio {rate / together:5.2f}")


def memory_of(count: int) -> None:
    """Peak resident memory of one run, in a process of its own."""
    import resource

    import headwise
    from headwise.survey.collect import trace_many

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


def synthetic(count: int, size: int = 150, features: int = 12_000) -> list[list[int]]:
    """Circuits as long and as different as traced ones: about 150 of 12,000 features, a few of them in nearly all."""
    import numpy as np

    generator = np.random.default_rng(0)
    chance = 1 / np.arange(1, features + 1) ** 0.8
    chance /= chance.sum()
    sizes = np.clip(generator.lognormal(np.log(size), 0.5, count), 10, features // 4).astype(int)
    return [np.sort(generator.choice(features, n, replace=False, p=chance)).tolist() for n in sizes]


def distance(count: int = 3000, pairs: int = 60_000) -> None:
    """The loop is timed on some pairs, drawn at random, and scaled to all."""
    import numpy as np
    from scipy import sparse

    from headwise.families.distance import jaccard

    torch.set_num_threads(1)
    circuits = synthetic(count)
    ends = np.cumsum([0, *map(len, circuits)])
    ones = np.ones(ends[-1], dtype=bool)
    width = max(map(max, circuits)) + 1
    matrix = sparse.csr_matrix((ones, np.concatenate(circuits), ends), shape=(count, width))
    sets = [frozenset(one) for one in circuits]
    a, b = np.random.default_rng(1).integers(count, size=(2, pairs)).tolist()

    def loop() -> list[float]:
        return [1 - len(sets[i] & sets[j]) / len(sets[i] | sets[j]) for i, j in zip(a, b, strict=True)]

    assert np.allclose(jaccard(matrix)[a, b], loop(), atol=1e-6)
    fast, slow = [], []
    for _ in range(5):  # in turns
        fast.append(taken(lambda: jaccard(matrix)))
        slow.append(taken(loop))
    whole = sorted(slow)[2] / pairs * count * (count - 1) / 2
    ours = sorted(fast)[2]
    print(
        f"(c) distances of {count} synthetic circuits, {ends[-1] / count:.0f} features each, medians of 5 in turns"
    )
    print(f"    sparse and dense products     {ours:8.2f} s, the whole matrix")
    print(f"    loop over pairs of sets       {whole:8.1f} s, scaled from {pairs} random pairs")
    print(f"    ratio {whole / ours:.0f} (goal 50)")


def analysis(count: int = 3000) -> None:
    """Distances, clusters, both nulls, heads and labels of synthetic circuits; no model."""
    import json

    from headwise.families.study import find_families
    from headwise.scale.folder import RunFolder
    from headwise.survey.records import write_run
    from headwise.survey.schema import table_of

    torch.set_num_threads(1)
    prompts, edges = [], []
    for number, circuit in enumerate(synthetic(count)):
        labels = json.dumps({"order": "ABBA" if number % 2 else "BABA", "wording": str(number % 15)})
        prompts.append(
            {
                "prompt": number,
                "text": "",
                "token_ids": [1],
                "tokens": ["x"],
                "answer": "a",
                "wrong": "b",
                "answer_id": 1,
                "wrong_id": 2,
                "labels": labels,
                "status": "traced",
                "reason": None,
                "difference": 1.0,
                "top": "a",
                "n_firings": 0,
                "n_edges": len(circuit),
                "notes": [],
            }
        )
        for one in circuit:
            rest, channel = divmod(one, 60)
            layer, head = divmod(rest, 9)
            edges.append(
                {
                    "prompt": number,
                    "source": "MLP0",
                    "source_kind": "mlp",
                    "source_layer": 0,
                    "source_head": None,
                    "source_query": 0,
                    "source_key": 0,
                    "target": f"L{1 + layer}H{head}",
                    "target_layer": 1 + layer,
                    "target_head": head,
                    "target_query": 0,
                    "target_key": 0,
                    "side": "query",
                    "weight": 0.1,
                    "channels": [channel],
                    "strengths": [1.0],
                }
            )
    config = {
        "model": "none",
        "weight_hash": "0" * 64,
        "dtype": "float32",
        "task": "synthetic",
        "settings": {},
        "mode": "exact",
        "tau": None,
        "seed": 0,
        "prompts": count,
    }
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        tables = {"prompts": prompts, "edges": edges, "firings": []}
        with RunFolder(run, "circuits", config) as folder:
            write_run(folder, [{name: table_of(name, rows) for name, rows in tables.items()}])
        processor = time.process_time()
        seconds = taken(lambda: find_families(run))
        processor = time.process_time() - processor
    print(f"(d) analysis of {count} synthetic circuits without edited passes, one thread")
    print(f"    {seconds:.0f} s, {processor:.0f} s of processor time (goal 120)")


PARTS: dict[str, Callable[..., None]] = {
    "speed": speed,
    "memory": memory,
    "distance": distance,
    "analysis": analysis,
}

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
