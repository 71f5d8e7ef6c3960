"""Two prompts on one offline page: side by side, with the table of differences and the patched passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from headwise.show.kit.escape import label
from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Block, Figure, Markdown, Report, Section, Table
from headwise.show.kit.table import TableColumn
from headwise.show.kit.terminal import quoted
from headwise.show.kit.theme import PALETTE, styled
from headwise.strings import percent
from headwise.why.pair.sentence import name
from headwise.why.sentence import spoken

if TYPE_CHECKING:
    from headwise.circuits.counterfactual import Outcome
    from headwise.types import Component, Side
    from headwise.why.pair.result import Both, Patch, PromptDifference, WriterDifference
    from headwise.why.proof import Word

PROSE = Prose.read("why/difference.md")
SIDES: tuple[Side, ...] = ("query", "key")
BARS, COLUMNS = 8, 5
SEEN = 0.005
"""Attention from which a token is in the picture; the table has all of them."""
ROWS = 8
"""Rows of each side in a notebook."""
SIGNED = "+.2f"


def difference_report(found: PromptDifference) -> Report:
    """Both prompts, the table of differences, its channels, and what patched passes say."""
    here, there = found.here, found.there
    return Report(
        f"Why does {found.head} read {quoted(here.tokens[here.cell.key])} here, and not there?",
        [
            Section(
                "Both prompts",
                [
                    Markdown(PROSE("prompts")),
                    Figure(attention_bars(found), PROSE("attention"), prompts_table(found)),
                ],
            ),
            Section("Which writers make the difference", _table(found)),
            Section("Which channels", [Markdown(PROSE("channels")), _channels(found)]),
            Section("With the other prompt's signals", _patches(found)),
        ],
        subtitle=PROSE("subtitle", model=found.model, sentence=found.sentence),
        facts={
            "attention here": f"{here.attention:.3f}",
            "attention there": f"{there.attention:.3f}",
            "difference in log-odds": f"{found.log_odds.difference:+.2f}",
            "attention follows": "–" if found.patch is None else word_text(found.patch.attention),
            "answer follows": "–" if found.patch is None else word_text(found.patch.answer),
            "the way back": "–" if found.back is None else word_text(found.back.attention),
        },
    )


def difference_tables(found: PromptDifference) -> list[Table]:
    """Both prompts, and the writers with the largest differences: what a notebook shows."""
    return [prompts_table(found), *(_side(found, side, ROWS) for side in SIDES)]


# --- both prompts ----------------------------------------------------------------------------------------------------


def aligned_lines(found: PromptDifference) -> list[tuple[int | None, int | None]]:
    """Positions of both prompts in lines: those that stand for one another in one, the others in between.

    Where the order of both cannot be kept, that of the prompt here is.
    """
    back = {b: a for a, b in found.alignment.items()}
    lines: list[tuple[int | None, int | None]] = []
    told = 0
    for position in range(len(found.here.tokens)):
        other = found.alignment.get(position)
        while other is not None and told < other:
            if told not in back:
                lines.append((None, told))
            told += 1
        lines.append((position, other))
    seen = {other for _, other in lines}
    lines += [(None, other) for other in range(len(found.there.tokens)) if other not in seen]
    return lines


def prompts_table(found: PromptDifference) -> Table:
    """Both prompts side by side."""
    here, there = found.here, found.there
    rows = []
    for a, b in aligned_lines(found):
        what = "query" if a == here.cell.query else "key" if a == here.cell.key else ""
        rows.append(
            (
                what,
                a,
                None if a is None else quoted(here.tokens[a]),
                None if a is None else here.row[a],
                None if b is None else there.row[b],
                None if b is None else quoted(there.tokens[b]),
                b,
            )
        )
    attention = (
        TableColumn(name="attention here", format=".3f"),
        TableColumn(name="attention there", format=".3f"),
    )
    return Table(("", "here", "token", *attention, "token there", "there"), rows)


def attention_bars(found: PromptDifference) -> go.Figure:
    """The head's row in both prompts, tokens that stand for one another beside each other."""
    here, there = found.here, found.there
    lines = [
        (a, b)
        for a, b in aligned_lines(found)
        if a in here.cell[1:] or max(_at(here.row, a), _at(there.row, b)) >= SEEN
    ]
    names = []
    for a, b in lines:
        left, right = (
            "–" if one is None else f"{quoted(tokens[one])} ({one})"
            for one, tokens in ((a, here.tokens), (b, there.tokens))
        )
        mark = "query: " if a == here.cell.query else "key: " if a == here.cell.key else ""
        names.append(label(f"{mark}{left} | {right}"))
    figure = go.Figure()
    rows = (("here", [_at(here.row, a) for a, _ in lines]), ("there", [_at(there.row, b) for _, b in lines]))
    for (word, values), colour in zip(rows, PALETTE, strict=False):
        figure.add_bar(
            x=values,
            y=names,
            orientation="h",
            name=word,
            marker={"color": colour},
            hovertemplate="%{y}: %{x:.3f}<extra></extra>",
        )
    return styled(
        figure,
        height=30 * len(names) + 130,
        margin={"l": 260, "r": 24, "t": 48, "b": 56},
        xaxis={"title": "attention", "range": [0, 1]},
        yaxis={"autorange": "reversed"},
    )


def _at(row: tuple[float, ...], position: int | None) -> float:
    return 0.0 if position is None else row[position]


# --- the table -------------------------------------------------------------------------------------------------------


def _numbers(both: Both) -> tuple[float, float, float]:
    return both.here, both.there, both.difference


NUMBERS = tuple(TableColumn(name=one, format=SIGNED) for one in ("here", "there", "difference"))


