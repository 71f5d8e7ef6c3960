"""How much does a contrastive study cost beyond running the model?

1. Fitting ΔC in every head over N prompts, against the bare forward pass over the same batches (wanted: ≤
1.15). 2. Testing 9 heads × 6 conditions × 300 draws of three nulls, against one edited forward pass for each of them.
3. Peak memory of a fit over N and over 4 N prompts.

Ratios are of processor time, medians of interleaved runs: what else the machine does falls on neither side.

    python benchmarks/contrast.py --prompts 32 --repeats 3
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from statistics import median

import torch

import headwise
from headwise.contrast.collect import BATCH, fit_heads
from headwise.contrast.subspaces import random_subspaces
from headwise.contrast.swap_tests import Probe, capture_rows, measure
from headwise.model.batch import Batch, by_length
from headwise.model.capture import MAX_TOKENS
from headwise.model.model import Model
from headwise.tasks.labelled.binding import binding
from headwise.tasks.labelled.types import Contrast
from headwise.types import Head, Subspace


def timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def interleaved(
    first: Callable[[], object], second: Callable[[], object], repeats: int
) -> tuple[float, float]:
    """Medians of both, taken in turns."""
    times: list[tuple[float, float]] = []
    for number in range(repeats):
        # Whoever goes first may find a colder machine: change places.
        if number % 2:
            times.append((timed(first), timed(second)))
        else:
            late = timed(second)
            times.append((timed(first), late))
    return median(t[0] for t in times), median(t[1] for t in times)


def bare(model: Model, contrast: Contrast) -> None:
    """The model's own forward pass over the same batches, without logits nobody reads."""
    tokens = [e.tokens for e in contrast.examples]
    with torch.no_grad():
        for indices in by_length(tokens, BATCH, MAX_TOKENS):
            batch = Batch.of([tokens[i] for i in indices])
            model.anatomy.trunk(**batch.model_inputs(model.device), use_cache=False)


def swaps(model: Model, contrast: Contrast, draws: int = 100) -> Callable[[], object]:
    """One pass and every analytic swap: 9 heads, 6 subspaces each, 100 draws of each null."""
    heads = model.heads[-9:] if len(model.heads) >= 9 else model.heads
    generator = torch.Generator().manual_seed(0)

    def probe(head: Head, number: int) -> Probe:
        one = Subspace(random_subspaces(model.d_head, 4, 1, generator=generator)[0])
        return Probe(
            head=head,
            name=f"{number}",
            query=one,
            key=one,
            controls={},
            placebo=one.basis.expand(draws, -1, -1),
            root=torch.eye(one.d_head).double(),
            draws=draws,
            seed=0,
        )

    probes = {head: [probe(head, i) for i in range(6)] for head in heads}
    return lambda: measure(capture_rows(model, contrast.examples, heads), probes)


def peak() -> float:
    """Peak memory of the process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=None)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    model = headwise.load(given.model)
    task = binding(model.tokenizer, prompts=max(4, given.prompts), test=given.prompts, contrasts=("order",))
    fit, test = task.fits[0], task.test
    small = Contrast(fit.name, fit.examples[: max(4, given.prompts // 4)])
    fit_heads(model, small.examples)  # warm up
    fitting, forward = interleaved(
        lambda: fit_heads(model, fit.examples), lambda: bare(model, fit), given.repeats
    )
    # Batches of a quarter of N, so that N and 4 N prompts both are several of them.
    size = max(1, given.prompts // 4)
    bare(model, fit)
    fit_heads(model, fit.examples, batch_size=size)
    memory_n = peak()
    fit_heads(model, fit.examples * 4, batch_size=size)
    memory_4n = peak()
    testing = timed(swaps(model, test))
    passes = 9 * 6 * 101 * len(test)
    one = forward / len(fit)
    found = {
        "prompts": len(fit),
        "fit_seconds": round(fitting, 2),
        "forward_seconds": round(forward, 2),
        "fit_over_forward": round(fitting / forward, 3),
        "test_seconds": round(testing, 2),
        "straightforward_passes": passes,
        "straightforward_seconds": round(passes * one, 0),
        "straightforward_over_test": round(passes * one / testing, 0),
        "peak_mb": {"n": round(memory_n), "4n": round(memory_4n)},
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
