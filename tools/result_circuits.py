"""The tables of docs/results/ioi-circuit.md that are about all four answer tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from result_blocks import Blocks, said, table

TASKS = ("ioi", "greater-than", "pronouns", "facts")
DROPPED = ("prompts", "seconds", "out", "bytes", "prompts_per_second")


def kept_task(document: dict[str, Any], _: Path) -> dict[str, Any]:
    """What the study printed, less its single prompts."""
    return {name: value for name, value in document.items() if name not in DROPPED}


def circuits(data: dict[str, Any]) -> Sequence[str]:
    """How large the circuits of each task are."""
    rows = []
    for task in TASKS:
        one = data["circuits" if task == "ioi" else f"circuits-{task}"]
        rows.append(
            [
                task,
                f"{one['n_prompts']:,}",
                f"{one['n_wrong']:,}",
                f"{one['n_empty']:,}",
                *(f"{one[name]:g}" for name in ("median_firings", "median_edges", "median_signal_rank")),
            ]
        )
    titles = ["task", "prompts", "answered wrong", "without a circuit", "firings, median", "edges, median"]
    return table([*titles, "signal rank, median"], rows)


def effects(data: dict[str, Any]) -> Sequence[str]:
    """What removing the five heaviest edges does to attention, answer and stream."""
    rows = []
    for task in TASKS:
        one = data[f"effects-{task}"]
        shown = one["estimates"]
        rows.append(
            [
                task,
                f"{shown['change']['n']}",
                *(
                    f"{shown[name]['mean']:.{places}f} ({shown[name]['ci'][0]:.{places}f} to "
                    f"{shown[name]['ci'][1]:.{places}f}); {shown[f'control_{name}']['mean']:.{places}f}"
                    for name, places in (("attention_change", 2), ("share", 2), ("flipped", 2), ("moved", 3))
                ),
                *(said(one["claims"][name]["supported"]) for name in ("behaviour", "per_length")),
            ]
        )
    titles = ["task", "prompts", "attention (95 %); controls", "share of the lead (95 %); controls"]
    more = ["answers that flip; controls", "the stream moves by; controls", "more than controls"]
    return table([*titles, *more, "more per length moved"], rows)


CIRCUITS: Blocks = {"circuits": circuits, "effects": effects}
