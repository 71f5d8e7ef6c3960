"""A study of sparsity: figures and one offline page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.show.kit.markdown import literal
from headwise.show.kit.report import Figure, Report, Section, Table, Text
from headwise.show.kit.theme import NEUTRAL, PALETTE, styled

if TYPE_CHECKING:
    from headwise.sparsity.study import HeadSparsity, SparsityStudy


def head_dots(study: SparsityStudy) -> go.Figure:
    """Sparsity and channels needed of every head, singular channels beside rotated directions."""
    rows = [study.overall, *reversed(study.heads)]
    names = [name_of(row) for row in rows]
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.05)
    panels = (
        (1, "sparsity", "control", "sparsity (lower is sparser)"),
        (2, "needed", "control_needed", "channels that rebuild it to 10 %"),
    )
    for column, singular, rotated, title in panels:
        for attribute, name, colour, symbol in (
            (rotated, "rotated directions", NEUTRAL, "circle-open"),
            (singular, "singular channels", PALETTE[0], "circle"),
        ):
            values = [getattr(row, attribute) for row in rows]
            figure.add_scatter(
                x=[v.mean for v in values],
                y=names,
                error_x={
                    "type": "data",
                    "array": [v.high - v.mean for v in values],
                    "arrayminus": [v.mean - v.low for v in values],
                    "thickness": 1.4,
                    "width": 3,
                    "color": colour,
                },
                mode="markers",
                marker={"size": 9, "color": colour, "symbol": symbol, "line": {"width": 2, "color": colour}},
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                hovertemplate="%{y}: %{x:.3f}<extra></extra>",
                row=1,
                col=column,
            )
        figure.update_xaxes(title=title, rangemode="tozero", row=1, col=column)
    return styled(figure, height=26 * len(rows) + 130, margin={"l": 90, "r": 24, "t": 48, "b": 56})


def rebuild_curve(study: SparsityStudy) -> go.Figure:
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


def name_of(row: HeadSparsity) -> str:
    return "all of them" if row.head is None else str(row.head)


def sparsity_report(study: SparsityStudy) -> Report:
    """Heads, sparsity beside the rotation, and the running sum."""
    columns = ("head", "carries answer", "in circuits", "cells", "sparsity", "low", "high", "rotated",
               "difference", "diff. low", "diff. high", "needed", "rotated")  # fmt: skip
    rows = [
        (
            name_of(r), r.in_answer, r.in_circuit, r.cells, r.sparsity.mean, r.sparsity.low,
            r.sparsity.high, r.control.mean, r.difference.mean, r.difference.low, r.difference.high, r.needed.mean,
            r.control_needed.mean,
        )
        for r in (*study.heads, study.overall)
    ]  # fmt: skip
    o = study.overall
    return Report(
        f"{study.task}: how few channels carry the attention?",
        [
            Section(
                "Heads",
                [
                    Text(
                        "Relative attention (a cell's logit less the mean of the other visible logits) of "
                        "every cell that the prompts' circuits use, split over the channels of its head. "
                        "Sparsity is (mean |v|)² ÷ mean v² over channels. The control turns the channels by "
                        f"random orthogonal matrices, which keeps every logit ({study.settings['rotations']} "
                        "rotations, averaged). Intervals are 95 % over prompts."
                    ),
                    Figure(head_dots(study), "Every head beside its rotation control."),
                    Table(
                        columns,
                        rows,
                        caption="Differences are paired by prompt: below 0 is sparser than rotated.",
                    ),
                ],
            ),
            Section(
                "How many channels",
                [
                    Figure(rebuild_curve(study), "What the largest channels leave out; dashed: 10 %."),
                    Text(
                        f"The sums over channels equal the model's own relative logits to {study.error:.1e}, "
                        f"the rotated ones to {study.rotation_error:.1e}."
                    ),
                ],
            ),
        ],
        subtitle=f"`{literal(study.model)}`, {study.traced} traced prompts ({study.wrong} set aside because the "
        f"model prefers the wrong answer, {study.empty} without a circuit).",
        facts={
            "cells": str(o.cells),
            "sparsity": f"{o.sparsity.mean:.3f} (rotated {o.control.mean:.3f})",
            "channels needed": f"{o.needed.mean:.1f} (rotated {o.control_needed.mean:.1f})",
            "channels of a signal": f"{study.signal_channels:g} (median)",
        },
    )
