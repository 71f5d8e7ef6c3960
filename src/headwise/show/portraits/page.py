"""The page of one head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headwise.naming.sample import LEAST_ATTENTION
from headwise.portraits.assemble import FIRST
from headwise.portraits.peaks import KEYS
from headwise.portraits.sentence import sentences
from headwise.show.kit.markdown import Prose, literal
from headwise.show.kit.report import Block, CellList, Markdown, Picture, Report, Section, ShownCell, Table
from headwise.show.kit.table import TableColumn, TableColumns
from headwise.show.kit.terminal import quoted
from headwise.show.naming.known import accuracy_of
from headwise.sinks.find import THRESHOLD
from headwise.strings import percent

if TYPE_CHECKING:
    from headwise.known_names import KnownNames
    from headwise.portraits.habits import (
        Account,
        CellInContext,
        ChannelHabit,
        DistanceShare,
        ExplainedCell,
        TokenShare,
        WriterHabit,
    )
    from headwise.portraits.portrait import HeadPortrait
    from headwise.types import Estimate

PROSE = Prose.read("portraits/report.md")
SHARE = {"format": ".0%", "bar": True}


def portrait_report(one: HeadPortrait, known: KnownNames | None = None, index: str | None = None) -> Report:
    """The page; ``known`` names fit the portrait already, ``index`` is the page of all heads beside it."""
    sections = [Section("In short", [_intro(one, known), _picture(one)]), _looks(one), _deciles(one)]
    sections += _quiet(one) if one.account is None else _account(one, one.account, known)
    sections.append(_sinks(one))
    return Report(
        f"{one.head} of {one.model}",
        sections,
        facts=_facts(one),
        back=("all heads", index) if index else None,
    )


def _intro(one: HeadPortrait, known: KnownNames | None) -> Block:
    return Markdown(" ".join(literal(said) for said in sentences(one, known)))


def _picture(one: HeadPortrait) -> Block:
    return Picture(
        one.picture, f"Its attention over the first {len(one.picture)} tokens of one text: a row per query."
    )


def _facts(one: HeadPortrait) -> dict[str, str]:
    facts = {"kind": one.kind}
    if one.role is not None:
        facts["role on random tokens"] = one.role.role or "none"
    if one.on_sinks is not None:
        facts["attention on sinks"] = percent(one.on_sinks.mean)
    if one.account is not None:
        reason = one.account.place.reason
        facts["attends by"] = f"{reason}, {percent(one.account.place.reasons[reason])} of cells"
        does = one.account.does
        facts["copies, suppresses"] = f"{percent(does.copies.mean)}, {percent(does.suppresses.mean)}"
    return facts


# --- where it looks --------------------------------------------------------------------------------------------------


def _looks(one: HeadPortrait) -> Section:
    looks = one.looks
    said = PROSE(
        "looks",
        keys=KEYS,
        rows=f"{looks.rows:,}",
        texts=f"{one.texts:,}",
        corpus=one.corpus,
        tokens=f"{one.tokens:,}",
    )
    blocks: list[Block] = [
        Markdown(said),
        _cells(looks.strongest, "attention {:.2f}"),
        Markdown(PROSE("tokens")),
    ]
    blocks += [_tokens(looks.to, "it attends to"), _tokens(looks.of, "attends")]
    columns: TableColumns[DistanceShare] = {
        "positions back": lambda d: (
            f"{d.low}"
            if d.high == d.low
            else f"{d.low} and more"
            if d.high is None
            else f"{d.low} to {d.high}"
        ),
        TableColumn(name="share", **SHARE): lambda d: d.share,
    }
    blocks.append(Table.of(looks.distances, columns))
    return Section("Where it looks", blocks)


def _tokens(tokens: Sequence[TokenShare], name: str) -> Table:
    columns: TableColumns[TokenShare] = {
        name: lambda t: quoted(t.token),
        TableColumn(name="share", format=".1%", bar=True): lambda t: t.share,
        TableColumn(name="frequency", format=".1%", bar=True): lambda t: t.frequency,
    }
    return Table.of(tokens, columns)


def _deciles(one: HeadPortrait) -> Section:
    blocks: list[Block] = [Markdown(PROSE("deciles"))]
    for number, decile in enumerate(one.looks.deciles):
        title = f"**{_ordinal(number)}**: attention {decile.low:.2f} to {decile.high:.2f}"
        blocks += [Markdown(title), _cells(decile.cells, "attention {:.2f}")]
    note = "cells of every tenth of the rows"
    return Section("From the strongest to the weakest", blocks, fold=True, note=note)


def _ordinal(number: int) -> str:
    return "Strongest tenth" if number == 0 else "Weakest tenth" if number == 9 else f"Tenth {number + 1}"


def _cells(cells: Iterable[CellInContext], note: str, title: str = "") -> CellList:
    return CellList(
        [ShownCell(one.tokens, one.destination, one.source, note.format(one.value)) for one in cells], title
    )


# --- why, and what then ----------------------------------------------------------------------------------------------


def _account(one: HeadPortrait, account: Account, known: KnownNames | None) -> list[Section]:
    place = account.place
    rows = [
        (name, _interval(getattr(place, name)), place.reasons.get(name))
        for name in ("content", "place", "interaction")
    ]
    if abs(place.level.mean) >= 0.005:  # only under a soft-cap
        rows.append(("level", _interval(place.level), None))
    columns = ("part", "mean log-odds (95 %)", TableColumn(name="helps most in", **SHARE))
    why = [Markdown(PROSE("why", cells=len(account.cells))), Table(columns, rows), Markdown(PROSE("place"))]
    return [
        Section("Place or content", why),
        Section("Who shapes it", _writers(one, account, known)),
        *([Section("Stable channels", _channels(one, account, known))] if account.channels else []),
        Section("What it does with what it reads", _does(account)),
        _explained(account),
    ]


def _writers(one: HeadPortrait, account: Account, known: KnownNames | None) -> list[Block]:
    blocks: list[Block] = [Markdown(PROSE("writers", first=FIRST))]
    for side, word in (("query", "its query"), ("key", "its keys")):
        habits = account.of("query" if side == "query" else "key")
        columns: TableColumns[WriterHabit] = {
            f"shapes {word}": lambda w: w.writer.name,
            **_columns(one, known),
        }
        blocks.append(Table.of(habits, columns))
        blocks += [
            _cells(w.strongest, "{:+.2f}", f"{w.writer.name} in {word}: strongest cells")
            for w in habits
            if w.strongest
        ]
    return blocks


def _channels(one: HeadPortrait, account: Account, known: KnownNames | None) -> list[Block]:
    columns: TableColumns[ChannelHabit] = {
        "channel": lambda c: f"{c.channel} {c.pole}",
        **_columns(one, known),
    }
    said = PROSE("channels", basis=one.basis.kind, first=FIRST)
    blocks: list[Block] = [Markdown(said), Table.of(account.channels, columns)]
    return blocks + [
        _cells(c.strongest, "{:+.2f}", f"channel {c.channel} {c.pole}: strongest cells")
        for c in account.channels
        if c.strongest
    ]


def _columns(one: HeadPortrait, known: KnownNames | None) -> dict[Any, Any]:
    """What writers and channels have in common: how often, how much, and the name if there is one."""
    columns: dict[Any, Any] = {
        TableColumn(name="takes part in", **SHARE): lambda habit: habit.often.mean,
        TableColumn(name="mean log-odds (95 %)", number=True): lambda habit: _interval(habit.log_odds),
    }
    if known is not None:
        columns |= {
            "name": lambda habit: _said(known, habit.signal(one.head), "text"),
            "verdict": lambda habit: _said(known, habit.signal(one.head), "verdict"),
            "accuracy (95 %)": lambda habit: _said(known, habit.signal(one.head), "accuracy"),
        }
    return columns


def _said(known: KnownNames, signal: str, what: str) -> str | None:
    found = known.get(signal)
    if found is None:
        return "not asked" if what == "verdict" else None
    return accuracy_of(found) if what == "accuracy" else getattr(found, what)


def _interval(value: Estimate) -> str:
    return f"{value.mean:+.2f} ({value.low:+.2f} to {value.high:+.2f})"


def _does(account: Account) -> list[Block]:
    does, n = account.does, len(account.cells)
    shares = [
        (PROSE("copies"), does.copies),
        (PROSE("suppresses"), does.suppresses),
    ]
    if does.foretells is not None:
        shares.append((PROSE("foretells"), does.foretells))
    rows = [(said, found.mean, f"{percent(found.low)} to {percent(found.high)}") for said, found in shares]
    return [
        Markdown(PROSE("does")),
        Table(("in the explained cells", TableColumn(name="share", **SHARE), "95 %"), rows),
        *(
            Table(
                (word, TableColumn(name="share of cells", **SHARE)),
                [(quoted(one.token), one.cells / n) for one in moved],
            )
            for word, moved in (("raised most often", does.raised), ("lowered most often", does.lowered))
        ),
    ]


def _explained(account: Account) -> Section:
    return Section(
        "The explained cells",
        [CellList([_cell(one) for one in account.cells])],
        fold=True,
        note=f"{len(account.cells)} cells of the strongest tenth, one per text",
    )


def _cell(one: ExplainedCell) -> ShownCell:
    place = one.place
    raised, lowered = (
        ", ".join(quoted(effect.token) for effect in some[:3]) for some in (one.raised, one.lowered)
    )
    note = (
        f"attention {one.cell.value:.2f}, log-odds {one.log_odds:+.2f}: content {place.content:+.2f}, "
        f"place {place.place:+.2f}, both {place.interaction:+.2f}; raises {raised}; lowers {lowered}"
    )
    return ShownCell(one.cell.tokens, one.cell.destination, one.cell.source, note)


def _quiet(one: HeadPortrait) -> list[Section]:
    return [Section("Why", [Markdown(PROSE("quiet", least=LEAST_ATTENTION, most=one.looks.most))])]


def _sinks(one: HeadPortrait) -> Section:
    columns = (
        "position",
        TableColumn(name="a sink in", **SHARE),
        TableColumn(name="attention received", format=".2f"),
    )
    rows = [(place.position, place.share, place.received) for place in one.sinks]
    blocks: list[Block] = [Markdown(PROSE("sinks", threshold=THRESHOLD))]
    blocks.append(Table(columns, rows) if rows else Markdown("These texts have none."))
    if one.on_sinks is not None:
        a = one.on_sinks
        between = f"95 %: {percent(a.low)} to {percent(a.high)}"
        said = f"{one.head} gives them {percent(a.mean)} of its attention ({between})."
        blocks.append(Markdown(literal(said)))
    return Section("Sinks", blocks)
