"""A work made again, as one page: claim, the work's number, ours, whether it holds, and the figure beside it."""

from __future__ import annotations

from pathlib import Path

from headwise.research.reproduce import Reproduced, ReproducedPart
from headwise.show.kit.markdown import Prose, literal
from headwise.show.kit.report import Block, Figure, Markdown, Report, Section, Table, figures_in

PROSE = Prose.read("research/report.md")


def verdict(one: ReproducedPart) -> str:
    """What the table says in its last column."""
    if one.reading is None:
        return "left out"
    return {True: "yes", False: "no", None: "shown"}[one.reading.supported]


def reproduced_report(found: Reproduced) -> Report:
    """The table first, then part by part."""
    rows = [
        (
            one.part.place,
            verdict(one),
            "" if one.reading is None else one.reading.here,
            one.part.number,
            one.part.says,
        )
        for one in found.parts
    ]
    columns = ("where", "holds here?", "here", f"the {found.work}'s number", f"the {found.work} says")
    pages: dict[str, list[tuple[str, Figure]]] = {}
    return Report(
        f"The {found.work}, made again",
        [
            Section("Claim by claim", [Markdown(PROSE("table", work=found.work)), Table(columns, rows)]),
            *(
                Section(
                    one.part.place, _blocks(one, found.folder, pages), fold=True, note=literal(one.part.says)
                )
                for one in found.parts
            ),
        ],
        subtitle=PROSE(f"subtitle {'quick' if found.quick else 'full'}", model=found.model, work=found.work),
        facts={"claims that could fail": str(found.claims), "hold here": str(found.supported)},
    )


def _blocks(one: ReproducedPart, folder: Path, pages: dict[str, list[tuple[str, Figure]]]) -> list[Block]:
    if one.reading is None:
        return [Markdown(PROSE("left out", why=one.why_not))]
    told = PROSE(
        "part",
        work=one.part.work,
        says=one.part.says,
        number=one.part.number,
        here=one.reading.here,
        verdict=verdict(one),
    )
    rule = PROSE("rule", rule=one.reading.rule) if one.reading.rule else ""
    blocks: list[Block] = [Markdown(f"{told}\n\n{rule}" if rule else told)]
    blocks += _figure(one, folder, pages)
    return [*blocks, Table(("made by",), [(command,) for command in one.commands])]


def _figure(one: ReproducedPart, folder: Path, pages: dict[str, list[tuple[str, Figure]]]) -> list[Figure]:
    """Its figure in the report of its first study."""
    if not one.part.figure:
        return []
    study = one.part.studies[0]
    if study not in pages:
        page = folder / study / "report.html"
        pages[study] = [(caption, Figure(drawn, literal(caption))) for caption, drawn in figures_in(page)]
    return next(([figure] for caption, figure in pages[study] if caption.startswith(one.part.figure)), [])
