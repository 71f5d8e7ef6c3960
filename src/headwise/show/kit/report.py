"""One HTML file that opens offline: text, figures with the numbers behind them, tables; light and dark.

    Report("Binding", [Section("Heads", [Markdown("…"), Figure(fig, "Head scores"), Table(("head",), [("L9H6",)])])])

The plotting script is inlined once, and only the part of it that reports draw with. Everything that came from
outside is text: in tables, in figures, and inside a :class:`Markdown` where it went through
:func:`~headwise.show.kit.markdown.literal`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from headwise import files, jsons
from headwise.show.kit import markdown
from headwise.show.kit.context import in_context
from headwise.show.kit.escape import attribute, script_json, text
from headwise.show.kit.figures import POINTS, figure_table, inert
from headwise.show.kit.page import page, part, script
from headwise.show.kit.picture import picture
from headwise.show.kit.table import Table
from headwise.show.kit.theme import DARK, styled

PLOTLY = "kit/plotly.min.js"
"""The part of plotly.js that reports draw with; ``tools/plotly`` builds it."""
TRACES = ("scatter", "bar", "box", "heatmap")
"""The kinds of traces in it."""


@dataclass(frozen=True)
class Markdown:
    """Markdown as :mod:`headwise.show.kit.markdown` knows it."""

    body: str


@dataclass(frozen=True, eq=False)
class Figure:
    """A Plotly figure, its caption, and the table behind it (made from the traces if none is given)."""

    figure: go.Figure
    caption: str = ""
    table: Table | None = None


@dataclass(frozen=True)
class ShownCell:
    """A cell in its text, and a few words beside it."""

    tokens: Sequence[str]
    destination: int
    source: int
    note: str


@dataclass(frozen=True)
class CellList:
    """Cells in their texts. With a ``title`` they are folded away below it."""

    cells: Sequence[ShownCell]
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """Dots, as :func:`~headwise.show.kit.picture.picture` takes them, and what they show."""

    rows: Sequence[str]
    caption: str


Block = Markdown | Table | Figure | CellList | Picture


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a page. With ``fold`` it is closed at first: one line with its title and a ``note``."""

    title: str
    blocks: Sequence[Block]
    fold: bool = False
    note: str = ""


@dataclass(frozen=True, eq=False)
class Report:
    """A whole page. ``facts`` are the few numbers at its top, ``back`` the words and the file of the page that leads
    here."""

    title: str
    sections: Sequence[Section]
    subtitle: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    back: tuple[str, str] | None = None

    def html(self) -> str:
        """The page as one string."""
        specs: list[str] = []
        body = "\n".join(_section(i, s, specs) for i, s in enumerate(self.sections))
        links = "".join(
            f'<a href="#s{i}">{text(s.title)}</a>' for i, s in enumerate(self.sections) if s.title
        )
        if self.back is not None:
            words, file = self.back
            links = f"<a href={attribute(file)}>← {text(words)}</a>{links}"
        facts = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in self.facts.items())
        parts = {
            "title": text(self.title),
            "subtitle": markdown.html(self.subtitle) if self.subtitle else "",
            "facts": f"<dl class=facts>{facts}</dl>" if facts else "",
            "links": links,
            "body": body,
            "figures": "".join(specs),
            "look": script_json({"dark": DARK, "layout": common_layout()}),
        }
        # Without figures the page needs no plotting script, which is most of its size.
        plotly = [part(PLOTLY)] if specs else []
        framed = [script("kit/framed.js")] if self.back is not None else []
        return page("kit/report.html", parts, [*plotly, script("kit/report.js"), *framed])

    def write(self, path: str | Path) -> Path:
        """Write the page; a reader never sees half of it."""
        return files.write_text(path, self.html())


@cache
def common_layout() -> dict[str, Any]:
    """The house look, which a page of many figures holds once."""
    return inert(styled(go.Figure()))["layout"]


