"""Figures of a study of sinks: where attention is parked, how alike the signals are, who writes them, removal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.show.kit.theme import NEUTRAL, PALETTE, SEQUENTIAL, styled
from headwise.sinks.clusters import writers_of
from headwise.sinks.document import positions
from headwise.sinks.signals import CONTROLLED, SIDES
from headwise.types import Side

if TYPE_CHECKING:
    from headwise.sinks.study import SinkStudy

GRID = "rgba(128,128,128,0.22)"
DASHED = {"dash": "dash", "color": NEUTRAL, "width": 1}


def parking_map(study: SinkStudy) -> go.Figure:
    """Attention on sinks, layers by heads."""
    layers, heads = study.attention.shape
    figure = go.Figure(
        go.Heatmap(
            z=study.attention.tolist(),
            x=[f"H{i}" for i in range(heads)],
            y=[f"L{i}" for i in range(layers)],
            zmin=0,
            zmax=1,
            colorscale=SEQUENTIAL,
            colorbar={"title": "attention\non sinks", "thickness": 12},
            hovertemplate="%{y}%{x}: %{z:.3f}<extra></extra>",
            xgap=1,
            ygap=1,
        )
    )
    return styled(
        figure,
        height=max(320, 17 * layers + 110),
        yaxis={"autorange": "reversed", "showgrid": False, "dtick": 1 if layers <= 32 else 4},
        xaxis={"showgrid": False, "side": "top"},
        margin={"l": 48, "r": 24, "t": 40, "b": 24},
    )


def parking_by_layer(study: SinkStudy) -> go.Figure:
    """Every head's attention on sinks by layer, and the layer's mean."""
    layers, heads = study.attention.shape
    rows = study.attention.tolist()
    xs = [
        layer + (index - (heads - 1) / 2) * 0.5 / heads for layer in range(layers) for index in range(heads)
    ]
    figure = go.Figure()
    figure.add_scatter(
        x=xs,
        y=[value for row in rows for value in row],
        text=[f"L{layer}H{index}" for layer in range(layers) for index in range(heads)],
        mode="markers",
        marker={"size": 5, "color": PALETTE[5], "opacity": 0.8},
        hovertemplate="%{text}: %{y:.3f}<extra></extra>",
        name="one head",
    )
    figure.add_scatter(
        x=list(range(layers)),
        y=study.attention.nanmean(1).tolist(),
        mode="lines+markers",
        line={"color": PALETTE[1], "width": 2},
        marker={"size": 5},
        name="mean of the layer",
    )
    figure.add_hline(y=study.settings["parked"], line=DASHED)
    return styled(
        figure,
        height=380,
        xaxis={"title": "layer", "showgrid": False},
        yaxis={"title": "attention on sinks", "range": [0, 1.03]},
    )


def received(study: SinkStudy, last: int = 24) -> go.Figure:
    """Mean attention that each position receives."""
    rows = positions(study.parking)[:last]
    figure = go.Figure(
        go.Bar(x=[r["position"] for r in rows], y=[r["received"] for r in rows], marker={"color": PALETTE[0]})
    )
    figure.add_hline(y=study.settings["threshold"], line=DASHED)
    return styled(
        figure,
        height=280,
        xaxis={"title": "position", "dtick": 2, "showgrid": False},
        yaxis={"title": "attention received", "rangemode": "tozero"},
        showlegend=False,
        margin={"l": 60, "r": 24, "t": 16, "b": 56},
    )


def agreement_by_layer(study: SinkStudy) -> go.Figure:
    """Mean cosine distance of each head's signals, at sinks and elsewhere, a panel a side."""
    figure = make_subplots(1, 2, subplot_titles=[f"{side} side" for side in SIDES], shared_yaxes=True,
                           horizontal_spacing=0.04)  # fmt: skip
    for column, side in enumerate(SIDES, 1):
        found = study.of(side)
        series: list[tuple[str, str, str, list[tuple[Any, float]]]] = [
            (
                "at other tokens",
                NEUTRAL,
                "circle-open",
                [(h, a.others) for h, a in found if a.others is not None],
            ),
            ("at sinks", PALETTE[0], "circle", [(h, a.distance) for h, a in found]),
        ]
        for name, colour, symbol, points in series:
            figure.add_scatter(
                x=[h.layer + (h.index % 9 - 4) * 0.06 for h, _ in points],
                y=[y for _, y in points],
                text=[str(h) for h, _ in points],
                mode="markers",
                marker={"size": 6, "color": colour, "symbol": symbol},
                name=name,
                legendgroup=name,
                showlegend=column == 1,
                hovertemplate="%{text}: %{y:.2f}<extra></extra>",
                row=1,
                col=column,
            )
        figure.add_hline(y=CONTROLLED, line=DASHED, row=1, col=column)  # pyright: ignore[reportArgumentType]
    styled(figure, height=400, margin={"l": 60, "r": 24, "t": 64, "b": 56}, legend={"y": 1.1})
    figure.update_xaxes(title="layer", showgrid=False)
    figure.update_yaxes(range=[-0.03, 1.15])
    figure.update_yaxes(title="cosine distance over prompts", row=1, col=1)
    return figure


