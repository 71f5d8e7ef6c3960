"""Figures and page of sparsity over training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Figure, Markdown, Report, Section, Table
from headwise.show.kit.theme import AT_RIGHT, NEUTRAL, PALETTE, STEPS, styled
from headwise.sparsity.nulls import NULLS
from headwise.toy.sparse_attention import LEAST, Point, closest_null, course_summary, task_heads

PROSE = Prose.read("toy/training.md")
TRAINED = 0.5
"""Accuracy at the last checkpoint below which its attention says nothing about the task."""
DRAWN = 4
"""Heads in the figure; the table has all of them."""


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
    for i, head in enumerate(task_heads(points[-1])[:DRAWN]):
        colour = (PALETTE[0], PALETTE[1], PALETTE[3], PALETTE[4])[i]
        # One line in the legend per head; the caption says what is dotted and dashed.
        lines = {
            "sparsity": ([p.heads[head]["sparsity"] for p in points], "solid"),
            "closest null": ([closest_null(p.heads[head]) for p in points], "dash"),
            "rotated": ([p.heads[head]["rotated"] for p in points], "dot"),
        }
        for kind, (values, dash) in lines.items():
            figure.add_trace(
                go.Scatter(
                    x=steps,
                    y=values,
                    name=head if kind == "sparsity" else f"{head} {kind}",
                    legendgroup=head,
                    showlegend=kind == "sparsity",
                    mode="lines+markers",
                    line={"color": colour, "dash": dash},
                ),
                2,
                1,
            )
    figure.update_xaxes(type="log", tickvals=STEPS)
    figure.update_xaxes(title="step + 1", row=2, col=1)
    figure.update_yaxes(title="accuracy", range=[-0.03, 1.05], row=1, col=1, secondary_y=False)
    # Its own ticks: those in line with the accuracy's would be at losses such as 3.273.
    loss = {"title": "loss", "showgrid": False, "tickmode": "auto", "nticks": 6}
    figure.update_yaxes(loss, row=1, col=1, secondary_y=True)
    figure.update_yaxes(title="sparsity (lower is sparser)", row=2, col=1)
    return styled(
        figure,
        height=640,
        # Beside the axis of the loss: below the figure, its lines would lie on the title of the steps.
        legend=AT_RIGHT | {"x": 1.1},
        margin={"l": 60, "r": 60, "t": 30, "b": 60},
    )


def training_report(points: Sequence[Point], losses: Sequence[Sequence[float]] = ()) -> Report:
    """The page of one series of checkpoints, its answer first."""
    heads = task_heads(points[-1])
    course = Figure(
        training_course(points, losses),
        PROSE("course figure", drawn=len(heads[:DRAWN]), heads=len(heads)),
        _checkpoints(points, heads),
    )
    return Report(
        "Does attention become sparse over training?",
        [Section("Course", [Markdown(PROSE("course", least=LEAST)), course])],
        answer(course_summary(points)),
        {"final accuracy": f"{points[-1].accuracy:.3f}", "heads that attend to the answer": ", ".join(heads)},
    )


def answer(summary: Mapping[str, float]) -> str:
    """Whether sparsity fell, and below what the weights alone make of streams; nothing of an untrained model."""
    if summary["accuracy_last"] < TRAINED:
        return PROSE("too early", accuracy=summary["accuracy_last"])
    fell = summary["sparsity_last"] < summary["sparsity_first"]
    which = "not sparser" if not fell else "sparser" if summary["supported_last"] > 0.5 else "spectrum alone"
    return PROSE(
        which,
        first=summary["sparsity_first"],
        last=summary["sparsity_last"],
        null_first=summary["null_first"],
        null_last=summary["null_last"],
        rotated_first=summary["rotated_first"],
        rotated_last=summary["rotated_last"],
        supported=summary["supported_last"],
    )


COLUMNS = {
    "attention": "on answer",
    "on_other_name": "on the other name",
    "sparsity": "sparsity",
    **{name: name for name in NULLS},
    "rotated": "rotated",
    "channels_needed": "channels needed",
}
"""What is known of a head at a checkpoint, and what it is called on the page."""


def _checkpoints(points: Sequence[Point], heads: Sequence[str]) -> Table:
    rows = [
        (
            point.name,
            point.accuracy,
            head,
            *(point.heads[head][kind] for kind in COLUMNS),
            *_claimed(point, head),
        )
        for point in points
        for head in heads
    ]
    columns = ("checkpoint", "accuracy", "head", *COLUMNS.values(), "q", "supported")
    return Table(columns, rows, PROSE("checkpoints table"))


def _claimed(point: Point, head: str) -> tuple[float, str]:
    claim = point.claims[head]
    return claim.q, "yes" if claim.supported else "no"