def _side(found: PromptDifference, side: Side, most: int | None = None) -> Table:
    rows = found.of(side)
    shown = [n for n, part in enumerate(found.shown) if part.stable][:COLUMNS] if most is None else []
    kept = rows if most is None else [row for row in rows if row.writer is not None][:most]
    listed = [
        (
            written(row, found),
            "patched" if row.patched else "",
            *_numbers(row.log_odds),
            *(row.channels[n] for n in shown),
        )
        for row in kept
    ]
    if most is None:
        total = (found.shown[n].log_odds.difference for n in shown)
        listed.append(("together", "", *_numbers(found.log_odds), *total))
    columns = [TableColumn(name=f"ch {found.shown[n].channel}", format=SIGNED) for n in shown]
    return Table(("writer", "", *NUMBERS, *columns), listed, f"{side} side")


def written(row: WriterDifference, found: PromptDifference) -> str:
    """A row's writer in words."""
    return f"{row.count} others" if row.writer is None else name(row, found)


def _table(found: PromptDifference) -> list[Block]:
    blocks: list[Block] = [
        Markdown(PROSE("table", difference=found.log_odds.difference)),
        Figure(writer_bars(found), PROSE("figure")),
        *(_side(found, side) for side in SIDES),
    ]
    lines = [
        (f"{spoken(row.writer)}, {row.side}", read_name(one.here, one.there, found), *_numbers(one.log_odds))
        for row in found.who
        if row.writer is not None
        for one in row.through
    ]
    if lines:
        blocks += [Markdown(PROSE("read")), Table(("MLP", "what it had read", *NUMBERS), lines)]
    return blocks


def read_name(here: Component | None, there: Component | None, found: PromptDifference) -> str:
    one, tokens = (here, found.here.tokens) if here is not None else (there, found.there.tokens)
    if one is None:
        return "all else"
    if one.kind != "head":
        return "its own constants" if one.kind == "offset" else spoken(one)
    alone = "" if here is not None and there is not None else " (here alone)" if here else " (there alone)"
    return f"{spoken(one)} reading {quoted(tokens[one.source])} ({one.source}){alone}"


def writer_bars(found: PromptDifference) -> go.Figure:
    """The largest differences of both sides."""
    figure = go.Figure()
    names: list[str] = []
    for side, colour in zip(SIDES, PALETTE, strict=False):
        rows = [row for row in found.of(side) if row.writer is not None][:BARS]
        shown = [f"{side}: {written(row, found)}" for row in rows]
        names += shown
        figure.add_bar(
            x=[row.log_odds.difference for row in rows],
            y=[label(one) for one in shown],
            orientation="h",
            name=f"{side} side",
            marker={"color": colour},
            hovertemplate="%{y}: %{x:+.2f}<extra></extra>",
        )
    return styled(
        figure,
        height=26 * len(names) + 130,
        margin={"l": 260, "r": 24, "t": 48, "b": 56},
        xaxis={"title": "difference in log-odds (here less there)", "zeroline": True},
        yaxis={"autorange": "reversed"},
    )


def _channels(found: PromptDifference) -> Table:
    rows = [
        (f"ch {part.channel}" if part.stable else "changes with texts", *_numbers(part.log_odds))
        for part in found.shown
    ]
    rest = found.what[len(found.shown) :]
    here, there = (sum(getattr(part.log_odds, one) for part in rest) for one in ("here", "there"))
    rows.append((f"{len(rest)} others", here, there, here - there))
    rows.append(("together", *_numbers(found.log_odds)))
    return Table(("channel", *NUMBERS), rows)


# --- patched passes --------------------------------------------------------------------------------------------------


def _patches(found: PromptDifference) -> list[Block]:
    patch, back = found.patch, found.back
    if patch is None or back is None:
        return [Markdown(PROSE("nothing"))]
    columns = (
        "",
        *(TableColumn(name=one, format=".3f") for one in ("attention", "predicted", "p(answer)", "lead")),
        "attention follows",
        "answer follows",
    )
    rows = []
    for one in (patch, back):
        rows.append((f"{one.into}, as it is", *_outcome(one.before), "", ""))
        word = f"{one.into}, with the other's signals"
        rows.append(
            (word, *_outcome(one.after, one.predicted), word_text(one.attention), word_text(one.answer))
        )
    answer = found.answer
    caption = (
        f"answer: {quoted(answer.text)}, lead over {quoted(answer.wrong_text)}; measured by "
        f"{'its lead' if answer.compared else 'its log-probability'}"
    )
    blocks: list[Block] = [
        Markdown(PROSE("patch")),
        Table(columns, rows, caption),
        Markdown(PROSE("controls")),
    ]
    return [*blocks, *(_controls(one) for one in (patch, back))]


def _controls(patch: Patch) -> Table:
    rows = []
    for control in patch.controls:
        spread = control.attention
        rows.append((control.text, spread.mean, spread.low, spread.high, control.p, control.answer_p))
    numbers = [TableColumn(name=one, format=".3f") for one in ("attention", "5 %", "95 %")]
    p = [TableColumn(name=one, format=".3f") for one in ("p", "p (answer)")]
    return Table(("put in instead", *numbers, *p), rows, f"into the prompt {patch.into}")


def _outcome(one: Outcome, predicted: float | None = None) -> tuple[float, float | None, float, float]:
    return one.attention, predicted, one.probability, one.lead


def word_text(word: Word) -> str:
    """A share with its verdict."""
    if word.value is None:
        return "cannot be said"
    said = {None: "", True: "yes, ", False: "no, "}[word.said]
    p = "" if word.p is None else f" (p {word.p:.3f})"
    return f"{said}{percent(word.value)}{p}"