def writers_by_layer(study: SinkStudy, side: Side, top: int = 6) -> go.Figure:
    """Who writes the control signals of each layer's controlled heads."""
    names = [w.component for w in study.writers(side)[:top]]
    heads = set(study.controlled(side))
    layers = sorted({head.layer for head in heads})
    shares: dict[str, list[float]] = {name: [] for name in [*names, "others"]}
    for layer in layers:
        mine = [t for t in study.traced if t.head in heads and t.head.layer == layer and side in t.read]
        found = {w.component: w.share for w in writers_of(mine, side)}
        for name in names:
            shares[name].append(found.get(name, 0.0))
        shares["others"].append(1 - sum(found.get(name, 0.0) for name in names))
    figure = go.Figure()
    for i, (name, values) in enumerate(shares.items()):
        colour = "rgba(138,143,152,0.45)" if name == "others" else PALETTE[i % len(PALETTE)]
        figure.add_bar(x=layers, y=values, name=name, marker={"color": colour, "line": {"width": 0}})
    return styled(
        figure,
        height=340,
        barmode="stack",
        legend={"traceorder": "normal"},
        bargap=0.12,
        xaxis={"title": "layer of the heads that read it", "showgrid": False},
        yaxis={"title": "share of the signal", "range": [0, 1]},
    )


def distances(study: SinkStudy, side: Side) -> go.Figure:
    """Cosine distance between the mean signals of every two controlled heads, in the stream."""
    sharing = next(s for s in study.sharing if s.side == side)
    names = [str(head) for head in sharing.heads]
    figure = go.Figure(
        go.Heatmap(
            z=sharing.distances.float().round(decimals=3).tolist(), x=names, y=names, zmin=0, zmax=1,
            colorscale=SEQUENTIAL, reversescale=True, colorbar={"title": "distance", "thickness": 12},
            hovertemplate="%{y} – %{x}: %{z:.2f}<extra></extra>",
        )
    )  # fmt: skip
    axis = {"showgrid": False, "constrain": "domain", "nticks": 16, "tickfont": {"size": 10}}
    return styled(figure, height=520, xaxis=axis, yaxis={**axis, "autorange": "reversed", "scaleanchor": "x"},
                  margin={"l": 60, "r": 24, "t": 16, "b": 60})  # fmt: skip


def removal_bars(study: SinkStudy) -> go.Figure:
    """Attention on the sink: untouched, predicted and really edited, and with unused channels removed."""
    records = study.one_by_one
    names = (("attention", "untouched"), ("predicted", "signals removed, predicted"),
             ("edited", "signals removed, edited pass"), ("control", "unused channels removed"))  # fmt: skip
    colours = (PALETTE[0], PALETTE[5], PALETTE[1], "rgba(138,143,152,0.6)")
    figure = go.Figure()
    for (key, label), colour in zip(names, colours, strict=True):
        figure.add_bar(
            x=[f"{r['side']} side" for r in records],
            y=[r[key] for r in records],
            error_y=_error([r[key] for r in records], [r[f"{key}_ci"] for r in records]),
            name=label,
            marker={"color": colour},
        )
    return styled(
        figure,
        height=360,
        barmode="group",
        yaxis={"title": "attention on the sink", "range": [0, 1.03]},
        xaxis={"showgrid": False},
        margin={"l": 60, "r": 24, "t": 72, "b": 40},
    )


def shared_bars(study: SinkStudy) -> go.Figure:
    """One direction out of all its heads' reads: attention on sinks, and the change of the loss."""
    labels = [f"{s.name.removeprefix('largest ')}\n{s.side}\n{len(s.heads)} heads" for s in study.shared]
    figure = make_subplots(1, 2, subplot_titles=("attention on sinks", "change of next-token loss (nats)"),
                           horizontal_spacing=0.1)  # fmt: skip
    removed = [s.removed for s in study.shared]
    change = [s.loss_change for s in study.shared]
    limits = [(s.removed_low, s.removed_high) for s in study.shared]
    loss_limits = [(s.loss_low, s.loss_high) for s in study.shared]
    grey = "rgba(138,143,152,0.6)"
    bars = (
        (1, "untouched", PALETTE[0], [s.attention for s in study.shared], None),
        (1, "direction removed", PALETTE[1], removed, _error(removed, limits)),
        (1, "random direction", grey, [s.control for s in study.shared], None),
        (2, "direction removed", PALETTE[1], change, _error(change, loss_limits)),
        (2, "random direction", grey, [s.control_loss_change for s in study.shared], None),
    )  # fmt: skip
    for column, name, colour, values, error in bars:
        figure.add_bar(x=labels, y=values, error_y=error, name=name, legendgroup=name, showlegend=column == 1,
                       marker={"color": colour}, row=1, col=column)  # fmt: skip
    styled(
        figure, height=420, barmode="group", margin={"l": 60, "r": 24, "t": 72, "b": 90}, legend={"y": 1.1}
    )
    figure.update_xaxes(showgrid=False, tickfont={"size": 11})
    figure.update_yaxes(rangemode="tozero")
    return figure


def _error(values: list[float], limits: Any) -> dict[str, Any]:
    return {
        "type": "data",
        "array": [high - value for value, (_, high) in zip(values, limits, strict=True)],
        "arrayminus": [value - low for value, (low, _) in zip(values, limits, strict=True)],
        "thickness": 1.2,
        "color": NEUTRAL,
    }
