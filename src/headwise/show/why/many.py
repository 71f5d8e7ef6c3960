"""One head over many prompts: the terminal's tables, and one offline page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Block, Figure, Markdown, Report, Section, Table
from headwise.show.kit.table import TableColumn
from headwise.show.kit.terminal import quoted, table
from headwise.show.kit.theme import PALETTE, between, styled
from headwise.strings import counted, percent
from headwise.why.many.sentence import interval

if TYPE_CHECKING:
    from headwise.types import Estimate
    from headwise.why.many.result import ExplanationsResult, MeanWriter

PROSE = Prose.read("why/many.md")
SIDES = ("query", "key")
TOP, BARS, KEYS = 8, 10, 5


def explanations_table(found: ExplanationsResult) -> RenderableType:
    """Writers of both sides, paths, channels and labels, for the terminal."""
    out: list[RenderableType] = [
        Text(f"Why does {found.head} attend, over {found.prompts} prompts of {found.task}?", style="bold"),
        Text(f"Chosen: {found.chosen_because}."),
        Text(f"reads {keys_text(found)}"),
        Text(
            f"attention {interval(found.attention, '')}; log-odds {interval(found.log_odds)}; more than an even share "
            f"in {percent(found.attends.mean)}; the model answers right in {percent(found.right.mean)}"
        ),
        Text(", ".join(f"{name} {one.mean:+.2f}" for name, one in found.place.items())),
    ]
    columns = ("writer", "how much (95 %)", "how often", "against", "cause", "reading")
    for side in SIDES:
        rows = [one for one in found.writers if one.side == side]
        listed = [_row(one) for one in (*rows[:TOP], *rows[TOP:][-1:])]
        out += [Text(f"\n{side} side, the {TOP} largest:", style="bold"), table(columns, listed, indent=2)]
    if found.paths:
        rows = [
            (f"{one.writer} by way of {one.mlp}", one.side, interval(one.log_odds), percent(one.often.mean))
            for one in found.paths[:TOP]
        ]
        out += [
            Text("\nThrough MLPs", style="bold"),
            table(("path", "side", "how much", "how often"), rows, indent=2),
        ]
    rows = [
        (f"ch {one.channel}", interval(one.log_odds), percent(one.often.mean))
        for one in found.channels
        if one.stable
    ][:4]
    if rows:
        out += [Text("\nChannels", style="bold"), table(("channel", "how much", "how often"), rows, indent=2)]
    if found.labels:
        rows = [
            (one.label, one.value, str(one.prompts), interval(one.attention, ""), interval(one.log_odds))
            for one in found.labels
        ]
        columns = ("label", "value", "prompts", "attention", "log-odds")
        out += [Text("\nBy label", style="bold"), table(columns, rows, indent=2)]
    out += [Text(f"note: {note}", style="yellow") for note in found.notes]
    return Group(
        *out,
        Text(f"\nintervals are over clusters: {found.clusters}"),
        Text(),
        Text(found.sentence, style="bold"),
    )


def keys_text(found: ExplanationsResult) -> str:
    """The tokens that are read most often."""
    some = ", ".join(f"{quoted(token)} {number}" for token, number in found.keys[:KEYS])
    rest = len(found.keys) - KEYS
    return some + (f" and {counted(rest, 'other token')}" if rest > 0 else "")


def _row(one: MeanWriter) -> tuple[str, ...]:
    name = f"{one.count} others" if one.writer == "others" else one.writer
    return (
        name,
        interval(one.log_odds),
        percent(one.often.mean),
        percent(one.against.mean),
        percent(one.cause.mean),
        _reading(one),
    )


def _reading(one: MeanWriter) -> str:
    """Which token most of a head's part came from."""
    if not one.reads:
        return ""
    best = max(one.reads, key=lambda name: abs(one.reads[name]))
    return f"{best} {one.reads[best]:+.2f}"


# --- the page --------------------------------------------------------------------------------------------------------


