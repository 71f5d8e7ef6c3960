"""One HTML file that opens offline: text, figures with the numbers behind them, tables; light and dark.

    Report("Binding", [Section("Heads", [Text("…"), Figure(fig, "Head scores"), Table(("head",),
    [("L9H6",)])])]).write(path)

Plotly's script is inlined once. Everything that came from outside is text: in tables, in figures, and inside
a :class:`Text` where it went through :func:`literal`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio
from plotly.offline import get_plotlyjs

from headwise import files
from headwise.show.kit.escape import attribute, script_json, text
from headwise.show.kit.figures import inert
from headwise.show.kit.page import page, script

Cell = str | float | int | bool | None
TABLE_LIMIT = 1000


@dataclass(frozen=True)
class Text:
    """Plain text. Blank lines part paragraphs; ``backticks`` mark code, **stars** mark weight. Nothing else
    is markup; what came from outside goes through :func:`literal`, so that none of it is.
    """

    body: str


@dataclass(frozen=True, eq=False)
class Table:
    """A table with a header; numbers are right-aligned and rounded to four figures (the raw value is the
    tooltip).
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


@dataclass(frozen=True, eq=False)
class Figure:
    """A Plotly figure, its caption, and the table behind it (made from the traces if none is given)."""

    figure: go.Figure
    caption: str = ""
    table: Table | None = None


Block = Text | Table | Figure


@dataclass(frozen=True, eq=False)
class Section:
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, eq=False)
class Report:
    """A whole page. ``facts`` are the few numbers that stand on top of it."""

    title: str
    sections: Sequence[Section]
    subtitle: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    def html(self) -> str:
        """The page as one string."""
        specs: list[str] = []
        body = "\n".join(_section(i, s, specs) for i, s in enumerate(self.sections))
        links = "".join(
            f'<a href="#s{i}">{text(s.title)}</a>' for i, s in enumerate(self.sections) if s.title
        )
        facts = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in self.facts.items())
        parts = {
            "title": text(self.title),
            "subtitle": _paragraphs(self.subtitle) if self.subtitle else "",
            "facts": f"<dl class=facts>{facts}</dl>" if facts else "",
            "links": links,
            "body": body,
            "figures": "".join(specs),
        }
        # Without figures the page needs no plotting script, which is most of its size.
        plotly = [get_plotlyjs()] if specs else []
        return page("kit/report.html", parts, [*plotly, script("kit/report.js")])

    def write(self, path: str | Path) -> Path:
        """Write the page; a reader never sees half of it."""
        return files.write_text(path, self.html())


def _section(index: int, section: Section, specs: list[str]) -> str:
    head = f"<h2>{text(section.title)}</h2>" if section.title else ""
    return f'<section id="s{index}">{head}{"".join(_block(b, specs) for b in section.blocks)}</section>'


def _block(block: Block, specs: list[str]) -> str:
    if isinstance(block, Text):
        return _paragraphs(block.body)
    if isinstance(block, Table):
        return _table(block)
    number = len(specs)
    spec = inert(block.figure)
    specs.append(
        f'<script type="application/json" class="spec" data-for="f{number}">{script_json(spec)}</script>'
    )
    height = int(spec["layout"].get("height") or 420)
    caption = f"<figcaption>{_inline(block.caption)}</figcaption>" if block.caption else ""
    table = _table(block.table or figure_table(block.figure))
    return (
        f'<figure><div id="f{number}" class="plot" role="img" '
        f'aria-label={attribute(_unmarked(block.caption) or "figure")} style="height:{height}px"></div>'
        f"{caption}<details><summary>Numbers</summary>{table}</details></figure>"
    )


_MARK = re.compile(r"\\([\\`*])|``?((?:\\.|[^`\\])+)``?|\*\*((?:\\.|[^*\\])+)\*\*", re.DOTALL)


def literal(data: object) -> str:
    """Data inside a :class:`Text`, a caption or a subtitle: its own backticks and stars stay what they are.

    >>> _inline(f"the prompt `{literal('2**3**')}`")
    'the prompt <code>2**3**</code>'
    """
    return re.sub(r"([\\`*])", r"\\\1", str(data))


