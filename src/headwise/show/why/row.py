"""A whole row on one offline page: which keys, and one table of writers × keys per side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headwise.show.kit.escape import label
from headwise.show.kit.markdown import Prose, literal
from headwise.show.kit.report import Block, Figure, Markdown, Report, Section, Table
from headwise.show.kit.table import TableColumn
from headwise.show.kit.terminal import quoted
from headwise.show.kit.theme import DIVERGING, PALETTE, styled
from headwise.why.sentence import signed

if TYPE_CHECKING:
    from headwise.contrast.rows import AttributionRow
    from headwise.types import Side
    from headwise.why.row import RowExplanation

PROSE = Prose.read("why/row.md")
SIDES: tuple[Side, ...] = ("query", "key")
BARS = 14
"""Writers of a side in its picture; the table has all of them."""
SIGNED = "+.2f"


def row_report(found: RowExplanation, logits: Sequence[AttributionRow] = ()) -> Report:
    """Which keys, why each, and by feature where a bank was given; ``logits`` are the row's logits by feature."""
    sections = [
        Section("Which keys", _keys(found)),
        Section("Why each", _why(found)),
    ]
    if found.features:
        sections.append(Section("Named features", [Markdown(PROSE("features")), _features(found)]))
    if logits:
        from headwise.show.contrast.report import attribution_report

        blocks = [block for one in attribution_report(logits, "").sections for block in one.blocks]
        sections.append(Section("Logits by feature", [Markdown(PROSE("logits")), *blocks]))
    return Report(
        f"What does {found.head} at {_place(found, found.query)} attend to, and why?",
        sections,
        subtitle=PROSE(
            "subtitle",
            model=literal(found.model),
            head=str(found.head),
            chosen=literal(f"Chosen: {found.because}."),
        ),
        facts={
            "keys it sees": str(found.keys),
            "keys explained": str(len(found.explained)),
            "attention on the others": f"{found.rest_attention:.3f}",
        },
    )


def _place(found: RowExplanation, position: int) -> str:
    return f"{quoted(found.tokens[position])} ({position})"


def _names(found: RowExplanation) -> list[str]:
    return [_place(found, key.key) for key in found.explained]


def _keys(found: RowExplanation) -> list[Block]:
    bars = go.Figure()
    bars.add_bar(
        x=[key.attention for key in found.explained],
        y=[label(one) for one in _names(found)],
        orientation="h",
        marker={"color": PALETTE[0]},
        hovertemplate="%{y}: %{x:.3f}<extra></extra>",
    )
    shown = styled(
        bars,
        height=30 * len(found.explained) + 110,
        margin={"l": 160, "r": 24, "t": 24, "b": 56},
        xaxis={"title": "attention", "range": [0, 1]},
        yaxis={"autorange": "reversed"},
    )
    numbers = (
        TableColumn(name="attention", format=".3f"),
        TableColumn(name="logit", format=".2f"),
        TableColumn(name="log-odds", format=SIGNED),
    )
    rows = [
        (
            name,
            key.attention,
            key.logit,
            key.log_odds,
            _helped(found, column, "query"),
            _helped(found, column, "key"),
        )
        for column, (name, key) in enumerate(zip(_names(found), found.explained, strict=True))
    ]
    table = Table(("key", *numbers, "most on the query side", "most on the key side"), rows)
    return [Markdown(PROSE("keys", rest=_rest(found))), Figure(shown, PROSE("figure")), table]


def _helped(found: RowExplanation, column: int, side: Side) -> str:
    strongest = found.strongest(column, side)[:2]
    return ", ".join(f"{row.name} {signed(row.log_odds[column])}" for row in strongest) or "nobody"


def _rest(found: RowExplanation) -> str:
    if not found.rest:
        return "There are no others."
    many = len(found.rest) > 1
    said = f"{len(found.rest)} others get" if many else "one other gets"
    return f"The {said} {found.rest_attention:.3f}{' together' if many else ''}."


def _why(found: RowExplanation) -> list[Block]:
    blocks: list[Block] = [Markdown(PROSE("why"))]
    for side in SIDES:
        blocks += [Figure(_heat(found, side), PROSE("heat", side=side.capitalize()), _side(found, side))]
    return blocks


def _heat(found: RowExplanation, side: Side) -> go.Figure:
    rows = [row for row in found.of(side) if row.writer is not None][:BARS]
    values = [list(row.log_odds) for row in rows]
    most = max((abs(value) for row in values for value in row), default=1.0) or 1.0
    figure = go.Figure()
    figure.add_heatmap(
        z=values,
        x=[label(one) for one in _names(found)],
        y=[label(row.name) for row in rows],
        zmin=-most,
        zmax=most,
        colorscale=DIVERGING,
        colorbar={"title": {"text": "log-odds"}},
        hovertemplate="%{y}, %{x}: %{z:+.2f}<extra></extra>",
    )
    return styled(
        figure,
        height=24 * len(rows) + 150,
        margin={"l": 100, "r": 24, "t": 24, "b": 110},
        yaxis={"autorange": "reversed"},
    )


def _columns(found: RowExplanation) -> list[TableColumn]:
    return [TableColumn(name=one, format=SIGNED) for one in _names(found)]


def _side(found: RowExplanation, side: Side) -> Table:
    rows: list[tuple[str | float, ...]] = [
        (row.name if row.writer is not None else f"{row.count} others", *row.log_odds)
        for row in found.of(side)
    ]
    rows.append(("together", *(key.log_odds for key in found.explained)))
    rows.append(("all that helps", *(key.totals[side].helping for key in found.explained)))
    rows.append(("all that hinders", *(key.totals[side].hindering for key in found.explained)))
    return Table(("writer", *_columns(found)), rows, f"{side} side")


def _features(found: RowExplanation) -> Table:
    rows: list[tuple[str | float, ...]] = [
        (f"{one.name} (rank {one.rank})", *one.log_odds) for one in found.features
    ]
    rows.append(("unexplained", *(found.unexplained(column) for column in range(len(found.explained)))))
    rows.append(("together", *(key.log_odds for key in found.explained)))
    return Table(("feature", *_columns(found)), rows)
