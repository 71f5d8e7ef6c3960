"""Figures of a contrastive study: heads, swaps, doses and logits by feature; ranks and angles are in ``ranks.py``.

Each takes a :class:`headwise.contrast.result.FeaturesResult` (or its records) and gives a Plotly figure. Numbers of
figures are those of the paper whose picture is drawn for whatever model was run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headwise.contrast.placebo import NAME as PLACEBO
from headwise.contrast.rows import AttributionRow, where
from headwise.show.kit.theme import (
    AT_RIGHT,
    FAINT,
    INK,
    NEUTRAL,
    PALETTE,
    PAPER,
    WHISKER,
    between,
    styled,
)

if TYPE_CHECKING:
    from headwise.contrast.result import FeaturesResult

DOTS = 260
"""Placebos that are drawn as dots for all features of a head; all there are count for their percentiles."""


def head_ranking(run: FeaturesResult, top: int = 20) -> go.Figure:
    """The best heads with their bootstrap intervals, those studied in colour."""
    rows = run.heads[:top]
    figure = go.Figure(
        go.Bar(
            x=[r.head for r in rows],
            y=[r.score for r in rows],
            error_y=between([r.score for r in rows], [r.low for r in rows], [r.high for r in rows]),
            marker={"color": [PALETTE[0] if r.chosen else FAINT for r in rows]},
            customdata=[[r.q_value, r.mass] for r in rows],
            hovertemplate="%{x}: %{y:.3f}<br>q %{customdata[0]:.4f}, "
            "attention on keys %{customdata[1]:.2f}<extra></extra>",
            name="score",
        )
    )
    title = (
        "share of prompts with the right key" if run.rule == "accuracy" else "attention on asked / on others"
    )
    if run.rule == "accuracy":
        figure.add_hline(y=0.3, line={"dash": "dash", "color": NEUTRAL, "width": 1})
    return styled(
        figure, yaxis={"title": title, "rangemode": "tozero"}, xaxis={"title": "head"}, showlegend=False
    )


def swap_bars(run: FeaturesResult, head: str) -> go.Figure:
    """Attention on original and target: untouched, each feature, whole keys, and random (Figures 7 and 9)."""
    clean, full = (where(run.swaps, head=head, condition=c)[0] for c in ("none", "full"))
    features = where(run.features, head=head)
    labels = ["untouched", *(f"{f.name} ({f.rank})" for f in features), "whole keys"]
    swaps = {s.name: s for s in where(run.swaps, head=head, condition="swap")}
    figure = go.Figure()
    for side, colour in (("original", PALETTE[0]), ("target", PALETTE[1])):
        rows = [clean, *(swaps[f.name] for f in features), full]
        figure.add_bar(
            x=labels,
            y=[getattr(r, side) for r in rows],
            name=f"attention on {side}",
            marker={"color": colour},
            error_y=between(*([getattr(r, f"{side}{end}") for r in rows] for end in ("", "_low", "_high"))),
        )
    for side, colour, shift in (("original", PALETTE[5], -0.2), ("target", PALETTE[4], 0.2)):
        xs: list[float] = []
        ys: list[float] = []
        for place, f in enumerate(features, 1):
            drawn = where(run.draws, head=head, name=f.name, against=PLACEBO)[: DOTS // len(features)]
            xs += [round(place + shift + 0.12 * (d.draw % 11 - 5) / 5, 3) for d in drawn]
            ys += [round(getattr(d, side), 4) for d in drawn]
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="markers",
            marker={"size": 3.5, "color": colour, "opacity": 0.75, "line": {"width": 0.3, "color": INK}},
            name=f"placebos, {side}",
        )
    figure.update_xaxes(tickmode="array", tickvals=list(range(len(labels))), ticktext=labels, type="linear")
    # Bars on a linear axis, so that the random draws can stand beside each other inside a group.
    figure.update_traces(x=list(range(len(labels))), selector={"type": "bar"})
    return styled(
        figure,
        height=440,
        yaxis={"title": "attention", "rangemode": "tozero"},
        xaxis={"title": f"{head}: what is swapped (dimensions)", "showgrid": False},
        barmode="group",
        margin={"l": 60, "r": 24, "t": 72, "b": 64},
    )


def share_bars(run: FeaturesResult) -> go.Figure:
    """Change of log-odds as a share of a full key swap, every head and feature, with a tick for placebos."""
    heads = run.chosen
    names = list(dict.fromkeys(f.name for f in run.features))
    width = 0.8 / len(names)
    figure = go.Figure()
    ticks: list[tuple[float, float]] = []
    for number, name in enumerate(names):
        rows = [where(run.features, head=h, name=name)[0] for h in heads]
        # On a linear axis, so that every tick is on its bar.
        x = [i + (number - (len(names) - 1) / 2) * width for i in range(len(heads))]
        ticks += zip(x, (r.placebo_high for r in rows), strict=True)
        values = [r.share_of_full for r in rows]
        figure.add_bar(
            x=x,
            y=values,
            width=0.92 * width,
            name=name,
            marker={
                "color": PALETTE[number % len(PALETTE)],
                "opacity": [1.0 if r.supported else 0.4 for r in rows],
            },
            error_y=between(values, [r.share_low for r in rows], [r.share_high for r in rows]),
            text=heads,
            textposition="none",
            hovertemplate="%{text}, %{fullData.name}: %{y:.2f}<extra></extra>",
        )
    figure.add_scatter(
        x=[x for x, _ in ticks],
        y=[y for _, y in ticks],
        mode="markers",
        marker={
            "symbol": "line-ew",
            "size": max(6, min(26, 560 * width / len(heads))),
            "color": INK,
            "line": {"width": 2.5, "color": INK},
        },
        name="95th percentile of placebos",
        hovertemplate="%{y:.2f}<extra>placebo</extra>",
    )
    # Where a full swap changes little, intervals are many times as long as any bar: they may leave the figure.
    low = min(0.0, *(r.share_of_full for r in run.features), *(y for _, y in ticks))
    high = max(1.0, *(r.share_of_full for r in run.features), *(y for _, y in ticks))
    room = 0.15 * (high - low)
    return styled(
        figure,
        barmode="overlay",
        yaxis={"title": "share of a full key swap", "range": [low - room, high + room]},
        xaxis={
            "title": "head",
            "tickvals": list(range(len(heads))),
            "ticktext": heads,
            "showgrid": False,
            "range": [-0.55, len(heads) - 0.45],
        },
    )


def controls(run: FeaturesResult, head: str) -> go.Figure:
    """Every edit of every feature: keys, query, both, ablations, and controls of the same rank."""
    order = (
        "swap",
        "principal components",
        "mean difference",
        "query",
        "both sides",
        "ablate keys",
        "ablate query",
    )
    figure = go.Figure()
    for number, f in enumerate(where(run.features, head=head)):
        rows = {s.condition: s for s in where(run.swaps, head=head, name=f.name)}
        shown = [c for c in order if c in rows]
        figure.add_bar(
            # In two lines, so that they need not be slanted.
            x=[{"swap": "keys\n(the feature)"}.get(c, c.replace(" ", "\n")) for c in shown],
            y=[rows[c].log_odds for c in shown],
            name=f.name,
            marker={"color": PALETTE[number % len(PALETTE)]},
            error_y=between(
                *([getattr(rows[c], f"log_odds{end}") for c in shown] for end in ("", "_low", "_high"))
            ),
        )
    full = where(run.swaps, head=head, condition="full")[0].log_odds
    figure.add_hline(
        y=full, line={"dash": "dash", "color": NEUTRAL, "width": 1}, annotation_text="whole keys swapped"
    )
    return styled(
        figure, yaxis={"title": "change of log-odds"}, xaxis={"title": f"{head}: edit", "showgrid": False}
    )


def dose_response(run: FeaturesResult, head: str) -> go.Figure:
    """Attention on the target as the swap is made in part."""
    figure = go.Figure()
    for number, f in enumerate(where(run.features, head=head)):
        rows = where(run.doses, head=head, name=f.name)
        colour = PALETTE[number % len(PALETTE)]
        for side, dash in (("target", "solid"), ("original", "dot")):
            figure.add_scatter(
                x=[r.dose for r in rows],
                y=[getattr(r, side) for r in rows],
                mode="lines+markers",
                line={"color": colour, "dash": dash},
                name=f"{f.name}, {side}",
            )
    return styled(
        figure,
        xaxis={"title": f"{head}: part of the swap that is made"},
        yaxis={"title": "attention", "rangemode": "tozero"},
        legend=AT_RIGHT,
    )


def logit_bars(records: Sequence[AttributionRow], head: str, method: str = "sequential") -> go.Figure:
    """Each token's logit as stacked bars of features and residual, its total as a point (Figure 10)."""
    rows = [r for r in records if r.head == head and r.method == method]
    names = list(dict.fromkeys(r.feature for r in rows))
    places = sorted({r.position for r in rows})
    tokens = {r.position: r.token for r in rows}
    figure = go.Figure()
    for number, name in enumerate(names):
        values = {r.position: round(r.logit, 4) for r in rows if r.feature == name}
        if name == "total":
            figure.add_scatter(
                x=places,
                y=[values[p] for p in places],
                mode="markers",
                name="total",
                marker={"color": INK, "size": 6, "line": {"color": PAPER, "width": 1}},
            )
        else:
            colour = FAINT if name == "residual" else PALETTE[number % len(PALETTE)]
            figure.add_bar(x=places, y=[values[p] for p in places], name=name, marker={"color": colour})
    text = [tokens[p].replace("\n", "⏎") for p in places]
    figure.update_xaxes(
        tickmode="array", tickvals=places, ticktext=text, tickangle=-90, tickfont={"size": 11}
    )
    return styled(
        figure,
        height=460,
        barmode="relative",
        yaxis={"title": f"{head}: logit"},
        xaxis={"showgrid": False},
        margin={"l": 60, "r": 24, "t": 48, "b": 90},
    )


def answers(run: FeaturesResult) -> go.Figure:
    """The answer's logit difference before and after the swaps in the running model."""
    rows = run.answers
    heads = list(dict.fromkeys(r.head for r in rows))
    figure = go.Figure()
    for number, name in enumerate(dict.fromkeys(r.name for r in rows)):
        shown = {r.head: r for r in rows if r.name == name}
        figure.add_bar(
            x=heads,
            y=[shown[h].change if h in shown else None for h in heads],
            error_y={
                "type": "data",
                "array": [1.96 * shown[h].change_se if h in shown else 0 for h in heads],
                "thickness": 1.2,
                "color": WHISKER,
            },
            name=name,
            marker={"color": PALETTE[number % len(PALETTE)]},
        )
    return styled(
        figure, yaxis={"title": "change of logit(original) − logit(target)"}, xaxis={"title": "edited head"}
    )