def _own(layout: dict[str, Any]) -> dict[str, Any]:
    """What a figure's layout says beside the house look, whose axes serve for all of a figure's axes."""
    look = common_layout()
    found = {}
    for name, value in layout.items():
        axis = re.fullmatch(r"([xy]axis)\d*", name)
        if axis:
            found[name] = {k: v for k, v in value.items() if (k, v) not in look[axis[1]].items()}
        elif value != look.get(name):
            found[name] = value
    return found


def _section(index: int, section: Section, specs: list[str]) -> str:
    blocks = "".join(_block(b, specs) for b in section.blocks)
    head = f"<h2>{text(section.title)}</h2>" if section.title else ""
    if not section.fold:
        return f'<section id="s{index}">{head}{blocks}</section>'
    note = f"<span>{markdown.inline(section.note)}</span>" if section.note else ""
    return f'<details class=fold id="s{index}"><summary>{head}{note}</summary>{blocks}</details>'


def _cells(block: CellList) -> str:
    items = "".join(
        f"<li>{in_context(one.tokens, one.destination, one.source)} <small>{text(one.note)}</small></li>"
        for one in block.cells
    )
    listed = f"<ul class=cells>{items}</ul>"
    return f"<details><summary>{text(block.title)}</summary>{listed}</details>" if block.title else listed


def _block(block: Block, specs: list[str]) -> str:
    if isinstance(block, Markdown):
        return markdown.html(block.body)
    if isinstance(block, Table):
        return block.html()
    if isinstance(block, CellList):
        return _cells(block)
    if isinstance(block, Picture):
        caption = f"<figcaption>{markdown.inline(block.caption)}</figcaption>"
        return (
            f"<figure class=small>{picture(block.rows, markdown.unmarked(block.caption))}{caption}</figure>"
        )
    number = len(specs)
    spec = inert(block.figure)
    for trace in spec["data"]:
        if trace.get("type", "scatter") not in TRACES:
            # It would leave a blank place on the page, without a word.
            raise ValueError(
                f"the plotting script of reports has no traces of the type {trace['type']}: {TRACES}"
            )
    height = int(spec["layout"].get("height") or 420)
    spec["layout"] = _own(spec["layout"])
    specs.append(
        f'<script type="application/json" class="spec" data-for="f{number}">{script_json(spec)}</script>'
    )
    caption = f"<figcaption>{markdown.inline(block.caption)}</figcaption>" if block.caption else ""
    table = block.table or figure_table(block.figure)
    many = block.table is None and len(table.rows) > POINTS
    numbers = "" if many else f"<details><summary>Numbers</summary>{table.html()}</details>"
    return (
        f'<figure><div class=scroll><div id="f{number}" class="plot" role="img" '
        f'aria-label={attribute(_label(block.caption))} style="height:{height}px"></div></div>'
        f"{caption}{numbers}</figure>"
    )


def _label(caption: str) -> str:
    """What a screen reader says of a figure before its caption: the caption's first sentence.

    >>> _label("Swaps on `unseen` words. Dots are placebos."), _label("")
    ('Swaps on unseen words', 'figure')
    """
    return markdown.unmarked(caption).split(". ")[0].removesuffix(".") or "figure"


def figures_in(page: Path) -> list[tuple[str, go.Figure]]:
    """The figures of a page that a report wrote, each with the first sentence of its caption."""
    reader = _Figures()
    reader.feed(page.read_text(encoding="utf-8"))
    return [(reader.captions[name], go.Figure(jsons.parse(spec))) for name, spec in reader.specs.items()]


class _Figures(HTMLParser):
    """Captions and specifications by the figures' ids."""

    def __init__(self) -> None:
        super().__init__()
        self.captions: dict[str, str] = {}
        self.specs: dict[str, str] = {}
        self._inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("class") == "plot":
            self.captions[str(found["id"])] = str(found["aria-label"])
        if tag == "script" and found.get("class") == "spec":
            self._inside = str(found["data-for"])

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is not None:
            self.specs[self._inside] = self.specs.get(self._inside, "") + data
