"""Figures of circuit families: numbers of families, what they are made of, heads, causality.

Each takes a :class:`headwise.families.result.FamiliesResult` and gives a Plotly figure whose size does not grow with
the number of prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.families.cluster import LEVEL, STABLE
from headwise.families.compare import OPPOSITE, SAME
from headwise.show.kit.theme import FAINT, NEUTRAL, PALETTE, between, styled
from headwise.strings import counted, natural, shortened

if TYPE_CHECKING:
    from headwise.families.result import FamiliesResult

NAMED_HEADS = 60
"""Heads whose names fit along an axis."""
UPRIGHT = 6
"""Values of a label whose names fit side by side."""
LABEL = 18
"""Characters of such a name; the mouse shows the whole of it."""
VERDICTS = {
    "the same": PALETTE[2],
    "something else": PALETTE[4],
    "the opposite": PALETTE[1],
    "unclear": NEUTRAL,
}


def family_colour(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


# --- how many ------------------------------------------------------------------------------------------------------


def numbers_of_families(found: FamiliesResult) -> go.Figure:
    """Silhouette and stability, and separation, for every number of families, beside data that are one family."""
    cuts = found.cuts
    k = [c["families"] for c in cuts]
    titles = ("silhouette and stability", "separation of the nearest two families (s.d.)")
    figure = make_subplots(1, 2, subplot_titles=titles, horizontal_spacing=0.09)
    figure.add_trace(_line(k, [c["stability"] for c in cuts], "stability", PALETTE[2]), 1, 1)
    figure.add_trace(_line(k, [c["silhouette"] for c in cuts], "silhouette", PALETTE[0]), 1, 1)
    if found.null is not None:
        known = sorted(set(found.null.silhouette) & set(k))
        bands = [np.quantile(found.null.silhouette[i], [0.025, 0.975]) for i in known]
        _band(figure, 1, known, [b[0] for b in bands], [b[1] for b in bands], "one family: silhouette, 95 %")
        usual = found.null.usual
        known = [i for i in usual if i in k]
        low, high = ([usual[i][0] + s * 2 * usual[i][1] for i in known] for s in (-1, 1))
        _band(figure, 2, known, low, high, "one family: separation, ± 2 s.d.")
        passed = [c["p_value"] is not None and c["p_value"] <= LEVEL for c in cuts]
        marker = {"size": 8, "color": [PALETTE[1] if p else NEUTRAL for p in passed]}
        trace = _line(k, [c["separation"] for c in cuts], f"separation (coloured: p ≤ {LEVEL})", PALETTE[1])
        figure.add_trace(trace.update(marker=marker, line={"color": NEUTRAL, "width": 1.2}), 1, 2)
    figure.add_hline(y=STABLE, line={"dash": "dot", "width": 1, "color": PALETTE[2]}, row=1, col=1)  # pyright: ignore[reportArgumentType]
    for c in cuts:
        if c["chosen"]:
            line = {"dash": "dash", "width": 1.2, "color": NEUTRAL}
            figure.add_vline(x=c["families"], line=line, row="all", col="all")  # pyright: ignore[reportArgumentType]
    styled(figure, height=400, margin={"l": 56, "r": 24, "t": 96, "b": 52})
    figure.update_layout(legend={"y": 1.14})
    figure.update_xaxes(title="families", dtick=1 if len(cuts) < 16 else None, tickformat="d")
    figure.update_yaxes(range=[0, 1.03], row=1, col=1)
    return figure


def _line(x: Sequence[Any], y: Sequence[Any], name: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=y,
        name=name,
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"size": 6, "color": colour},
    )


def _band(
    figure: go.Figure, column: int, x: Sequence[int], low: Sequence[float], high: Sequence[float], name: str
) -> None:
    if not x:
        return
    figure.add_trace(
        go.Scatter(
            x=[*x, *reversed(x)],
            y=[*low, *reversed(high)],
            fill="toself",
            mode="lines",
            name=name,
            line={"width": 0},
            fillcolor="rgba(138,143,152,0.3)",
            hoverinfo="skip",
        ),
        1,
        column,
    )


def compositions(found: FamiliesResult) -> go.Figure:
    """Sizes of families, and of which values of each label they are made."""
    families = found.families[:30]
    labels = found.telling
    values = {name: sorted(np.unique(found.groups[name]).tolist(), key=natural) for name in labels}
    widths = [4.0, *(max(2.0, 0.75 * len(values[name])) for name in labels)]
    figure = make_subplots(
        1,
        1 + len(labels),
        shared_yaxes=True,
        column_widths=widths,
        horizontal_spacing=0.03,
        subplot_titles=("prompts", *labels),
    )
    names = [_called(found, place) for place in range(len(families))]
    figure.add_trace(
        go.Bar(
            y=names,
            x=[f.size for f in families],
            orientation="h",
            name="prompts",
            text=[f.size for f in families],
            marker={"color": [family_colour(f.family) for f in families]},
            textposition="auto",
        ),
        1,
        1,
    )
    for column, name in enumerate(labels, 2):
        # Opaque cells and none where there are no prompts: the counts can be read on any paper.
        share = [[f.labels[name].get(v, 0) / f.size or None for v in values[name]] for f in families]
        count = [[f.labels[name].get(v, 0) or "" for v in values[name]] for f in families]
        figure.add_trace(
            go.Heatmap(
                z=share,
                x=values[name],
                y=names,
                text=count,
                texttemplate="%{text}",
                zmin=0,
                zmax=1,
                xgap=1,
                ygap=1,
                textfont={"size": 11},
                colorscale=[[0, "#D9E4EE"], [1, "#0072B2"]],
                showscale=False,
                name=name,
                hovertemplate="%{y}, %{fullData.name} %{x}: %{text} prompts (%{z:.0%})<extra></extra>",
            ),
            1,
            column,
        )
        # Every value has its name, upright where there are many; Plotly would skip some.
        text = [shortened(value, LABEL) for value in values[name]]
        figure.update_xaxes(
            type="category",
            tickvals=values[name],
            ticktext=text,
            tickangle=-90 if len(text) > UPRIGHT else None,
            tickfont={"size": 11 if len(text) > UPRIGHT else 13},
            row=1,
            col=column,
        )
    upright = any(len(values[name]) > UPRIGHT for name in labels)
    longest = max((len(shortened(v, LABEL)) for name in labels for v in values[name]), default=0)
    below = 30 + (7 * longest if upright else 14)
    styled(
        figure,
        height=66 + 30 * len(families) + below,
        showlegend=False,
        margin={"l": 80, "r": 24, "t": 44, "b": below},
    )
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(showgrid=False)
    return figure


def _called(found: FamiliesResult, family: int) -> str:
    """A family as a sentence names it: by its number, or by the label's value that it was grouped by."""
    name = found.families[family].name
    return f"family {name}" if found.grouped_by is None else name