def _inline(body: str) -> str:
    """Escape, and mark code and weight.

    >>> _inline("a < b, `x & y`, **now**")
    'a &lt; b, <code>x &amp; y</code>, <strong>now</strong>'
    """
    parts, at = [], 0
    for found in _MARK.finditer(body):
        escaped, code, strong = found.groups()
        parts.append(text(body[at : found.start()]))
        if escaped:
            parts.append(text(escaped))
        elif code:
            parts.append(f"<code>{text(_unmarked(code))}</code>")
        else:
            parts.append(f"<strong>{text(_unmarked(strong))}</strong>")
        at = found.end()
    return "".join(parts) + text(body[at:])


def _unmarked(body: str) -> str:
    """The words without their marks, for places that can show none."""
    return _MARK.sub(lambda found: found[1] or _unmarked(found[2] or found[3]), body)


def _paragraphs(body: str) -> str:
    parts = [p.strip() for p in re.split(r"\n\s*\n", body.strip())]
    return "".join(f"<p>{_inline(p)}</p>" for p in parts if p)


def show_number(value: Cell) -> str:
    """A cell as text: four significant figures, integers whole.

    >>> [show_number(x) for x in (0.123456, 12, 1e-9, True, None, "a")]
    ['0.1235', '12', '1e-09', 'yes', '–', 'a']
    """
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(table: Table) -> str:
    shown = table.rows[:TABLE_LIMIT]
    head = "".join(f"<th scope=col>{text(c)}</th>" for c in table.columns)
    rows = "".join("<tr>" + "".join(_cell(v) for v in row) + "</tr>" for row in shown)
    caption = f"<caption>{_inline(table.caption)}</caption>" if table.caption else ""
    more = len(table.rows) - len(shown)
    note = f"<p class=note>{more} more rows are not shown.</p>" if more > 0 else ""
    inside = f"{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f"<div class=scroll><table>{inside}</table></div>{note}"


def _cell(value: Cell) -> str:
    shown = text(show_number(value))
    if isinstance(value, float) and value == value:
        return f"<td class=n title={attribute(repr(value))}>{shown}</td>"
    number = isinstance(value, int) and not isinstance(value, bool)
    return f"<td class=n>{shown}</td>" if number else f"<td>{shown}</td>"


def figure_table(figure: go.Figure) -> Table:
    """The numbers that a figure's traces hold: one row a point, a heat map's cell, or a bar."""
    axes = ("x", "y", "z", "text")
    rows: list[tuple[Cell, ...]] = []
    used: set[str] = set()
    for trace in json.loads(pio.to_json(figure, validate=False, engine="json") or "{}").get("data", []):
        columns = {a: _plain(trace.get(a)) for a in axes}
        if columns["z"] and isinstance(columns["z"][0], list):
            columns = _unfold(columns)
        elif isinstance(trace.get("text"), str):
            columns["text"] = []
        used |= {a for a, v in columns.items() if v}
        name = str(trace.get("name") or "")
        rows += [(name, *point) for point in zip_longest(*(columns[a] for a in axes))]
    keep = [0, *(i + 1 for i, a in enumerate(axes) if a in used)]
    if all(not r[0] for r in rows):
        keep = keep[1:]
    names = ("series", *axes)
    return Table([names[i] for i in keep], [tuple(r[i] for i in keep) for r in rows])


def _plain(value: Any) -> list[Any]:
    """A trace's column as a list; Plotly may hold it as base64 of a typed array."""
    if isinstance(value, dict) and "bdata" in value:
        import base64

        import numpy as np

        array = np.frombuffer(base64.b64decode(value["bdata"]), dtype=np.dtype(value["dtype"]))
        if "shape" in value:
            array = array.reshape([int(n) for n in str(value["shape"]).split(",")])
        return array.tolist()
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else []


def _unfold(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """A heat map's matrix as one row a cell."""
    grid = columns["z"]
    out: dict[str, list[Any]] = {"x": [], "y": [], "z": [], "text": []}
    for i, row in enumerate(grid):
        for j, value in enumerate(row):
            out["x"].append(columns["x"][j] if columns["x"] else j)
            out["y"].append(columns["y"][i] if columns["y"] else i)
            out["z"].append(value)
            if columns["text"]:
                out["text"].append(columns["text"][i][j])
    return out
