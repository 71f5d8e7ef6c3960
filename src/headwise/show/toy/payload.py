"""Figures of the payload study: the paper's Figures 2–5 and 11–15, with the untrained head beside every rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots
from torch import Tensor

from headwise.show.kit.theme import DIVERGING, NEUTRAL, ON_POINTS, PALETTE, WHISKER, styled
from headwise.strings import percent

_GREEN, _RED = "#1a8a5a", "#c2452d"
SYMBOLS = {"queries": "circle", "keys": "diamond"}
NAMED = 8
"""Training curves that can be told apart by colour."""


def rank_grid(records: Sequence[dict[str, Any]]) -> go.Figure:
    """Recovered ranks by the 99 % rule, against the null, and of untrained heads (Figures 2 and 11).

    A cell is split as in the paper: its lower left triangle is z1, its upper right one z2; the colour is
    the recovered rank minus the true one.
    """
    kinds = {
        "99 % energy": lambda r: r["rank99"],
        "against the null": lambda r: r["rank_null"],
        "untrained head, 99 %": lambda r: r["untrained"]["rank99"],
    }
    figure = make_subplots(
        1, len(kinds), subplot_titles=list(kinds), horizontal_spacing=0.06, shared_yaxes=True
    )
    named: set[int] = set()
    for column, get in enumerate(kinds.values(), 1):
        shapes: dict[int, tuple[list[float | None], list[float | None]]] = {}
        for record in records:
            x, y = record["r1"], record["r2"]
            for latent, true in enumerate((x, y)):
                xs, ys = shapes.setdefault(get(record)[latent] - true, ([], []))
                corner = (x - 0.5, y - 0.5) if latent == 0 else (x + 0.5, y + 0.5)
                xs += [x - 0.5, x + 0.5, corner[0], x - 0.5, None]
                ys += [y + 0.5, y - 0.5, corner[1], y + 0.5, None]
        for off in sorted(shapes):
            figure.add_trace(
                go.Scatter(
                    x=shapes[off][0],
                    y=shapes[off][1],
                    mode="lines",
                    fill="toself",
                    fillcolor=_off_colour(off),
                    line={"color": "rgba(255,255,255,0.55)", "width": 1},
                    name=f"{off:+d}".replace("-", "−") if off else "exact",
                    legendgroup=str(off),
                    legendrank=1000 + off,
                    showlegend=off not in named,
                    hoverinfo="skip",
                ),
                1,
                column,
            )
            named.add(off)
        for latent, shift in ((0, -0.24), (1, 0.24)):
            figure.add_trace(
                go.Scatter(
                    x=[r["r1"] + shift for r in records],
                    y=[r["r2"] + shift for r in records],
                    text=[str(get(r)[latent]) for r in records],
                    customdata=[[r["r1"], r["r2"]] for r in records],
                    mode="text",
                    textfont={"color": "white", "size": 11},
                    showlegend=False,
                    name=f"z{latent + 1}",
                    hovertemplate="true %{customdata[0]}, %{customdata[1]}: found %{text}<extra>z"
                    + str(latent + 1)
                    + "</extra>",
                ),
                1,
                column,
            )
        figure.update_xaxes(title="true rank of z1", dtick=1, showgrid=False, row=1, col=column)
    figure.update_yaxes(dtick=1, showgrid=False)
    figure.update_yaxes(title="true rank of z2", row=1, col=1)
    d_head = records[0]["d_head"]
    ends = [min(r["r1"] for r in records) - 0.5, max(r["r1"] for r in records) + 0.5]
    for column in range(1, len(kinds) + 1):
        # Below this line the latents fit into the head side by side.
        figure.add_trace(
            go.Scatter(
                x=ends,
                y=[d_head - e for e in ends],
                mode="lines",
                line={"color": "#4aa3ff", "width": 2.5, "dash": "dash"},
                name="r1 + r2 = d_head",
                legendrank=2000,
                showlegend=column == 1,
                hoverinfo="skip",
            ),
            1,
            column,
        )
    figure.update_yaxes(range=[min(r["r2"] for r in records) - 0.55, max(r["r2"] for r in records) + 0.55])
    figure.update_xaxes(range=[ends[0] - 0.05, ends[1] + 0.05])
    return styled(
        figure,
        height=500,
        # Above the panels' titles: below them it would lie over the axes' titles.
        legend={"y": 1.1},
        margin={"l": 60, "r": 24, "t": 96, "b": 60},
    )


def _mark(figure: go.Figure, axis: str, at: float, colour: str, dash: str, row: int, column: int) -> None:
    """A line across one panel."""
    across = "y" if axis == "x" else "x"
    shape = {"type": "line", f"{axis}0": at, f"{axis}1": at, f"{across}0": 0, f"{across}1": 1}
    figure.add_shape(
        **shape,
        **{f"{across}ref": f"{across} domain"},
        line={"color": colour, "dash": dash, "width": 1.3},
        row=row,
        col=column,
    )


def _off_colour(off: int) -> str:
    if off == 0:
        return _GREEN
    steps = (
        ("#e0a03a", "#d4752f", _RED, "#8f2f22") if off < 0 else ("#6f8fd0", "#5b6fc0", "#5b4db0", "#43358a")
    )
    return steps[min(abs(off), 4) - 1]


def spectra(record: dict[str, Any]) -> go.Figure:
    """Singular values of ΔC of both latents against their null, one cell; the true rank is where they should fall."""
    latents = len(record["singular_values"])
    figure = make_subplots(
        1, latents, subplot_titles=[f"z{j + 1}, true rank {record[f'r{j + 1}']}" for j in range(latents)]
    )
    for j in range(latents):
        sigma, null = record["singular_values"][j], record["null_sigma"][j]
        index = list(range(1, len(sigma) + 1))
        for name, values, style in (("σ of ΔC", sigma, "solid"), ("null, 99 %", null, "dot")):
            colour = PALETTE[0] if style == "solid" else NEUTRAL
            figure.add_trace(
                go.Scatter(
                    x=index,
                    y=values,
                    name=name,
                    mode="lines+markers",
                    line={"color": colour, "dash": style},
                    showlegend=j == 0,
                ),
                1,
                j + 1,
            )
        _mark(figure, "x", record[f"r{j + 1}"] + 0.5, PALETTE[1], "dash", 1, j + 1)
    figure.update_yaxes(type="log", exponentformat="power", dtick=1)
    figure.update_xaxes(title="index", dtick=2 if record["d_head"] > 8 else 1)
    return styled(figure, height=400, legend={"y": 1.12}, margin={"l": 60, "r": 24, "t": 84, "b": 56})


def interventions(records: Sequence[dict[str, Any]]) -> go.Figure:
    """Attention on original and target after each swap, one panel a cell, random draws as whiskers (Figs.
    4, 14, 15).
    """
    columns = min(3, len(records))
    rows = -(-len(records) // columns)
    titles = [", ".join(f"r{j + 1}={r[f'r{j + 1}']}" for j in range(len(r["rank99"]))) for r in records]
    figure = make_subplots(
        rows, columns, subplot_titles=titles, shared_yaxes=True, vertical_spacing=0.42 / rows
    )
    for i, record in enumerate(records):
        where = i // columns + 1, i % columns + 1
        names = list(record["swap"])
        for kind, colour in (("original", PALETTE[0]), ("target", PALETTE[1])):
            spread = [_whisker(record["swap"][n], kind) for n in names]
            figure.add_trace(
                go.Bar(
                    x=[n.replace("random_", "random ") for n in names],
                    y=[record["swap"][n][kind] for n in names],
                    error_y={
                        "type": "data",
                        "symmetric": False,
                        "array": [s[1] for s in spread],
                        "arrayminus": [s[0] for s in spread],
                        "thickness": 1.2,
                        "color": WHISKER,
                    },
                    marker_color=colour,
                    name=f"attention on {kind}",
                    showlegend=i == 0,
                ),
                *where,
            )
    figure.update_yaxes(range=[0, 1.05])
    figure.update_xaxes(tickangle=-35, showgrid=False)
    return styled(
        figure,
        height=120 + 290 * rows,
        barmode="group",
        legend={"orientation": "h", "y": 1.12 if rows == 1 else 1.05, "x": 0},
        margin={"l": 50, "r": 24, "t": 80, "b": 70},
    )


def _whisker(effect: dict[str, Any], kind: str) -> tuple[float, float]:
    draws = effect.get(f"{kind}s")
    return (effect[kind] - min(draws), max(draws) - effect[kind]) if draws else (0.0, 0.0)


def interaction_maps(maps: Sequence[tuple[Tensor, tuple[int, ...]]]) -> go.Figure:
    """G of several cells (Figures 5 and 13): a strong diagonal is feature splitting, the rest superposition."""
    columns = min(4, len(maps))
    rows = -(-len(maps) // columns)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=[" + ".join(map(str, ranks)) for _, ranks in maps],
        horizontal_spacing=0.05,
        vertical_spacing=0.12,
    )
    for i, (g, ranks) in enumerate(maps):
        where = i // columns + 1, i % columns + 1
        labels = [f"z{j + 1}[{k}]" for j, r in enumerate(ranks) for k in range(r)]
        size = float(g.abs().max())
        figure.add_trace(
            go.Heatmap(
                z=(g / size).tolist(),
                x=labels,
                y=labels,
                colorscale=DIVERGING,
                zmid=0,
                zmin=-1,
                zmax=1,
                showscale=i == 0,
                colorbar={"title": "G / max", "thickness": 12},
                hovertemplate="query %{y}, key %{x}: %{z:.2f}<extra></extra>",
            ),
            *where,
        )
        edge = ranks[0] - 0.5
        _mark(figure, "y", edge, NEUTRAL, "solid", *where)
        _mark(figure, "x", edge, NEUTRAL, "solid", *where)
    figure.update_yaxes(autorange="reversed", showticklabels=False, ticks="", showgrid=False)
    figure.update_xaxes(showticklabels=False, ticks="", showgrid=False)
    return styled(figure, height=60 + 270 * rows, margin={"l": 20, "r": 20, "t": 40, "b": 20})


def cloud(
    points: Tensor, is_key: Tensor, value: Tensor, explained: Sequence[float], *, discrete: bool
) -> go.Figure:
    """Queries and keys inside one latent's subspace, by principal components 1–2 and 2–3 (Figures 3 and 12).

    Colour is the latent's value: of sign vectors which of them it is, otherwise the first coordinate. For sign
    vectors of few dimensions the cube's edges join the mean positions of values that are one sign apart.
    """
    codes = ((value > 0).long() * 2 ** torch.arange(value.shape[1])).sum(1) if discrete else None
    colour = codes if codes is not None else value[:, 0]
    pairs = ((0, 1), (1, 2)) if points.shape[1] > 2 else ((0, 1),) if points.shape[1] > 1 else ((0, 0),)
    figure = make_subplots(1, len(pairs), horizontal_spacing=0.1)
    for column, (a, b) in enumerate(pairs, 1):
        if codes is not None and value.shape[1] <= 4:
            figure.add_trace(_cube(points[:, [a, b]], codes, showlegend=column == 1), 1, column)
        for name, symbol in SYMBOLS.items():
            pick = is_key == (name == "keys")
            figure.add_trace(
                go.Scatter(
                    x=points[pick, a].tolist(),
                    y=points[pick, b].tolist(),
                    mode="markers",
                    marker={
                        "size": 6,
                        "symbol": symbol,
                        "color": colour[pick].tolist(),
                        "coloraxis": "coloraxis",
                        "opacity": 0.75,
                        "line": {"width": 0},
                    },
                    name=name,
                    legendgroup=name,
                    showlegend=False,
                ),
                1,
                column,
            )
        figure.update_xaxes(title=_component(a, explained), showticklabels=False, row=1, col=column)
        figure.update_yaxes(title=_component(b, explained), showticklabels=False, row=1, col=column)
    for name, symbol in SYMBOLS.items():
        # A point coloured by its value lends the legend no colour: the legend has marks of its own.
        mark = {"symbol": symbol, "size": 8, "color": NEUTRAL}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=mark, name=name, legendgroup=name)
    bar = {"title": "value" if discrete else "first\ncoordinate", "thickness": 12}
    if codes is not None:
        named = sorted({int(c) for c in codes})
        signs = ["".join("+" if c >> i & 1 else "−" for i in range(value.shape[1])) for c in named]
        bar |= {"tickvals": named, "ticktext": signs} if len(named) <= 16 else {}
    return styled(figure, height=460, coloraxis={"colorscale": ON_POINTS, "colorbar": bar})


def _component(index: int, explained: Sequence[float]) -> str:
    share = f" ({percent(explained[index])})" if index < len(explained) else ""
    return f"PC {index + 1}{share}"


def _cube(points: Tensor, codes: Tensor, *, showlegend: bool) -> go.Scatter:
    """Lines between the mean positions of sign vectors that differ in one sign."""
    centres = {int(c): points[codes == c].mean(0).tolist() for c in codes.unique()}
    x: list[float | None] = []
    y: list[float | None] = []
    for a, b in combinations(sorted(centres), 2):
        if bin(a ^ b).count("1") == 1:
            x += [centres[a][0], centres[b][0], None]
            y += [centres[a][1], centres[b][1], None]
    line = {"color": NEUTRAL, "width": 1.5}
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line=line,
        name="one sign apart",
        legendgroup="cube",
        showlegend=showlegend,
        hoverinfo="skip",
    )


def training_curves(history: Sequence[dict[str, list[float]]], names: Sequence[str]) -> go.Figure:
    """Validation accuracy of every cell over training."""
    figure = go.Figure()
    steps = [h["step"][0] for h in history]
    for i, name in enumerate(names):
        figure.add_trace(
            go.Scatter(
                x=steps,
                y=[h["accuracy"][i] for h in history],
                name=name,
                mode="lines",
                line={
                    "width": 1.4,
                    "color": PALETTE[i % len(PALETTE)] if len(names) <= NAMED else PALETTE[0],
                },
                opacity=1 if len(names) <= NAMED else 0.6,
            )
        )
    return styled(
        figure,
        height=380,
        xaxis={"title": "step"},
        yaxis={"title": "accuracy"},
        showlegend=len(names) <= NAMED,
    )


def accuracy_grid(records: Sequence[dict[str, Any]]) -> go.Figure:
    """Accuracy reached against the ceiling that duplicate latents leave."""
    figure = go.Figure()
    total = [sum(r[f"r{j + 1}"] for j in range(len(r["rank99"]))) for r in records]
    figure.add_trace(
        go.Scatter(
            x=total, y=[r["accuracy"] for r in records], mode="markers", name="accuracy", marker={"size": 8}
        )
    )
    ceiling = sorted({(t, r["ceiling"]) for t, r in zip(total, records, strict=True)})
    figure.add_trace(
        go.Scatter(
            x=[c[0] for c in ceiling],
            y=[c[1] for c in ceiling],
            mode="lines",
            name="ceiling (duplicate latents)",
            line={"color": NEUTRAL, "dash": "dot"},
        )
    )
    return styled(figure, height=360, xaxis_title="r1 + r2", yaxis_title="accuracy")
