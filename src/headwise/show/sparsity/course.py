"""Sparsity over checkpoints: table, figure and page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Figure, Report, Section, Table
from headwise.show.kit.terminal import table
from headwise.show.kit.theme import NEUTRAL, PALETTE, between, styled
from headwise.sparsity.nulls import NULLS
from headwise.strings import counted

if TYPE_CHECKING:
    from headwise.sparsity.course import SparsityCourse

PROSE = Prose.read("sparsity/course.md")
COLUMNS = {
    "attention": "attention",
    "sparsity": "sparsity",
    "control": "rotated",
    "needed": "channels needed",
    "control_needed": "rotated",
}
"""What is shown of a checkpoint."""


def course_table(found: SparsityCourse) -> RenderableType:
    """A row per checkpoint, and the claim."""
    rows = [
        (
            p.name,
            *(f"{getattr(p, name).mean:.2f}" for name in COLUMNS),
            *(f"{one.mean:.2f}" for one in p.nulls.values()),
        )
        for p in found.checkpoints
    ]
    one = found.sparser
    said = "supported" if one.supported else "not supported"
    return Group(
        Text(f"{found.task}: the same {counted(found.cells, 'cell')} in every checkpoint", style="bold"),
        table(("checkpoint", *COLUMNS.values(), *NULLS), rows),
        Text(f"sparsity falls by more than every null does: {said} (p {one.p:.3g}, against {one.null})"),
    )


def course_report(found: SparsityCourse) -> Report:
    """The page of a course."""
    rows = [
        (p.name, *(getattr(p, name).mean for name in COLUMNS), *(one.mean for one in p.nulls.values()))
        for p in found.checkpoints
    ]
    first, last, one = found.checkpoints[0], found.checkpoints[-1], found.sparser
    lead = PROSE(
        "sparser" if one.supported else "not shown",
        first=first.sparsity.mean,
        last=last.sparsity.mean,
        matched_first=first.nulls["matched"].mean,
        matched_last=last.nulls["matched"].mean,
        p=one.p,
        cells=found.cells,
        prompts=found.prompts,
    )
    blocks = [
        Figure(course_figure(found), PROSE("course figure", unit=found.unit)),
        Table(("checkpoint", *COLUMNS.values(), *NULLS), rows, PROSE("course table")),
    ]
    heads = list(last.heads)
    by_head = [(head, *(p.heads[head] for p in found.checkpoints)) for head in heads]
    names = ("head", *(p.name for p in found.checkpoints))
    sections = [
        Section("Over training", blocks),
        Section("Sparsity of each head", [Table(names, by_head)], fold=True),
    ]
    return Report(f"{found.task}: does attention become sparse?", sections, lead)


def course_figure(found: SparsityCourse) -> go.Figure:
    """Sparsity and channels needed, with their intervals, along channels and along rotated directions."""
    figure = make_subplots(1, 2, horizontal_spacing=0.12)
    places = list(range(len(found.checkpoints)))
    drawn = (
        ("channels", 1, PALETTE[0], "sparsity"),
        ("matched Gaussian streams", 1, PALETTE[1], "matched"),
        ("rotated", 1, NEUTRAL, "control"),
        ("channels", 2, PALETTE[0], "needed"),
        ("rotated", 2, NEUTRAL, "control_needed"),
    )
    for label, column, colour, name in drawn:
        values = [p.nulls["matched"] if name == "matched" else getattr(p, name) for p in found.checkpoints]
        figure.add_trace(
            go.Scatter(
                x=places,
                y=[v.mean for v in values],
                error_y=between([v.mean for v in values], [v.low for v in values], [v.high for v in values]),
                name=label,
                legendgroup=label,
                showlegend=column == 1,
                mode="lines+markers",
                line={"color": colour},
            ),
            1,
            column,
        )
    short = [p.name if len(p.name) <= 14 else f"…{p.name[-13:]}" for p in found.checkpoints]
    figure.update_xaxes(tickvals=places, ticktext=short, title="checkpoint")
    figure.update_yaxes(title="sparsity", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="channels needed", rangemode="tozero", row=1, col=2)
    return styled(figure, height=400)
