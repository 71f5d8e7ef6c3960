"""A study of sparsity: figures and one offline page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Figure, Markdown, Report, Section, Table
from headwise.show.kit.table import TableColumn
from headwise.show.kit.theme import FAINT, NEUTRAL, PALETTE, between, styled
from headwise.show.sparsity.terminal import verdict
from headwise.sparsity.nulls import NULLS

if TYPE_CHECKING:
    from headwise.sparsity.result import HeadSparsity, SparsityResult
    from headwise.types import Estimate

PROSE = Prose.read("sparsity/report.md")


def head_dots(study: SparsityResult) -> go.Figure:
    """Sparsity and channels needed of every head, singular channels beside rotated directions."""
    rows = [study.overall, *reversed(study.heads)]
    names = [name_of(row) for row in rows]
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.05)
    panels = (
        (1, "sparsity", "control", "sparsity (lower is sparser)"),
        (2, "needed", "control_needed", "channels that rebuild it to within 10 %"),
    )
    for column, singular, rotated, title in panels:
        for attribute, name, colour, symbol in (
            (rotated, "rotated directions", NEUTRAL, "circle-open"),
            (singular, "singular channels", PALETTE[0], "circle"),
        ):
            values = [getattr(row, attribute) for row in rows]
            means = [v.mean for v in values]
            ends = [(v.low, v.high) if v.clusters > 1 else (v.mean, v.mean) for v in values]
            colours = [colour if v.clusters > 1 else FAINT for v in values]
            figure.add_scatter(
                x=means,
                y=names,
                error_x={
                    **between(means, *zip(*ends, strict=True)),
                    "thickness": 1.4,
                    "width": 3,
                    "color": colour,
                },
                mode="markers",
                marker={
                    "size": 9,
                    "color": colours,
                    "symbol": symbol,
                    "line": {"width": 2, "color": colours},
                },
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                hovertemplate="%{y}: %{x:.3f}<extra></extra>",
                row=1,
                col=column,
            )
        figure.update_xaxes(title=title, rangemode="tozero", row=1, col=column)
    return styled(figure, height=26 * len(rows) + 130, margin={"l": 90, "r": 24, "t": 48, "b": 56})


NULL_COLOURS = dict(zip(NULLS, (PALETTE[1], PALETTE[2], PALETTE[3], PALETTE[4], PALETTE[5]), strict=True))


def null_dots(study: SparsityResult) -> go.Figure:
    """The head's cells beside every null: what lies right of the filled dot is less sparse than the cells are."""
    rows = [study.overall, *reversed(study.heads)]
    names = [name_of(row) for row in rows]
    figure = go.Figure()
    for name, colour in NULL_COLOURS.items():
        found = [(label, row.null(name)) for label, row in zip(names, rows, strict=True)]
        figure.add_scatter(
            x=[null.sparsity.mean for _, null in found if null],
            y=[label for label, null in found if null],
            mode="markers",
            marker={"size": 9, "symbol": "line-ns-open", "line": {"width": 2}, "color": colour},
            name=name,
            hovertemplate=f"%{{y}}, {name}: %{{x:.3f}}<extra></extra>",
        )
    means = [row.sparsity.mean for row in rows]
    ends = [row.sparsity.ci or (row.sparsity.mean, row.sparsity.mean) for row in rows]
    figure.add_scatter(
        x=means,
        y=names,
        error_x={
            **between(means, *zip(*ends, strict=True)),
            "thickness": 1.4,
            "width": 3,
            "color": PALETTE[0],
        },
        mode="markers",
        marker={
            "size": 10,
            "color": PALETTE[0],
            "symbol": ["star" if row.claim.supported else "circle" for row in rows],
        },
        name="the head's cells",
        hovertemplate="%{y}: %{x:.3f}<extra></extra>",
    )
    figure.update_xaxes(title="sparsity (lower is sparser)", rangemode="tozero")
    return styled(figure, height=26 * len(rows) + 150, margin={"l": 90, "r": 24, "t": 48, "b": 56})


