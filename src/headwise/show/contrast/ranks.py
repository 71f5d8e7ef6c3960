"""Figures of a feature's size: its singular values, how its rank grows, and the angles between features."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.contrast.fit import OTHER_HALF
from headwise.contrast.rows import AngleRow, where
from headwise.show.kit.theme import AT_RIGHT, NEUTRAL, PALETTE, SEQUENTIAL, STEPS, between, styled

if TYPE_CHECKING:
    from headwise.contrast.result import FeaturesResult

FLOOR = 1e-4
"""Singular values below this share of the largest are rounding errors of zero; the axis ends here."""
LINES = 8
"""Pairs of features whose angles can be told apart as lines, by colour; more are a matrix."""


def singular_values(run: FeaturesResult, head: str, most: int = 10) -> go.Figure:
    """Singular values of ΔC with bootstrap intervals, against the 99 % quantile of their sign-flip null."""
    names = list(dict.fromkeys(r.name for r in run.spectra))
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    found = {f.name: f for f in where(run.features, head=head)}
    titles = [f"{n}: rank {found[n].rank} swapped, {found[n].rank_energy} (99 %)" for n in names]
    figure = make_subplots(
        lines, columns, subplot_titles=titles, horizontal_spacing=0.09, vertical_spacing=0.36 / max(lines, 2)
    )
    for number, name in enumerate(names):
        every = [r for r in where(run.spectra, head=head, name=name) if r.index <= most]
        top = max((r.sigma for r in every), default=0.0) or 1.0
        rows = [r for r in every if r.sigma > FLOOR * top]
        at = {"row": number // columns + 1, "col": number % columns + 1}
        values = _short(r.sigma for r in rows)
        figure.add_scatter(
            x=[r.index for r in rows],
            y=values,
            # An interval that reaches zero has no end on this axis: it stops at the floor.
            error_y=between(
                values, _short(max(r.low, FLOOR * top) for r in rows), _short(r.high for r in rows)
            ),
            mode="lines+markers",
            marker={"color": PALETTE[0], "size": 6},
            line={"color": PALETTE[0]},
            name="ΔC",
            showlegend=number == 0,
            **at,
        )
        null = [r for r in every if r.null > FLOOR * top]
        figure.add_scatter(
            x=[r.index for r in null],
            y=_short(r.null for r in null),
            mode="lines",
            line={"color": PALETTE[1], "dash": "dash"},
            name="null, 99 % quantile",
            showlegend=number == 0,
            **at,
        )
        # Resampled prompts repeat, so the interval of the last value may end at a rounding error of zero, below it.
        ends = [*values, *(r.null for r in null), *(max(r.sigma, r.high) for r in rows)]
        low, high = math.log10(min(ends, default=top) / 1.6), math.log10(max(ends, default=top) * 1.6)
        axis = {"type": "log", "exponentformat": "power", "dtick": 1, "range": [low, high]}
        figure.update_yaxes(axis, row=at["row"], col=at["col"])
    figure.update_xaxes(title="index of the singular value", row=lines)
    return styled(
        figure,
        height=130 + 250 * lines,
        margin={"l": 60, "r": 24, "t": 96, "b": 56},
        legend={"y": 1 + 0.22 / lines, "x": 0, "orientation": "h", "yanchor": "bottom"},
    )


def rank_curves(run: FeaturesResult, head: str) -> go.Figure:
    """Held-out shares of features of rank 1, 2, … beside those of placebos, a panel per feature; of many features in
    one panel how far they are above them."""
    names = list(dict.fromkeys(r.name for r in run.curves))
    if len(names) > LINES:
        return _excess(run, head, names)
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure = make_subplots(
        lines, columns, subplot_titles=names, horizontal_spacing=0.09, vertical_spacing=0.36 / max(lines, 2)
    )
    for number, name in enumerate(names):
        rows = where(run.curves, head=head, name=name)
        at = {"row": number // columns + 1, "col": number % columns + 1}
        x, first = [r.rank for r in rows], number == 0
        line = {"color": NEUTRAL, "width": 1}
        figure.add_scatter(
            x=x, y=_short(r.placebo_share for r in rows), mode="lines", line=line, showlegend=False, **at
        )
        figure.add_scatter(
            x=x,
            y=_short(r.placebo_high for r in rows),
            mode="lines",
            line={**line, "dash": "dash"},
            fill="tonexty",
            name="placebos, mean to 95 %",
            showlegend=first,
            **at,
        )
        figure.add_scatter(
            x=x,
            y=_short(r.share for r in rows),
            mode="lines+markers",
            line={"color": PALETTE[0]},
            marker={"color": PALETTE[0], "size": [11 if r.chosen else 4 for r in rows]},
            name="the feature",
            showlegend=first,
            **at,
        )
    figure.update_xaxes(title="rank", dtick=1, row=lines)
    figure.update_yaxes(title="share of held-out logits", col=1)
    return styled(
        figure,
        height=130 + 230 * lines,
        margin={"l": 60, "r": 24, "t": 96, "b": 56},
        legend={"y": 1 + 0.22 / lines, "x": 0, "orientation": "h", "yanchor": "bottom"},
    )


def _excess(run: FeaturesResult, head: str, names: Sequence[str]) -> go.Figure:
    figure = go.Figure()
    for number, name in enumerate(names):
        rows = where(run.curves, head=head, name=name)
        figure.add_scatter(
            x=[r.rank for r in rows],
            y=_short(r.share - r.placebo_high for r in rows),
            mode="lines+markers",
            line={"color": PALETTE[number % len(PALETTE)], "width": 1.4},
            marker={"size": [9 if r.chosen else 3 for r in rows]},
            name=name,
        )
    figure.add_hline(y=0, line={"dash": "dash", "color": NEUTRAL, "width": 1})
    return styled(
        figure,
        legend=AT_RIGHT,
        xaxis={"title": "rank", "dtick": 1},
        yaxis={"title": "share above 95 % of placebos"},
    )


def _short(values: Iterable[float]) -> list[float]:
    """As many digits as a picture can show: there are thousands of points on a page."""
    return [float(f"{value:.4g}") for value in values]


def growing(run: FeaturesResult) -> list[str]:
    """The features whose queries take more than one value, so that a rank could grow with them."""
    return list(dict.fromkeys(r.name for r in run.growth if r.values > 1))


def rank_growth(run: FeaturesResult) -> go.Figure:
    """The 99 % rank against the number of distinct query values used to build ΔC, a panel per feature (Figure 16)."""
    names = growing(run)
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure = make_subplots(
        lines,
        columns,
        subplot_titles=names,
        shared_yaxes=True,
        horizontal_spacing=0.05,
        vertical_spacing=0.36 / max(lines, 2),
    )
    top = max(r.rank_energy for r in run.growth)
    for place, name in enumerate(names):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        most = max(r.values for r in run.growth if r.name == name)
        figure.add_scatter(
            x=[1, min(most, top + 1)],
            y=[1, min(most, top + 1)],
            mode="lines",
            line={"color": NEUTRAL, "dash": "dot", "width": 1.5},
            name="the design's bound",
            legendgroup="bound",
            showlegend=place == 0,
            **at,
        )
        for number, head in enumerate(run.chosen):
            rows = where(run.growth, head=head, name=name)
            figure.add_scatter(
                x=[r.values for r in rows],
                y=[r.rank_energy for r in rows],
                mode="lines+markers",
                line={"color": PALETTE[number % len(PALETTE)], "width": 1.6},
                name=head,
                legendgroup=head,
                showlegend=place == 0,
                **at,
            )
    figure.update_xaxes(type="log", tickvals=STEPS)
    figure.update_xaxes(title="distinct query values", row=lines)
    figure.update_yaxes(range=[0, top * 1.15 + 1])
    figure.update_yaxes(title="rank of ΔC, 99 %", col=1)
    return styled(
        figure, height=140 + 250 * lines, legend=AT_RIGHT, margin={"l": 60, "r": 24, "t": 40, "b": 56}
    )


def angles(run: FeaturesResult, head: str) -> go.Figure:
    """Principal angles between features, and between random halves of each, in query and key space.

    Many pairs are drawn as a matrix of their smallest angles, the halves of a feature on its diagonal.
    """
    rows = where(run.angles, head=head)
    pairs = list(dict.fromkeys((r.first, r.second) for r in rows))
    figure = make_subplots(
        1,
        2,
        subplot_titles=["query space", "key space"],
        shared_yaxes=True,
        horizontal_spacing=0.05 if len(pairs) <= LINES else 0.03,
    )
    draw = _angle_lines if len(pairs) <= LINES else _angle_matrix
    for column, side in enumerate(("query", "key"), 1):
        draw(figure, [r for r in rows if r.side == side], pairs, column)
    return styled(figure, height=440, legend=AT_RIGHT)


def _angle_lines(
    figure: go.Figure, rows: Sequence[AngleRow], pairs: Sequence[tuple[str, str]], column: int
) -> None:
    for number, (first, second) in enumerate(pairs):
        own = second == OTHER_HALF
        shown = [r for r in rows if (r.first, r.second) == (first, second)]
        figure.add_trace(
            go.Scatter(
                x=[r.index for r in shown],
                y=[r.degrees for r in shown],
                mode="lines+markers",
                line={"color": PALETTE[number % len(PALETTE)], "dash": "dash" if own else "solid"},
                name=f"{first} – {'half of it' if own else second}",
                legendgroup=f"{first}{second}",
                showlegend=column == 1,
            ),
            1,
            column,
        )
    figure.update_xaxes(title="principal angle", dtick=1, row=1, col=column)
    figure.update_yaxes(title="degrees" if column == 1 else None, range=[-2, 92], row=1, col=column)


def _angle_matrix(
    figure: go.Figure, rows: Sequence[AngleRow], pairs: Sequence[tuple[str, str]], column: int
) -> None:
    names = list(dict.fromkeys(first for first, _ in pairs))
    smallest: dict[tuple[str, str], float] = {}
    for r in rows:
        second = r.first if r.second == OTHER_HALF else r.second
        for pair in ((r.first, second), (second, r.first)):
            smallest[pair] = min(r.degrees, smallest.get(pair, 90.0))
    figure.add_trace(
        go.Heatmap(
            z=[[smallest.get((row, name)) for name in names] for row in names],
            x=names,
            y=names,
            zmin=0,
            zmax=90,
            colorscale=SEQUENTIAL,
            xgap=1,
            ygap=1,
            texttemplate="%{z:.0f}",
            showscale=column == 2,
            colorbar={"title": "degrees", "thickness": 12},
            hovertemplate="%{y}, %{x}: %{z:.1f}°<extra></extra>",
        ),
        1,
        column,
    )
    figure.update_xaxes(showgrid=False, dtick=1, row=1, col=column)
    figure.update_yaxes(autorange="reversed", showgrid=False, dtick=1, row=1, col=column)
