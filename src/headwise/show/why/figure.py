"""An explanation as one figure for notebooks: the table with its sums at the edges, and the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from headwise.show.kit.figures import inert
from headwise.show.kit.theme import NEUTRAL, PALETTE, styled
from headwise.why.sentence import spoken

if TYPE_CHECKING:
    from headwise.types import Component, Side
    from headwise.why.explanation import Explanation


def figure(why: Explanation) -> go.Figure:
    """What made the score, who wrote it, and what happens without them."""
    made = make_subplots(
        1,
        3,
        column_widths=[0.32, 0.34, 0.34],
        horizontal_spacing=0.16,
        subplot_titles=(
            f"What: log-odds {why.what.log_odds:+.2f}",
            "Who: log-odds, helping and hindering",
            "Proof: attention of this cell",
        ),
    )
    _channels(made, why)
    _writers(made, why)
    _proof(made, why)
    rows = max(len(why.what.shown) + 1, sum(row.writer is not None for row in why.who.rows), 8)
    styled(
        made,
        height=130 + 24 * rows,
        barmode="overlay",
        margin={"l": 20, "r": 20, "t": 76, "b": 60},
        title={"text": f"{why.head}: {_token(why, why.query)} reads {_token(why, why.key)}", "x": 0},
        legend={"orientation": "h", "yanchor": "top", "y": -0.09, "x": 0},
    )
    made.update_xaxes(rangemode="tozero", row=1, col=3)
    return go.Figure(inert(made))


def _channels(made: go.Figure, why: Explanation) -> None:
    parts = [part for part in why.what.shown if part.stable]
    names = [part.name or f"channel {part.channel}" for part in parts]
    values = [part.log_odds for part in parts]
    rest = len(why.what.channels) - len(parts)
    if rest:
        names.append(f"{rest} others")
        values.append(why.what.log_odds - sum(values))
    colours = [PALETTE[2] if value >= 0 else PALETTE[3] for value in values]
    # Plotly counts categories from below; the strongest belongs on top.
    bars = go.Bar(
        x=values[::-1], y=names[::-1], orientation="h", marker_color=colours[::-1], showlegend=False
    )
    made.add_trace(bars, row=1, col=1)


def _writers(made: go.Figure, why: Explanation) -> None:
    sides: tuple[tuple[Side, str], ...] = (("key", PALETTE[1]), ("query", PALETTE[0]))
    for side, colour in sides:
        rows = [(row, row.writer) for row in why.who.of(side) if row.writer is not None][::-1]
        if not rows:
            continue
        bars = go.Bar(
            x=[row.log_odds for row, _ in rows],
            # One component may write on both sides: an invisible mark keeps the two names apart.
            y=[_writer(why, writer) + "\u200b" * (side == "key") for _, writer in rows],
            orientation="h",
            marker_color=colour,
            marker_line={"color": PALETTE[6], "width": [2.5 if row.cause else 0 for row, _ in rows]},
            name=f"{side} side (outlined: the cause)",
            hovertemplate=f"%{{y}}, {side} side: %{{x:+.2f}}<extra></extra>",
        )
        made.add_trace(bars, row=1, col=2)


def _proof(made: go.Figure, why: Explanation) -> None:
    proof = why.proof
    rows: list[tuple[str, float | None, float]] = [("as it is", None, proof.before.attention)]
    if proof.after is not None:
        rows.append((f"without the cause, {proof.side} side", proof.predicted, proof.after.attention))
    if proof.next_best is not None:
        rows.append(("without the next best", proof.next_best.predicted, proof.next_best.observed.attention))
    rows += [(f"{t.name}, {t.kind}", t.predicted, t.observed.attention) for t in proof.features]
    for control in proof.controls[::-1]:
        draws = go.Box(
            x=list(control.left),
            y=[f"control: {control.name}"] * len(control.left),
            orientation="h",
            boxpoints=False,
            marker_color=NEUTRAL,
            showlegend=False,
        )
        made.add_trace(draws, row=1, col=3)
    named, predicted, observed = zip(*rows[::-1], strict=True)
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