def _nulls_table(study: SparsityResult) -> Table:
    """Every head's sparsity, that of each null, and what is claimed."""
    rows = []
    for r in (*study.heads, study.overall):
        nulls = [r.null(name) for name in NULLS]
        values = [cell for null in nulls for cell in ((null.sparsity.mean, null.p) if null else (None, None))]
        rows.append(
            (
                name_of(r),
                r.sparsity.mean,
                *values,
                r.claim.q,
                "yes" if r.claim.supported else "no",
                "yes" if r.against_rotation.supported else "no",
            )
        )
    numbers = [column for name in NULLS for column in (name, TableColumn(name="p"))]
    columns = ("head", "sparsity", *numbers, "q", "supported", "by rotation alone")
    return Table(columns, rows, PROSE("nulls table", group=study.heads[0].claim.group))


def rebuild_curve(study: SparsityResult) -> go.Figure:
    """How far the largest channels' sum is from the whole."""
    figure = go.Figure()
    for values, name, colour in (
        (study.curve, "singular channels", PALETTE[0]),
        (study.control_curve, "rotated directions", NEUTRAL),
    ):
        figure.add_scatter(
            x=list(range(len(values))),
            y=values,
            mode="lines",
            line={"color": colour, "width": 2.5},
            name=name,
        )
    figure.add_hline(y=0.1, line={"dash": "dash", "color": NEUTRAL, "width": 1})
    return styled(
        figure,
        height=360,
        xaxis={"title": "channels, largest first"},
        yaxis={"title": "missing share (median over cells)", "rangemode": "tozero"},
    )


def _ends(value: Estimate) -> tuple[float | None, float | None]:
    """The ends of an interval; one prompt has none."""
    return (value.low, value.high) if value.clusters > 1 else (None, None)


def name_of(row: HeadSparsity) -> str:
    return "all of them" if row.head is None else str(row.head)


def sparsity_report(study: SparsityResult) -> Report:
    """Heads, sparsity beside the rotation, and the running sum."""
    columns = (
        "head",
        "carries answer",
        "in circuits",
        "cells",
        "sparsity",
        "low",
        "high",
        "rotated",
        "difference",
        "diff. low",
        "diff. high",
        "needed",
        "needed, rotated",
    )
    rows = [
        (
            name_of(r),
            r.in_answer,
            r.in_circuit,
            r.cells,
            r.sparsity.mean,
            *_ends(r.sparsity),
            r.control.mean,
            r.difference.mean,
            *_ends(r.difference),
            r.needed.mean,
            r.control_needed.mean,
        )
        for r in (*study.heads, study.overall)
    ]
    o = study.overall
    about = PROSE("heads", rotations=study.settings["rotations"])
    accuracy = PROSE("error", error=study.error, rotation_error=study.rotation_error)
    return Report(
        f"{study.task}: how few channels carry the attention?",
        [
            Section(
                "Because of features?",
                [
                    Markdown(PROSE("nulls", clusters=study.clusters, verdict=verdict(study))),
                    Figure(null_dots(study), PROSE("nulls figure")),
                    _nulls_table(study),
                ],
            ),
            Section(
                "Heads",
                [
                    Markdown(about),
                    Figure(head_dots(study), PROSE("heads figure")),
                    Table(columns, rows, PROSE("heads table")),
                ],
            ),
            Section(
                "How many channels", [Figure(rebuild_curve(study), PROSE("curve figure")), Markdown(accuracy)]
            ),
        ],
        subtitle=PROSE(
            "subtitle", model=study.model, traced=study.traced, wrong=study.wrong, empty=study.empty
        ),
        facts={
            "cells": str(o.cells),
            "sparser than by every null": f"{len(study.supported)} of {len(study.heads)} heads",
            "sparsity": f"{o.sparsity.mean:.3f} (rotated {o.control.mean:.3f})",
            "channels needed": f"{o.needed.mean:.1f} (rotated {o.control_needed.mean:.1f})",
            "channels of a signal": f"{study.signal_channels:g} (median)",
        },
    )
