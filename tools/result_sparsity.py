"""The table of docs/results/sparsity.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from result_blocks import Blocks, said, table

NULLS = ("isotropic", "matched", "unattended", "shuffled", "turned")
LEVEL = 0.05
CURVE = 16


def kept_sparsity(document: dict[str, Any], _: Path) -> dict[str, Any]:
    """What the study printed, less the long ends of its curves."""
    short = {name: document[name][:CURVE] for name in ("curve", "control_curve") if name in document}
    return {name: value for name, value in document.items() if name != "seconds"} | short


def heads(data: dict[str, Any]) -> Sequence[str]:
    """Every head beside its nulls; one that it does not beat stands in brackets."""
    found = data["sparsity"]
    rows = []
    for one in [*found["heads"], found["overall"]]:
        nulls = {null["name"]: null for null in one["nulls"]}
        ci = one["sparsity"]["ci"]
        rows.append(
            [
                one["head"] or "all",
                f"{one['cells']}",
                f"{one['sparsity']['mean']:.2f} ({ci[0]:.2f}–{ci[1]:.2f})",
                *(_null(nulls.get(name)) for name in NULLS),
                f"{one['claim']['q']:.3f}",
                said(one["claim"]["supported"]),
                f"{one['control']['mean']:.2f}",
                f"{one['needed']['mean']:.1f}",
                f"{one['control_needed']['mean']:.1f}",
            ]
        )
    titles = ["head", "cells", "sparsity (95 %)", *NULLS, "q", "supported", "rotated", "needed"]
    return table([*titles, "needed, rotated"], rows)


def _null(one: dict[str, Any] | None) -> str:
    if one is None:
        return "–"
    shown = f"{one['sparsity']['mean']:.2f}"
    return shown if one["p"] <= LEVEL else f"({shown})"


SPARSITY: Blocks = {"heads": heads}