# --- what differs --------------------------------------------------------------------------------------------------


def cosines(found: FamiliesResult, first: int, second: int) -> go.Figure:
    """Cosine of the signals into each head in two families, query and key side."""
    both = " and ".join(_called(found, family) for family in (first, second))
    mine = [h for h in found.heads if (h.first, h.second) == (first, second)]
    heads = list(dict.fromkeys(h.head for h in mine))
    figure = make_subplots(
        2,
        1,
        shared_xaxes=True,
        vertical_spacing=0.1,
        subplot_titles=[f"into the {side}: {both}" for side in ("query", "key")],
    )
    # Where there is no room for every head's name, those that differ have theirs; the others show it under the mouse.
    crowded = len(heads) > NAMED_HEADS
    shown: set[str] = set()
    for row, side in enumerate(("query", "key"), 1):
        for verdict, colour in VERDICTS.items():
            rows = [h for h in mine if h.side == side and h.verdict == verdict]
            if not rows:
                continue
            named = crowded and verdict in ("something else", "the opposite")
            figure.add_trace(
                go.Scatter(
                    x=[h.head for h in rows],
                    y=[h.cosine.mean for h in rows],
                    error_y={
                        **between(
                            *([getattr(h.cosine, end) for h in rows] for end in ("mean", "low", "high"))
                        ),
                        "color": colour,
                        "width": 0,
                    },
                    mode="markers+text" if named else "markers",
                    text=[f" {h.head}" for h in rows] if named else None,
                    textposition="middle right",
                    textfont={"size": 10},
                    marker={"color": colour, "size": 7},
                    customdata=[
                        [h.cosine.low, h.cosine.high, h.within_first, h.within_second, h.n_first, h.n_second]
                        for h in rows
                    ],
                    hovertemplate="%{x}: %{y:.2f} (%{customdata[0]:.2f} to %{customdata[1]:.2f})<br>inside families "
                    "%{customdata[2]:.2f}, %{customdata[3]:.2f}; prompts %{customdata[4]}, "
                    "%{customdata[5]}<extra></extra>",
                    name=verdict,
                    legendgroup=verdict,
                    showlegend=verdict not in shown,
                ),
                row,
                1,
            )
            shown.add(verdict)
        rows = [h for h in mine if h.side == side and h.medoids is not None]
        figure.add_trace(
            go.Scatter(
                x=[h.head for h in rows],
                y=[h.medoids for h in rows],
                mode="markers",
                name="the two representatives",
                legendgroup="medoids",
                showlegend=row == 1,
                marker={"symbol": "diamond-open", "size": 7, "color": PALETTE[5]},
            ),
            row,
            1,
        )
        for level in (SAME, OPPOSITE):
            figure.add_hline(y=level, line={"dash": "dot", "width": 1, "color": NEUTRAL}, row=row, col=1)  # pyright: ignore[reportArgumentType]
    styled(figure, height=600, margin={"l": 56, "r": 24, "t": 92, "b": 64})
    figure.update_layout(legend={"y": 1.08})
    figure.update_xaxes(
        type="category",  # said, since a side without signals has no names from which Plotly could tell
        categoryorder="array",
        categoryarray=heads,
        tickangle=-90,
        tickfont={"size": 11},
        dtick=1,
        showticklabels=not crowded,
        showgrid=not crowded,
    )
    if crowded:
        figure.update_xaxes(title="heads, from the first layer to the last", row=2, col=1)
    # The names are below both panels; between them they would lie on the second one's title.
    figure.update_xaxes(showticklabels=False, row=1, col=1)
    figure.update_yaxes(range=[-1.08, 1.08], title="cosine")
    return figure


def causality_bars(found: FamiliesResult) -> go.Figure:
    """Change of the answer's lead when a family's own signals or heads leave, in its and in other prompts; controls."""
    tests = [t for t in found.causality if t.own is not None and t.other is not None]
    labels = [
        f"{counted(t.features, t.kind[:-1])} of {_called(found, t.exclusive_to)},\nnot of {_called(found, t.against)}"
        for t in tests
    ]
    figure = go.Figure()
    kinds = (
        ("own", "change", PALETTE[1], "in own prompts"),
        ("other", "change", PALETTE[5], "in the other's prompts"),
        ("own", "control", NEUTRAL, "control, own prompts"),
        ("other", "control", FAINT, "control, the other's"),
    )
    for where, what, colour, name in kinds:
        estimates = [getattr(t.effects[where], what) for t in tests]
        value, low, high = ([getattr(e, end) for e in estimates] for end in ("mean", "low", "high"))
        figure.add_bar(
            x=labels,
            y=value,
            name=name,
            marker={"color": colour},
            error_y=between(value, low, high),
        )
    return styled(
        figure,
        height=430,
        barmode="group",
        yaxis={"title": "change of the lead (logits)"},
        xaxis={"showgrid": False},
    )
