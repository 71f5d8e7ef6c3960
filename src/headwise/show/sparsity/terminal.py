"""The table of a study of sparsity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import table

if TYPE_CHECKING:
    from headwise.sparsity.result import SparsityResult
    from headwise.types import Estimate


def sparsity_table(study: SparsityResult) -> RenderableType:
    """Heads with sparsity and channels needed, beside the rotation control."""
    rows = [
        (
            "all" if r.head is None else str(r.head),
            f"{r.in_answer}/{r.in_circuit}",
            str(r.cells),
            _interval(r.sparsity),
            f"{r.control.mean:.2f}",
            _interval(r.difference, "+"),
            f"{r.needed.mean:.1f}",
            f"{r.control_needed.mean:.1f}",
        )
        for r in (*study.heads, study.overall)
    ]
    columns = (
        "head",
        "in",
        "cells",
        "sparsity (95 %)",
        "rotated",
        "difference (95 %)",
        "needed",
        "rotated",
    )
    aside = f"{study.wrong} set aside (the model prefers the wrong answer), {study.empty} without a circuit"
    return Group(
        Text(f"{study.task} in {study.model}: relative attention over channels", style="bold"),
        Text(f"{study.traced} of {study.prompts} prompts traced; {aside}"),
        Text(),
        table(columns, rows),
        Text(),
        Text(
            "in: prompts in which the head carries the answer / is in the circuit\n"
            "needed: channels that rebuild it to 10 %"
        ),
        Text(f"sums over channels equal the logits to {study.error:.0e}, rotated {study.rotation_error:.0e}"),
    )


def _interval(value: Estimate, sign: str = "") -> str:
    """A mean with its interval; one prompt has none."""
    mean = f"{value.mean:{sign}.2f}"
    return mean if value.clusters < 2 else f"{mean} ({value.low:{sign}.2f} to {value.high:{sign}.2f})"
