"""The 25-cell payload grid as one batched training against 25 separate trainings of the same code.

    python benchmarks/toy.py [--steps 200] [--converge] [--memory]

Prints the ratio for the same number of steps; ``--converge`` also trains the grid to its end, ``--memory``
reports the peak of an 81-cell training.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

import torch

from headwise.toy.payload import PayloadSetup
from headwise.toy.payload_train import FAST, train


def seconds(setup: PayloadSetup, steps: int) -> float:
    # Validation is part of training: one check at the end of each run, as in the real schedule.
    schedule = replace(FAST, max_steps=steps, check_every=steps)
    began = time.perf_counter()
    train(setup, schedule)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--converge", action="store_true")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    grid = PayloadSetup.grid(8, "discrete")
    seconds(replace(grid, cells=grid.cells[:1]), 5)  # warm up
    together = seconds(grid, options.steps)
    alone = sum(seconds(replace(grid, cells=(cell,)), options.steps) for cell in grid.cells)
    print(f"25 cells, {options.steps} steps, {options.threads} thread(s)")
    print(f"  one batched training   {together:8.2f} s")
    print(f"  25 separate trainings  {alone:8.2f} s")
    print(f"  ratio                  {alone / together:8.2f} x")
    if options.converge:
        began = time.perf_counter()
        done = train(grid, FAST)
        spent = time.perf_counter() - began
        print(f"  grid to its end        {spent:8.2f} s ({int(done.steps.max())} steps for the slowest cell)")
    if options.memory:
        train(PayloadSetup.grid(16, "discrete"), replace(FAST, max_steps=50, check_every=50))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"  peak memory, 81 cells  {peak:8.2f} GB")


if __name__ == "__main__":
    main()