def explanations_report(found: ExplanationsResult) -> Report:
    """Writers, paths, channels and labels."""
    about = PROSE("about", prompts=found.prompts, clusters=found.clusters)
    sections = [
        Section(
            "Writers",
            [
                Markdown(about),
                Figure(bars(found), PROSE("figure")),
                *(writers_table(found, s) for s in SIDES),
            ],
        ),
        Section("Through MLPs", [Markdown(PROSE("paths")), _paths(found)]),
        Section("Channels", [Markdown(PROSE("channels")), _channels(found)]),
    ]
    if found.labels:
        sections.append(Section("By label", _labels(found)))
    return Report(
        f"Why does {found.head} attend, over {found.prompts} prompts?",
        sections,
        subtitle=PROSE("subtitle", model=found.model, task=found.task, sentence=found.sentence),
        facts={
            "attention": f"{found.attention.mean:.3f}",
            "log-odds": f"{found.log_odds.mean:+.2f}",
            "more than an even share in": percent(found.attends.mean),
            "answered right": percent(found.right.mean),
            "reads most": quoted(found.keys[0][0]),
        },
    )


def bars(found: ExplanationsResult) -> go.Figure:
    """The largest mean parts of both sides."""
    figure, names = go.Figure(), 0
    for side, colour in zip(SIDES, PALETTE, strict=False):
        rows = [one for one in found.writers if one.side == side and one.writer != "others"][:BARS]
        names += len(rows)
        means = [one.log_odds.mean for one in rows]
        figure.add_bar(
            x=means,
            y=[f"{side}: {one.writer}" for one in rows],
            error_x=between(means, [one.log_odds.low for one in rows], [one.log_odds.high for one in rows]),
            orientation="h",
            name=f"{side} side",
            marker={"color": colour},
            hovertemplate="%{y}: %{x:+.2f}<extra></extra>",
        )
    return styled(
        figure,
        height=26 * names + 130,
        margin={"l": 130, "r": 24, "t": 48, "b": 56},
        xaxis={"title": "mean part of the log-odds"},
        yaxis={"autorange": "reversed"},
    )


def _spread(value: Estimate) -> tuple[float, float | None, float | None]:
    return (value.mean, value.low, value.high) if value.clusters > 1 else (value.mean, None, None)


MUCH = (
    TableColumn(name="how much", format="+.3f"),
    TableColumn(name="low", format="+.3f"),
    TableColumn(name="high", format="+.3f"),
)
OFTEN = TableColumn(name="how often", format=".0%")


def writers_table(found: ExplanationsResult, side: str, most: int | None = None) -> Table:
    """One side's writers."""
    rows = [one for one in found.writers if one.side == side][:most]
    shares = [TableColumn(name=name, format=".0%") for name in ("against", "cause")]
    listed = [
        (
            f"{one.count} others" if one.writer == "others" else one.writer,
            *_spread(one.log_odds),
            one.often.mean,
            one.against.mean,
            one.cause.mean,
            _reading(one),
        )
        for one in rows
    ]
    return Table(("writer", *MUCH, OFTEN, *shares, "reading most"), listed, f"{side} side")


def _paths(found: ExplanationsResult) -> Table:
    rows = [(one.writer, one.mlp, one.side, *_spread(one.log_odds), one.often.mean) for one in found.paths]
    return Table(("what it had read", "MLP", "side", *MUCH, OFTEN), rows)


def _channels(found: ExplanationsResult) -> Table:
    rows = [
        (f"ch {one.channel}" if one.stable else "changes with texts", *_spread(one.log_odds), one.often.mean)
        for one in found.channels
    ]
    return Table(("channel", *MUCH, OFTEN), rows)


def _labels(found: ExplanationsResult) -> list[Block]:
    columns = (
        *("label", "value", "prompts"),
        TableColumn(name="attention", format=".3f"),
        TableColumn(name="log-odds", format="+.2f"),
        TableColumn(name="low", format="+.2f"),
        TableColumn(name="high", format="+.2f"),
    )
    rows = [
        (one.label, one.value, one.prompts, one.attention.mean, *_spread(one.log_odds))
        for one in found.labels
    ]
    names = [f"{one.writer} ({one.side})" for one in found.labels[0].writers]
    parts = [(one.label, one.value, *(row.log_odds.mean for row in one.writers)) for one in found.labels]
    means = [TableColumn(name=name, format="+.2f") for name in names]
    return [Markdown(PROSE("labels")), Table(columns, rows), Table(("label", "value", *means), parts)]
