"""Figures of a study of sinks: where attention is parked, how alike the signals are, who writes them, removal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.show.kit.theme import FAINT, NEUTRAL, PALETTE, SEQUENTIAL, VEIL, between, styled
from headwise.sinks.clusters import writers_of
from headwise.sinks.document import positions
from headwise.sinks.signals import CONTROLLED, SIDES
from headwise.types import Side

if TYPE_CHECKING:
    from headwise.sinks.result import SinksResult

NAMED = 48
"""Heads whose names fit along both sides of a matrix."""
DASHED = {"dash": "dash", "color": NEUTRAL, "width": 1}


def parking_map(study: SinksResult) -> go.Figure:
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


def parking_by_layer(study: SinksResult) -> go.Figure:
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


def received(study: SinksResult, last: int = 24) -> go.Figure:
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


def agreement_by_layer(study: SinksResult) -> go.Figure:
    """Mean cosine distance of each head's signals, at sinks and elsewhere, one panel per side."""
    figure = make_subplots(
        1, 2, subplot_titles=[f"{side} side" for side in SIDES], shared_yaxes=True, horizontal_spacing=0.04
    )
    for column, side in enumerate(SIDES, 1):
        found = study.of(side)
        series: list[tuple[str, str, str, list[tuple[Any, float]]]] = [
            (
                "at other tokens",
                NEUTRAL,
                "circle-open",
                [(h, a.others) for h, a in found if a.others is not None],
            ),
            ("at sinks", PALETTE[0], "circle", [(h, a.distance.mean) for h, a in found]),
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


def writers_by_layer(study: SinksResult, side: Side, top: int = 6) -> go.Figure:
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
        colour = FAINT if name == "others" else PALETTE[i % len(PALETTE)]
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


def distances(study: SinksResult, side: Side) -> go.Figure:
    """Cosine distance between the mean signals of every two controlled heads, in the stream."""
    sharing = next(s for s in study.sharing if s.side == side)
    order = sorted(range(len(sharing.heads)), key=lambda i: sharing.heads[i])
    heads = [sharing.heads[i] for i in order]
    names = [str(head) for head in heads]
    figure = go.Figure(
        go.Heatmap(
            # Whole per cents in one byte each: a matrix of hundreds of heads stays small.
            z=(100 * sharing.distances[order][:, order]).clamp(0, 200).round().byte().numpy(),
            x=names,
            y=names,
            zmin=0,
            zmax=100,
            colorscale=SEQUENTIAL,
            reversescale=True,
            colorbar={"title": "distance", "ticksuffix": " %", "thickness": 12},
            hovertemplate="%{y} – %{x}: %{z} %<extra></extra>",
        )
    )
    axis: dict[str, Any] = {"showgrid": False, "constrain": "domain", "tickfont": {"size": 11}, "ticks": ""}
    starts = [i for i, head in enumerate(heads) if i == 0 or head.layer != heads[i - 1].layer]
    for start in starts[1:]:
        for edge in ("x", "y"):
            _between_layers(figure, edge, start - 0.5)
    if len(heads) > NAMED:
        # Names of single heads would overlap: a layer's block carries its name.
        ends = [*starts[1:], len(heads)]
        wide = [(a, b) for a, b in zip(starts, ends, strict=True) if b - a >= len(heads) / 45]
        axis |= {
            "tickvals": [(a + b - 1) // 2 for a, b in wide],
            "ticktext": [f"L{heads[a].layer}" for a, _ in wide],
        }
    else:
        axis |= {"tickvals": list(range(len(heads))), "ticktext": names}
    return styled(
        figure,
        height=min(820, max(360, 170 + 16 * len(heads))),
        xaxis={**axis, "tickangle": -90},
        yaxis={**axis, "autorange": "reversed", "scaleanchor": "x"},
        margin={"l": 60, "r": 24, "t": 16, "b": 60},
    )


def _between_layers(figure: go.Figure, edge: str, at: float) -> None:
    other = "y" if edge == "x" else "x"
    figure.add_shape(
        type="line",
        **{f"{edge}0": at, f"{edge}1": at, f"{other}0": 0, f"{other}1": 1, f"{other}ref": f"{other} domain"},
        line={"color": VEIL, "width": 0.7},
    )


def removal_bars(study: SinksResult) -> go.Figure:
    """Attention on the sink: untouched, predicted and really edited, and with unused channels removed."""
    records = study.one_by_one
    names = (
        ("attention", "untouched"),
        ("predicted", "signals removed, predicted"),
        ("edited", "signals removed, edited pass"),
        ("control", "unused channels removed"),
    )
    colours = (PALETTE[0], PALETTE[5], PALETTE[1], FAINT)
    figure = go.Figure()
    for (key, label), colour in zip(names, colours, strict=True):
        figure.add_bar(
            x=[f"{r['side']} side" for r in records],
            y=[r[key] for r in records],
            error_y=between([r[key] for r in records], *zip(*(r[f"{key}_ci"] for r in records), strict=True)),
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


def shared_bars(study: SinksResult) -> go.Figure:
    """One direction out of all its heads' reads: attention on sinks, and the change of the loss."""
    labels = [f"{s.name.removeprefix('largest ')}\n{s.side}\n{len(s.heads)} heads" for s in study.shared]
    figure = make_subplots(
        1,
        2,
        subplot_titles=("attention on sinks", "change of next-token loss (nats)"),
        horizontal_spacing=0.1,
    )
    removed = [s.removed.mean for s in study.shared]
    change = [s.loss_change.mean for s in study.shared]
    ends = [s.removed.low for s in study.shared], [s.removed.high for s in study.shared]
    loss_ends = [s.loss_change.low for s in study.shared], [s.loss_change.high for s in study.shared]
    bars = (
        (1, "untouched", PALETTE[0], [s.attention for s in study.shared], None),
        (1, "direction removed", PALETTE[1], removed, between(removed, *ends)),
        (1, "random direction", FAINT, [s.control for s in study.shared], None),
        (2, "direction removed", PALETTE[1], change, between(change, *loss_ends)),
        (2, "random direction", FAINT, [s.control_loss_change for s in study.shared], None),
    )
    for column, name, colour, values, error in bars:
        figure.add_bar(
            x=labels,
            y=values,
            error_y=error,
            name=name,
            legendgroup=name,
            showlegend=column == 1,
            marker={"color": colour},
            row=1,
            col=column,
        )
    styled(
        figure, height=420, barmode="group", margin={"l": 60, "r": 24, "t": 72, "b": 90}, legend={"y": 1.1}
    )
    figure.update_xaxes(showgrid=False, tickfont={"size": 11})
    figure.update_yaxes(rangemode="tozero")
    return figure
