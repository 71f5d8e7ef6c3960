"""The one table of pages and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headwise.show.kit import markdown
from headwise.show.kit.escape import attribute, text

Entry = str | float | int | bool | None
"""What a table holds at one place."""
Listed = TypeVar("Listed")
LIMIT = 1000
"""Rows that are shown at most; a note counts the others."""
RAW = 9
"""Significant figures of a value under the mouse: as many as single precision has."""
LONG = 36
"""Text longer than this is given room before it is broken into lines."""
FONT = "font:14px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif"
_INLINE = "padding:2px 18px 2px 0;white-space:pre;font:inherit;text-align:"


@dataclass(frozen=True, kw_only=True, eq=False)
class TableColumn:
    """A column: its name, how its numbers are written (``.2f``), whether text in it is aligned as numbers, and whether
    numbers from 0 to 1 have a bar behind them."""

    name: str
    format: str = ".4g"
    number: bool = False
    bar: bool = False


TableColumns = Mapping[str | TableColumn, Callable[[Listed], Entry]]
"""Each column of a table beside what it shows of a thing."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table with a header. Numbers are aligned to the right; what is rounded has the raw value as its tooltip.

    A column is a :class:`TableColumn`, or a name alone.
    """

    columns: Sequence[str | TableColumn]
    rows: Sequence[Sequence[Entry]]
    caption: str = ""
    limit: int = LIMIT

    @classmethod
    def of(
        cls,
        things: Iterable[Listed],
        columns: TableColumns[Listed],
        caption: str = "",
    ) -> Table:
        """A row per thing.

        >>> Table.of(["ab", "c"], {"word": str, "letters": len}).rows
        [('ab', 2), ('c', 1)]
        """
        rows = [tuple(entry(thing) for entry in columns.values()) for thing in things]
        return cls(tuple(columns), rows, caption)

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [column.name for column in self._columns]

    @property
    def _columns(self) -> list[TableColumn]:
        return [TableColumn(name=c) if isinstance(c, str) else c for c in self.columns]

    def html(self, *, bare: bool = False) -> str:
        """The table as markup. ``bare``: for a place without our style sheet, such as a notebook."""
        columns, shown = self._columns, self.rows[: self.limit]
        numeric = [c.number or any(_number(row[i]) for row in shown) for i, c in enumerate(columns)]
        styles = [_style(right, bare) for right in numeric]
        head = "".join(f"<th scope=col{s}>{text(c.name)}</th>" for c, s in zip(columns, styles, strict=True))
        rows = "".join(
            f"<tr>{''.join(_cell(*one) for one in zip(row, columns, styles, strict=True))}</tr>"
            for row in shown
        )
        caption = markdown.inline(self.caption)
        if caption:
            left = ' style="text-align:left;font-weight:600"' if bare else ""
            caption = f"<caption{left}>{caption}</caption>"
        more = len(self.rows) - len(shown)
        note = f"<p class=note>{more} more rows are not shown.</p>" if more > 0 else ""
        collapsed = ' style="border-collapse:collapse;border:0;margin:6px 0"' if bare else ""
        inside = f"<table{collapsed}>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        scroll = ' style="overflow-x:auto"' if bare else " class=scroll tabindex=0"
        return f"<div{scroll}>{inside}</div>{note}"


def _number(value: Entry) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _style(right: bool, bare: bool) -> str:
    if bare:
        return f' style="{_INLINE}{"right" if right else "left"}"'
    return " class=n" if right else ""


def _cell(value: Entry, column: TableColumn, style: str) -> str:
    shown = show(value, column.format)
    if isinstance(value, str) and len(value) > LONG and not style:
        style = " class=long"
    if not isinstance(value, float):
        # Text from right to left must not reorder what is beside it.
        return (
            f"<td{style}><bdi>{text(shown)}</bdi></td>"
            if isinstance(value, str)
            else f"<td{style}>{shown}</td>"
        )
    if column.bar and value == value:
        style += f' style="background-size:{min(max(value, 0.0), 1.0):.1%} 72%"'
        style = style.replace(" class=n", ' class="n bar"')
    exact = f"{value:.{RAW}g}"
    raw = f" title={attribute(exact)}" if value == value and shown != exact else ""
    return f"<td{style}{raw}>{shown}</td>"


def show(value: Entry, form: str = ".4g") -> str:
    """A cell as text: four significant figures, integers whole.

    >>> [show(x) for x in (0.123456, 12, 1e-9, True, None, "a")]
    ['0.1235', '12', '1e-09', 'yes', '–', 'a']
    """
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value, form).replace("%", "\u00a0%") if isinstance(value, float) else str(value)


def notebook(sentence: str, *blocks: str) -> str:
    """A result in a notebook: its sentence first, then blocks of markup, in a font that is meant for reading."""
    inside = "".join(blocks)
    return (
        f'<div style="{FONT}"><p style="font-size:1.05em;max-width:60em;margin:.3em 0">{text(sentence)}</p>'
        f"{inside}</div>"
    )
