"""How long does an atlas of the default model take? Seconds and processor time by stage, against a bound.

    python benchmarks/atlas.py [--texts 400] [--workers 2] [--bound 900]

All heads, from texts of the default corpus; the processor time of all workers is counted, so that a machine with other
work on it can be told from a slow atlas.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import headwise


def main() -> int:
    asked = argparse.ArgumentParser()
    asked.add_argument("--texts", type=int, default=400)
    asked.add_argument("--workers", type=int, default=2)
    asked.add_argument("--bound", type=float, default=900.0)
    given = asked.parse_args()
    model = headwise.load()
    began, stages = time.perf_counter(), dict[str, float]()

    def told(stage: str, done: int, total: int) -> None:
        stages.setdefault(stage, time.perf_counter() - began)

    found = headwise.atlas(model, texts=given.texts, workers=given.workers, progress=told)
    for stage, after in stages.items():
        print(f"{after:8.1f} s  {stage} begins")
    spent = os.times()
    print(f"{found.seconds:8.1f} s  {found!r}")
    print(
        f"{sum(spent[:4]):8.1f} s  of processor time, workers included (bound for the whole: {given.bound:g} s)"
    )
    return int(found.seconds > given.bound)


if __name__ == "__main__":
    sys.exit(main())
