"""A task's circuits without their heaviest edges: table, figure and page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Figure, Report, Section, Table
from headwise.show.kit.terminal import table
from headwise.show.kit.theme import NEUTRAL, PALETTE, styled
from headwise.strings import counted

if TYPE_CHECKING:
    from headwise.circuits.task_effects import TaskEffects
    from headwise.types import Estimate

PROSE = Prose.read("circuits/task_effects.md")
SHOWN = {
    "change": "change of the answer's lead, size",
    "share": "the same over the lead",
    "flipped": "answers no longer ahead",
    "attention_change": "change of attention",
    "moved": "stream moved by (of its length)",
}
"""What is shown, edges and controls side by side."""
CLAIMS = {
    "behaviour": "the lead changes by more than in the controls",
    "per_length": "also for the same movement of the stream",
}
"""What each claim is called."""


def task_effects_table(found: TaskEffects) -> RenderableType:
    """Means with intervals, edges beside controls, and both claims."""
    rows = [
        (label, _said(found.estimates[name]), _said(found.estimates[f"control_{name}"]))
        for name, label in SHOWN.items()
    ]
    title = f"{found.task}: the {found.top} heaviest edges of each circuit taken away {found.scope}ly"
    parts: list[RenderableType] = [table(("", "edges", "unused channels"), rows, title=title)]
    parts += [Text(line) for line in claim_lines(found)]
    note = f"{counted(len(found.prompts), 'prompt')}; intervals over {found.unit}s"
    if found.without:
        note += f"; {counted(found.without, 'more prompt')} had no edges to take away"
    return Group(*parts, Text(note))


def claim_lines(found: TaskEffects) -> list[str]:
    """Both claims, each with its p and q."""
    return [
        f"{CLAIMS[name]}: {'supported' if one.supported else 'not supported'} (p {one.p:.3g}, q {one.q:.3g}, "
        f"against {one.null})"
        for name, one in found.claims.items()
    ]


def task_effects_report(found: TaskEffects) -> Report:
    """The page of a task."""
    rows = [
        (label, *_ends(found.estimates[name]), *_ends(found.estimates[f"control_{name}"]))
        for name, label in SHOWN.items()
    ]
    columns = ("", "edges", "from", "to", "unused channels", "from", "to")
    claimed = [
        (CLAIMS[name], "yes" if c.supported else "not shown", c.p, c.q, c.null, c.draws)
        for name, c in found.claims.items()
    ]
    blocks = [
        Table(columns, rows, PROSE("means table", unit=found.unit)),
        Table(("claim", "holds", "p", "q", "null", "draws"), claimed),
        Figure(movement_figure(found), PROSE("movement figure")),
    ]
    prompts = [
        (p.prompt, p.edges, p.lead, p.change, p.control_change, p.moved, p.control_moved)
        for p in found.prompts
    ]
    names = ("prompt", "edges", "lead", "change", "controls", "stream moved", "controls")
    holds = all(one.supported for one in found.claims.values())
    moved, control = found.estimates["moved"], found.estimates["control_moved"]
    change, other = found.estimates["share"], found.estimates["control_share"]
    lead = PROSE(
        "supported" if holds else "not supported",
        task=found.task,
        share=change.mean,
        other=other.mean,
        moved=100 * moved.mean,
        control=100 * control.mean,
    )
    sections = [
        Section("Behaviour and stream", blocks),
        Section("Prompts", [Table(names, prompts)], fold=True),
    ]
    return Report(
        "Does behaviour change while the stream barely moves?", sections, lead, {"model": found.model}
    )


def movement_figure(found: TaskEffects) -> go.Figure:
    """Every prompt: by how much the stream moved and the lead changed, edges and controls."""
    figure = go.Figure()
    drawn = (
        ("unused channels", NEUTRAL, "control_moved", "control_share"),
        ("edges", PALETTE[0], "moved", "share"),
    )
    for name, colour, x, y in drawn:
        figure.add_trace(
            go.Scatter(
                x=[100 * getattr(p, x) for p in found.prompts],
                y=[getattr(p, y) for p in found.prompts],
                mode="markers",
                name=name,
                marker={"color": colour, "size": 8, "opacity": 0.75},
            )
        )
    return styled(
        figure,
        height=400,
        xaxis_title="stream moved by, % of its length",
        yaxis_title="change of the lead over the lead",
        xaxis_rangemode="tozero",
        yaxis_rangemode="tozero",
    )


def _said(found: Estimate) -> str:
    return f"{found.mean:.3f}" + (f" [{found.low:.3f}, {found.high:.3f}]" if found.ci else "")


def _ends(found: Estimate) -> tuple[float, float | None, float | None]:
    return (found.mean, found.low, found.high) if found.ci else (found.mean, None, None)
