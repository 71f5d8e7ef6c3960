"""A portrait, and an atlas, for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.portraits.result import head_row
from headwise.portraits.sentence import sentences
from headwise.show.kit.terminal import bar, quoted, table
from headwise.show.naming.known import names_lines
from headwise.strings import counted, percent

if TYPE_CHECKING:
    from headwise.known_names import KnownNames
    from headwise.portraits.habits import Account, CellInContext
    from headwise.portraits.portrait import HeadPortrait
    from headwise.portraits.result import Atlas
    from headwise.types import Estimate

STRONGEST = 5
TOKENS = 6


def portrait_tables(one: HeadPortrait, known: KnownNames | None = None) -> RenderableType:
    """One head: sentences, strongest cells, tokens, place or content, writers, what it raises."""
    texts = f"{counted(one.texts, 'text')} ({one.corpus})"
    parts: list[RenderableType] = [
        Text(f"{one.head} of {one.model}, {texts}", style="bold"),
        Text(" ".join(sentences(one, known))),
        Text("\nStrongest cells apart from sinks"),
        table(
            ("attention", "from", "to", "text"),
            [_cell(cell) for cell in one.looks.strongest[:STRONGEST]],
            left=("from", "to", "text"),
        ),
        Text(),
        _tokens(one),
    ]
    if one.account is not None:
        parts += _account(one.account)
    if known is not None:
        found = known.chosen(one.subjects).values()
        parts += [Text("\nNames tested on other texts"), *names_lines(known, found)]
    return Group(*parts)


def _cell(cell: CellInContext) -> tuple[str, str, str, str]:
    """A cell in a row, its text up to the query, from the key on where that is near."""
    said = "".join(cell.tokens[max(0, cell.destination - 12) : cell.destination + 1])
    return (
        f"{cell.value:.2f}",
        quoted(cell.tokens[cell.destination]),
        quoted(cell.tokens[cell.source]),
        f"…{said}",
    )


def _tokens(one: HeadPortrait) -> RenderableType:
    rows = [
        (
            quoted(to.token),
            percent(to.share),
            percent(to.frequency),
            quoted(of.token),
            percent(of.share),
            percent(of.frequency),
        )
        for to, of in zip(one.looks.to[:TOKENS], one.looks.of[:TOKENS], strict=False)
    ]
    back = ", ".join(
        f"{d.low if d.high == d.low else f'{d.low}+' if d.high is None else f'{d.low}–{d.high}'}: {percent(d.share)}"
        for d in one.looks.distances
    )
    columns = ("attends to", "share", "frequency", "attends from", "share", "frequency")
    return Group(table(columns, rows, left=("attends to", "attends from")), Text(f"positions back: {back}"))


def _account(account: Account) -> list[RenderableType]:
    place = account.place
    parts = [
        (name, place.reasons.get(name, 0.0), _interval(getattr(place, name)))
        for name in ("content", "place", "interaction")
    ]
    rows = [(name, percent(share), bar(share, 10), said) for name, share, said in parts]
    writers = [
        (w.side, w.writer.name, percent(w.often.mean), bar(w.often.mean, 10), _interval(w.log_odds))
        for w in account.writers
    ]
    channels = ", ".join(
        f"{c.channel} {c.pole} ({percent(c.often.mean)}, {c.log_odds.mean:+.2f})" for c in account.channels
    )
    raised, lowered = (
        ", ".join(f"{quoted(token.token)} {token.cells}" for token in moved)
        for moved in (account.does.raised, account.does.lowered)
    )
    found: list[RenderableType] = [
        Text(f"\nPlace or content, in {counted(len(account.cells), 'explained cell')}"),
        table(("part", "helps most in", "", "mean log-odds (95 %)"), rows),
        Text("\nWho shapes it: in which share of the cells a writer is among the three largest"),
        table(("side", "writer", "share", "", "mean log-odds (95 %)"), writers),
    ]
    if channels:
        found.append(Text(f"stable channels: {channels}"))
    found.append(Text(f"\nRaised most often: {raised}\nLowered most often: {lowered}"))
    return found


def _interval(value: Estimate) -> str:
    return f"{value.mean:+.2f} ({value.low:+.2f} to {value.high:+.2f})"


def atlas_tables(atlas: Atlas, known: KnownNames | None = None) -> RenderableType:
    """All heads: how many of each kind, and a row per head."""
    rows = []
    for one in atlas.portraits:
        row = head_row(one)
        sinks, copies = (None if row[name] is None else percent(row[name]) for name in ("on_sinks", "copies"))
        first = "–" if row["to"] is None else quoted(row["to"])
        some = (sinks, row["reason"], copies, first, row["query_writer"], row["key_writer"])
        rows.append((row["head"], one.kind, *("–" if value is None else value for value in some)))
    kinds = ", ".join(f"{number} {kind}" for kind, number in atlas.kinds.items())
    columns = ("head", "kind", "on sinks", "by", "copies", "attends to", "query by", "keys by")
    parts: list[RenderableType] = [
        Text(
            f"Atlas of {atlas.model}, {counted(atlas.texts, 'text')} ({atlas.config['corpus']})", style="bold"
        ),
        Text(kinds),
        Text(),
        table(columns, rows, left=("attends to",)),
    ]
    if known is not None:
        found = known.chosen(str(one.head) for one in atlas.portraits).values()
        parts += [Text("\nNames tested on other texts"), *names_lines(known, found)]
    return Group(*parts)
