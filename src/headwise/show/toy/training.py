"""Figures and page of sparsity over training."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.show.kit.report import Figure, Markdown, Report, Section, Table
from headwise.show.kit.theme import NEUTRAL, PALETTE, styled
from headwise.toy.sparse_attention import Point, task_heads


def training_course(points: Sequence[Point], losses: Sequence[Sequence[float]] = ()) -> go.Figure:
    """Accuracy and loss, sparsity of the heads that do the task, and the same rotated, on one axis of steps."""
    figure = make_subplots(
        2,
        1,
        shared_xaxes=True,
        vertical_spacing=0.08,
        specs=[[{"secondary_y": True}], [{}]],
        row_heights=[0.45, 0.55],
    )
    steps = [p.step + 1 for p in points]
    figure.add_trace(
        go.Scatter(x=steps, y=[p.accuracy for p in points], name="task accuracy", line={"color": PALETTE[2]}),
        1,
        1,
    )
    if losses:
        figure.add_trace(
            go.Scatter(
                x=[s + 1 for s, _ in losses],
                y=[v for _, v in losses],
                name="loss",
                line={"color": NEUTRAL, "width": 1},
            ),
            1,
            1,
            secondary_y=True,
        )
    for i, head in enumerate(task_heads(points[-1])[:4]):
        colour = (PALETTE[0], PALETTE[1], PALETTE[3], PALETTE[4])[i]
        for kind, dash in (("sparsity", "solid"), ("rotated", "dot")):
            figure.add_trace(
                go.Scatter(
                    x=steps,
                    y=[p.heads[head][kind] for p in points],
                    name=f"{head}{' rotated' if kind == 'rotated' else ''}",
                    mode="lines+markers",
                    line={"color": colour, "dash": dash},
                ),
                2,
                1,
            )
    figure.update_xaxes(type="log")
    figure.update_xaxes(title="step + 1", row=2, col=1)
    figure.update_yaxes(title="accuracy", range=[-0.03, 1.05], row=1, col=1, secondary_y=False)
    figure.update_yaxes(title="loss", showgrid=False, row=1, col=1, secondary_y=True)
    figure.update_yaxes(title="sparsity (lower is sparser)", row=2, col=1)
    return styled(
        figure,
        height=640,
        legend={"orientation": "h", "y": -0.2, "x": 0},
        margin={"l": 60, "r": 60, "t": 30, "b": 60},
    )


def training_report(points: Sequence[Point], losses: Sequence[Sequence[float]] = ()) -> Report:
    heads = task_heads(points[-1])
    rows = [
        (
            p.name,
            p.accuracy,
            h,
            *(p.heads[h][k] for k in ("attention", "sparsity", "rotated", "channels_needed")),
        )
        for p in points
        for h in heads
    ]
    columns = (
        "checkpoint",
        "accuracy",
        "head",
        "attention on answer",
        "sparsity",
        "rotated",
        "channels needed",
    )
    text = Markdown(
        "Relative attention of the last token to the answer's name, split by channel. If singular vectors "
        "become features, few channels carry it: sparsity falls. Rotating the channels keeps every logit and "
        "must undo that."
    )
    figure = Figure(
        training_course(points, losses), "Accuracy, loss and sparsity over training.", Table(columns, rows)
    )
    facts = {"final accuracy": f"{points[-1].accuracy:.3f}", "heads that do the task": ", ".join(heads)}
    return Report("Sparse attention over training", [Section("Course", [text, figure])], "", facts)
