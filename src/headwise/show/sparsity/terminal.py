"""The table of a study of sparsity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.claims import LEVEL
from headwise.show.kit.terminal import table
from headwise.sparsity.nulls import NULLS
from headwise.strings import counted

if TYPE_CHECKING:
    from headwise.sparsity.result import HeadSparsity, SparsityResult
    from headwise.types import Estimate


def sparsity_table(study: SparsityResult) -> RenderableType:
    """Heads with sparsity beside every null and the old control, and the answer first."""
    rows = [
        (
            "all" if r.head is None else str(r.head),
            f"{r.in_answer}/{r.in_circuit}",
            str(r.cells),
            _interval(r.sparsity),
            *(_null(r, name) for name in NULLS),
            f"{r.claim.q:.3f}{'*' if r.claim.supported else ''}",
            f"{r.control.mean:.2f}",
            f"{r.needed.mean:.1f}",
            f"{r.control_needed.mean:.1f}",
        )
        for r in (*study.heads, study.overall)
    ]
    columns = ("head", "in", "cells", "sparsity (95 %)", *NULLS, "q", "rotated", "needed", "rotated")
    aside = f"{study.wrong} set aside (the model prefers the wrong answer), {study.empty} without a circuit"
    return Group(
        Text(f"{study.task} in {study.model}: relative attention over channels", style="bold"),
        Text(f"{study.traced} of {study.prompts} prompts traced; {aside}"),
        Text(verdict(study)),
        Text(),
        table(columns, rows),
        Text(),
        Text(
            "in: prompts in which the head carries the answer / is in the circuit\n"
            f"{', '.join(NULLS)}: how sparse channels are without features, by five nulls; in brackets where p is "
            "above 0.05\n"
            "q: against the closest of them, corrected over the heads; * supported\n"
            "rotated: along directions that keep every logit, the published control, which mixes the singular values\n"
            "needed: channels that rebuild it to 10 %"
        ),
        Text(f"sums over channels equal the logits to {study.error:.0e}, rotated {study.rotation_error:.0e}"),
    )


def verdict(study: SparsityResult) -> str:
    """What may be said: by every null, and by the published control alone."""
    named = ", ".join(map(str, study.supported))
    old = sum(one.against_rotation.supported for one in study.heads)
    heads = counted(len(study.heads), "head")
    which = f"{len(study.supported)} of {heads} ({named})" if named else f"none of {heads}"
    return (
        f"sparser than attention without features, by all five nulls: {which}; than rotated directions alone, the "
        f"published control: {old}"
    )


def _null(row: HeadSparsity, name: str) -> str:
    """A null's mean sparsity; in brackets where the head's cells are not sparser than it."""
    null = row.null(name)
    if null is None:
        return "–"
    mean = f"{null.sparsity.mean:.2f}"
    return mean if null.p <= LEVEL else f"({mean})"


def _interval(value: Estimate, sign: str = "") -> str:
    """A mean with its interval; one prompt has none."""
    mean = f"{value.mean:{sign}.2f}"
    return mean if value.clusters < 2 else f"{mean} ({value.low:{sign}.2f} to {value.high:{sign}.2f})"
