"""A whole row in the terminal: the keys with their strongest writers, and one table of writers × keys per side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import quoted, table
from headwise.why.sentence import signed

if TYPE_CHECKING:
    from headwise.types import Side
    from headwise.why.row import RowExplanation

ROWS, COLUMNS = 8, 5
"""Writers and keys of a table; all columns do not fit a line."""


def row_explanation(found: RowExplanation) -> RenderableType:
    """The whole answer."""
    return Group(
        Text(f"What does {found.head} at {_place(found, found.query)} attend to, and why?", style="bold"),
        Text(f"Chosen: {found.because}."),
        _heading(f"Which keys: {len(found.explained)} of {found.keys}"),
        _keys(found),
        *_rest(found),
        _heading("Why each: log-odds against all other keys of the row"),
        Text(
            "0 is an even share. Each column sums to the key's log-odds, on either side; a head is one row, over all "
            "tokens that it read."
        ),
        _side(found, "query"),
        _side(found, "key"),
        *_features(found),
    )


def _keys(found: RowExplanation) -> RenderableType:
    rows = [
        (
            _place(found, key.key),
            f"{key.attention:.3f}",
            f"{key.logit:.2f}",
            signed(key.log_odds, 2),
            _helped(found, column, "query"),
            _helped(found, column, "key"),
        )
        for column, key in enumerate(found.explained)
    ]
    columns = ("key", "attention", "logit", "log-odds", "most on the query side", "most on the key side")
    return table(columns, rows, indent=2)


def _helped(found: RowExplanation, column: int, side: Side) -> str:
    strongest = found.strongest(column, side)[:2]
    return ", ".join(f"{row.name} {signed(row.log_odds[column])}" for row in strongest) or "nobody"


def _rest(found: RowExplanation) -> list[RenderableType]:
    if not found.rest:
        return []
    number, most = len(found.rest), found.rest[0]
    if number == 1:
        return [Text(f"One other key, {_place(found, most.key)}, gets {most.attention:.3f}.")]
    return [
        Text(
            f"The {number} other keys get {found.rest_attention:.3f} together, at most {most.attention:.3f} "
            f"({_place(found, most.key)})."
        )
    ]


def _side(found: RowExplanation, side: Side) -> RenderableType:
    keys = found.explained[:COLUMNS]
    rows = [row for row in found.of(side) if row.writer is not None][:ROWS]
    listed = [(row.name, *(signed(part, 2) for part in row.log_odds[: len(keys)])) for row in rows]
    count = sum(row.count for row in found.of(side)) - len(rows)
    if count:
        left = (key.log_odds - sum(row.log_odds[i] for row in rows) for i, key in enumerate(keys))
        listed.append((f"{count} others", *(signed(part, 2) for part in left)))
    listed.append(("together", *(signed(key.log_odds, 2) for key in keys)))
    listed.append(("all that helps", *(signed(key.totals[side].helping, 2) for key in keys)))
    listed.append(("all that hinders", *(signed(key.totals[side].hindering, 2) for key in keys)))
    hidden = len(found.explained) - len(keys)
    more = f" (the first {len(keys)} keys; {hidden} more in the JSON document)" if hidden else ""
    names = [_place(found, key.key) for key in keys]
    return table(("writer", *names), listed, title=f"\n{side} side{more}", indent=2)


def _features(found: RowExplanation) -> list[RenderableType]:
    if not found.features:
        return []
    keys = found.explained[:COLUMNS]
    rows = [
        (f"{one.name} (rank {one.rank})", *(signed(part, 2) for part in one.log_odds[: len(keys)]))
        for one in found.features
    ]
    rows.append(("unexplained", *(signed(found.unexplained(column), 2) for column in range(len(keys)))))
    rows.append(("together", *(signed(key.log_odds, 2) for key in keys)))
    names = [_place(found, key.key) for key in keys]
    return [
        _heading("Named features: the same log-odds by what the query looks for"),
        table(("feature", *names), rows, indent=2),
    ]


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold underline")


def _place(found: RowExplanation, position: int) -> str:
    token = found.tokens[position]
    return f"{quoted(token if len(token) <= 8 else token[:7] + '…')} ({position})"
