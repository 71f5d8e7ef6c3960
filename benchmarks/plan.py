"""`headwise plan` against what happens: time and memory of every row, on models of three sizes.

    .venv/bin/python benchmarks/plan.py [small|other|default] [ROW …] [--out FILE.json]

Every command runs as a user gives it, with one thread: first once in a process of its own for the peak of its memory,
then all in one process for time on the processor, loading apart, with the machine probed before and after every few of
them. What ends within MINUTE is run five times and its median counts; longer ones run three times or once.
`docs/results/data/plan.json` keeps what was found; `tests/planning/test_measured.py` holds the plan to it. Goals: time
within 30 %, memory within 15 %.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import plan_cases

FILE = Path(__file__).parent.parent / "docs" / "results" / "data" / "plan.json"
LONG = 12.0
"""Seconds beside which imports are nothing."""
RUNS = ((4.0, 5), (LONG, 3))
"""Seconds within which a run must end, and how often it is repeated then; else once."""
EVERY = 4
"""Commands between two probes."""


def measured_time(name: str, rows: list[str]) -> dict[str, Any]:
    """Seconds of every run, and the paces around it."""
    import torch

    import headwise
    from headwise.model.sizes import sizes_of
    from headwise.planning.probe import measured_pace

    torch.set_num_threads(1)
    with plan_cases.prepared(name) as kind:
        sizes = sizes_of(kind.model)
        loading = statistics.median(plan_cases.processor(lambda: headwise.load(kind.model)) for _ in range(3))
        cases = [case for case in kind.cases if not rows or case.row in rows]
        paces, found = [asdict(measured_pace(sizes))], list[dict[str, Any]]()
        for number, case in enumerate(cases):
            once = _once(kind, case, loading)
            if once < LONG:
                once = _once(kind, case, loading)  # what it imports at first is not its work
            runs = next((count for limit, count in RUNS if once < limit), 1)
            seconds = [once, *(_once(kind, case, loading) for _ in range(runs - 1))]
            found.append({"row": case.row, "prompts": case.count, "tokens": case.tokens, "seconds": seconds})
            found[-1]["contrasts"] = case.contrasts
            found[-1]["words"] = " ".join(Path(word).name for word in case.words.split())
            found[-1]["pace"] = number // EVERY
            print(name, case.row, *(f"{one:.3f}" for one in seconds), file=sys.stderr, flush=True)
            if number % EVERY == EVERY - 1 or number == len(cases) - 1:
                paces.append(asdict(measured_pace(sizes)))
    return {"sizes": asdict(sizes) | {"name": name}, "loading": loading, "paces": paces, "rows": found}


def _once(kind: plan_cases.Kind, case: plan_cases.Case, loading: float) -> float:
    return plan_cases.processor(lambda: plan_cases.run(kind, case.words)) - loading


def measured_memory(name: str, rows: list[str]) -> dict[str, int]:
    """The peak of each command in a process of its own."""
    found = {}
    with plan_cases.prepared(name) as kind:
        for case in kind.cases:
            if rows and case.row not in rows:
                continue
            script = (
                f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import plan_cases, torch; "
                f"torch.set_num_threads(1); kind = plan_cases.Kind({kind.kind!r}, {kind.model!r}, ()); "
                f"plan_cases.run(kind, {case.words!r}); print(plan_cases.peak())"
            )
            done = subprocess.run(
                [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True
            )
            found[case.row] = int(done.stdout.split()[-1])
            print(name, case.row, f"{found[case.row] / 1e6:.0f} MB", file=sys.stderr, flush=True)
    return found


def _merged(file: Path, name: str, kept: dict[str, Any] | None, memory: dict[str, int]) -> None:
    """Put what was measured into the file, beside what is there of other models and rows."""
    whole = json.loads(file.read_text()) if file.exists() else {}
    old = whole.get(name, {"rows": []})
    if kept is not None:
        number = {one["row"]: one for one in kept["rows"]}
        before = {one["row"]: one for one in old["rows"]}
        for one in kept["rows"]:
            if "memory" in before.get(one["row"], {}):
                one["memory"] = before[one["row"]]["memory"]
        rest = [one for one in old["rows"] if one["row"] not in number]
        shift = len(kept["paces"])
        for one in rest:
            one["pace"] += shift
        old = {**kept, "paces": [*kept["paces"], *old.get("paces", [])], "rows": [*kept["rows"], *rest]}
    for one in old["rows"]:
        one["memory"] = memory.get(one["row"], one.get("memory"))
    file.write_text(json.dumps(whole | {name: old}, indent=1) + "\n")


def main(words: list[str]) -> None:
    file = FILE
    if "--out" in words:
        at = words.index("--out")
        file = Path(words[at + 1])
        del words[at : at + 2]
    what = [one for one in words if one in ("time", "memory")] or ["time", "memory"]
    kinds = [one for one in words if one in plan_cases.KINDS] or list(plan_cases.KINDS)
    rows = [one for one in words if one not in (*plan_cases.KINDS, "time", "memory")]
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in kinds:
        if "time" in what:
            _merged(file, name, measured_time(name, rows), {})
        if "memory" in what:
            _merged(file, name, None, measured_memory(name, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
