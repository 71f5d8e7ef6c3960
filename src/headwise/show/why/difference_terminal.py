"""Two prompts in the terminal: both side by side, the table of differences, and the patched passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import quoted, table
from headwise.show.why.difference import SIDES, aligned_lines, read_name, word_text, written
from headwise.why.sentence import signed

if TYPE_CHECKING:
    from headwise.types import Side
    from headwise.why.pair.result import PromptDifference, WriterDifference

TOP, COLUMNS = 8, 4
AROUND = 24
"""Lines of prompts that are shown whole; of longer ones those that differ, and those with attention."""


def difference(found: PromptDifference) -> RenderableType:
    """The whole answer."""
    here, there = found.here, found.there
    return Group(
        Text(
            f"Why does {found.head} at {_place(here.tokens, here.cell.query)} read "
            f"{_place(here.tokens, here.cell.key)} here, and not there?",
            style="bold",
        ),
        Text(f"Chosen: {found.question.because}."),
        *(Text(f"Note:   {notice}", style="yellow") for notice in found.question.notices),
        _heading("Both prompts"),
        _prompts(found),
        _heading("What × who, differences in log-odds (here less there)"),
        Text(
            f"attention {here.attention:.3f} here, {there.attention:.3f} there: {signed(here.log_odds, 2)} less "
            f"{signed(there.log_odds, 2)} is {signed(found.log_odds.difference, 2)}"
        ),
        Text(
            f"content {signed(here.place.content - there.place.content, 2)}, place "
            f"{signed(here.place.place - there.place.place, 2)}, their interplay "
            f"{signed(here.place.interaction - there.place.interaction, 2)}"
        ),
        *(one for side in SIDES for one in _side(found, side)),
        *_patches(found),
        Text(),
        Text(found.sentence, style="bold"),
    )


def _prompts(found: PromptDifference) -> RenderableType:
    here, there = found.here, found.there
    lines = aligned_lines(found)
    rows = []
    for a, b in lines:
        named = "query" if a == here.cell.query else "key" if a == here.cell.key else ""
        same = a is not None and b is not None and here.tokens[a] == there.tokens[b]
        weight = max(0.0 if a is None else here.row[a], 0.0 if b is None else there.row[b])
        if len(lines) > AROUND and not named and same and weight < 0.05:
            continue
        rows.append(
            (
                named,
                "" if a is None else _place(here.tokens, a),
                "" if a is None else f"{here.row[a]:.3f}",
                "" if b is None else f"{there.row[b]:.3f}",
                "" if b is None else _place(there.tokens, b),
            )
        )
    return table(("", "here", "attention", "attention", "there"), rows, indent=2)


def _side(found: PromptDifference, side: Side) -> list[RenderableType]:
    rows = [row for row in found.of(side) if row.writer is not None]
    first = rows[:TOP] + [row for row in rows[TOP:] if row.patched]
    shown = [n for n, part in enumerate(found.shown) if part.stable][:COLUMNS]
    listed = [_row(found, row, shown) for row in first]
    a, b = (
        getattr(found.log_odds, one) - sum(getattr(row.log_odds, one) for row in first)
        for one in ("here", "there")
    )
    columns = [found.shown[n].log_odds.difference - sum(row.channels[n] for row in first) for n in shown]
    count = sum(row.count for row in found.of(side)) - len(first)
    listed.append(
        (f"  {count} others", *(signed(one, 2) for one in (a, b, a - b)), *(signed(one) for one in columns))
    )
    both = found.log_odds
    total = [found.shown[n].log_odds.difference for n in shown]
    listed.append(
        (
            "  together",
            *(signed(one, 2) for one in (both.here, both.there, both.difference)),
            *(signed(one) for one in total),
        )
    )
    totals = found.totals[side]
    said = (
        f"\n{side} side: larger by {signed(totals.helping)}, smaller by {signed(totals.hindering)}; with the other "
        f"prompt's whole side in, attention {'here' if found.into == 'here' else 'there'} is {found.whole[side]:.3f}"
    )
    names = [f"ch {found.shown[n].channel}" for n in shown]
    out: list[RenderableType] = [
        Text(said),
        table(("  writer", "here", "there", "difference", *names), listed, indent=2),
    ]
    for row in first:
        if row.through and row.through[:-1]:
            read = ", ".join(
                f"{read_name(one.here, one.there, found)} {signed(one.log_odds.difference, 2)}"
                for one in row.through[:-1][:2]
            )
            out.append(Text(f"  {written(row, found)} had read: {read}"))
    return out


def _row(found: PromptDifference, row: WriterDifference, shown: list[int]) -> tuple[str, ...]:
    mark = "* " if row.patched else "  "
    values = (row.log_odds.here, row.log_odds.there, row.log_odds.difference)
    return (
        mark + written(row, found),
        *(signed(one, 2) for one in values),
        *(signed(row.channels[n]) for n in shown),
    )


def _patches(found: PromptDifference) -> list[RenderableType]:
    patch, back = found.patch, found.back
    if patch is None or back is None:
        return []
    rows = []
    for one in (patch, back):
        before, after = one.before, one.after
        rows.append((one.into, "", f"{before.attention:.4f}", f"{before.lead:.2f}", "", ""))
        rows.append(
            (
                f"{one.into}, patched",
                f"{one.predicted:.4f}",
                f"{after.attention:.4f}",
                f"{after.lead:.2f}",
                word_text(one.attention),
                word_text(one.answer),
            )
        )
    lead = f"{quoted(found.answer.text)} leads {quoted(found.answer.wrong_text)} by"
    columns = ("", "predicted", "attention", lead, "attention follows", "answer follows")
    number = len(found.patched)
    few = "writer" if number == 1 else f"{number} writers"
    against = ", ".join(f"{control.name} {control.p:.3f}" for control in patch.controls)
    return [
        _heading(f"Patched: what the {few} marked * wrote in the other prompt, {found.side} side"),
        table(columns, rows, indent=2),
        *([Text(f"p against as much of something else: {against}")] if against else []),
    ]


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold underline")


def _place(tokens: tuple[str, ...], position: int) -> str:
    token = tokens[position]
    return f"{quoted(token if len(token) <= 12 else token[:11] + '…')} ({position})"
