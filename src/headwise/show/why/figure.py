"""An explanation as one figure for notebooks: channels, writers and proof side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.show.kit.figures import inert
from headwise.show.kit.theme import NEUTRAL, PALETTE, styled
from headwise.why.sentence import spoken

if TYPE_CHECKING:
    from headwise.types import Component
    from headwise.why.explain import Explanation

TOP = 12
_SIDES = {"query": "without query side", "key": "without key side", "both": "without both sides"}


def figure(why: Explanation) -> go.Figure:
    """What made the score, who wrote it, and what happens without them."""
    made = make_subplots(
        1,
        3,
        column_widths=[0.32, 0.34, 0.34],
        horizontal_spacing=0.16,
        subplot_titles=(
            f"What: relative logit {why.what.relative:+.2f}",
            "Who: share of the drop",
            "Proof: attention of this cell",
        ),
    )
    _channels(made, why)
    _writers(made, why)
    _proof(made, why)
    rows = max(min(len(why.what.channels), TOP + 1), len(why.who.writers), 8)
    styled(
        made,
        height=130 + 24 * rows,
        barmode="overlay",
        margin={"l": 20, "r": 20, "t": 76, "b": 60},
        title={"text": f"{why.head}: {_token(why, why.query)} reads {_token(why, why.key)}", "x": 0},
        legend={"orientation": "h", "yanchor": "top", "y": -0.09, "x": 0},
    )
    made.update_xaxes(tickformat=".0%", row=1, col=2)
    made.update_xaxes(rangemode="tozero", row=1, col=3)
    return go.Figure(inert(made))


def _channels(made: go.Figure, why: Explanation) -> None:
    parts = why.what.channels[:TOP]
    names = [f"channel {part.channel}" for part in parts]
    values = [part.value for part in parts]
    rest = why.what.channels[TOP:]
    if rest:
        names.append(f"{len(rest)} others")
        values.append(sum(part.value for part in rest))
    colours = [PALETTE[2] if value >= 0 else PALETTE[3] for value in values]
    # Plotly counts categories from below; the strongest belongs on top.
    bars = go.Bar(
        x=values[::-1], y=names[::-1], orientation="h", marker_color=colours[::-1], showlegend=False
    )
    made.add_trace(bars, row=1, col=1)


def _writers(made: go.Figure, why: Explanation) -> None:
    sides = (("key", PALETTE[1]), ("query", PALETTE[0]))
    for side, colour in sides:
        writers = [writer for writer in why.who.writers if writer.side == side][::-1]
        if not writers:
            continue
        bars = go.Bar(
            x=[writer.share for writer in writers],
            # One component may write on both sides: an invisible mark keeps the two names apart.
            y=[_writer(why, writer.component) + "\u200b" * (side == "key") for writer in writers],
            orientation="h",
            marker_color=colour,
            name=f"{side} side",
            customdata=[", ".join(map(str, writer.channels)) for writer in writers],
            hovertemplate=f"%{{y}}, {side} side: %{{x:.1%}}<br>channels %{{customdata}}<extra></extra>",
        )
        made.add_trace(bars, row=1, col=2)


def _proof(made: go.Figure, why: Explanation) -> None:
    proof = why.proof
    rows = [("as it is", None, proof.before.attention)]
    rows += [(_SIDES.get(t.name, t.name), t.predicted, t.observed.attention) for t in proof.tests]
    rows += [(f"{t.name}, {t.kind}", t.predicted, t.observed.attention) for t in proof.features]
    rows = rows[::-1]
    main = proof.main
    if main is not None and main.controls:
        values = [control.attention for control in main.controls]
        controls = go.Scatter(
            x=values,
            y=["random removals"] * len(values),
            mode="markers",
            name="random removals",
            marker={"color": NEUTRAL, "size": 6, "opacity": 0.55},
        )
        made.add_trace(controls, row=1, col=3)
    named = [name for name, _, _ in rows]
    predicted = [value for _, value, _ in rows]
    observed = [value for _, _, value in rows]
    ring = {"symbol": "circle-open", "size": 15, "color": PALETTE[0], "line": {"width": 2}}
    made.add_trace(
        go.Scatter(x=predicted, y=named, mode="markers", name="predicted", marker=ring), row=1, col=3
    )
    dot = {"size": 8, "color": PALETTE[6]}
    made.add_trace(go.Scatter(x=observed, y=named, mode="markers", name="observed", marker=dot), row=1, col=3)


def _writer(why: Explanation, component: Component) -> str:
    read = f" ← {_token(why, component.source)}" if component.kind == "head" else ""
    return f"{spoken(component)}{read}"


def _token(why: Explanation, position: int) -> str:
    text = why.tokens[position]
    return f"{text if len(text) <= 14 else text[:13] + '…'!r} ({position})"
