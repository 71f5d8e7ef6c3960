"""Tables for the terminal: at most 100 columns, readable without colour and when piped."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from headwise.strings import printable

if TYPE_CHECKING:
    from headwise.model.check import Diagnosis

WIDTH = 100
SHORT = 24
"""Cells of at most this many characters are never broken."""
_NUMBER = re.compile(r"[-+−±<]? ?\d[^,]*$")

# A token as repr writes it: an opening quote that no word precedes (so none of "head's"), a closing one that no word
# follows. No token that a line could hold is longer.
_QUOTED = re.compile(r"""(?<!\w)(?:'(?:[^'\\\n]|\\.){1,40}'|"(?:[^"\\\n]|\\.){1,40}")(?!\w)""")
_GLUE = "\ufdd0"
"""Stands for a space that no line may end at while lines are made; Unicode keeps this code out of all text."""


class PlainConsole(Console):
    """A console to which all text is data: nothing in it is markup, an emoji's name or a terminal's command.

    What rich itself says to the terminal (colours, a bar's cursor) is not text and passes. Lines never end inside a
    quoted token, whose spaces belong to it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        # Before the layout, so that what is written out is counted, and so that columns are as wide as their tokens.
        return super().render_str(unbreakable(printable(text)), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Text):
            glued, renderable = unbreakable(renderable.plain), renderable.copy()
            renderable.plain = glued
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_plain(segment.text))


def unbreakable(text: str) -> str:
    """Text in which the spaces of quoted tokens end no line; a plain console shows them as spaces.

    >>> unbreakable("the head's ' Mary' over ' John'").split()
    ['the', "head's", "'\\ufdd0Mary'", 'over', "'\\ufdd0John'"]
    """
    return _QUOTED.sub(lambda found: found[0].replace(" ", _GLUE), text)


def _plain(text: str) -> str:
    return printable(text.replace(_GLUE, " "))


def console(*, stderr: bool = False) -> Console:
    """A console that never exceeds 100 columns (and has 100 when piped)."""
    stream = sys.stderr if stderr else sys.stdout
    made = Console(stderr=stderr)
    return PlainConsole(stderr=stderr, width=min(made.width, WIDTH) if stream.isatty() else WIDTH)


def quoted(token: str) -> str:
    """A token as a person can read it, spaces and line breaks visible.

    >>> quoted(" Mary"), quoted("\\n")
    ("' Mary'", "'\\\\n'")
    """
    return repr(token)


def bar(share: float, width: int = 20) -> str:
    """A bar of text for a number between 0 and 1.

    >>> bar(0.5, width=4)
    '██  '
    """
    filled = max(0, min(width, round(share * width)))
    return "█" * filled + " " * (width - filled)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    title: str = "",
    left: Sequence[str] = ("channels",),
    indent: int = 0,
    header: bool = True,
) -> RenderableType:
    """A table without lines: numbers to the right and never broken, text to the left and folded where it is long.

    Cells are text, never markup: a token may hold square brackets. TableColumns named in ``left`` hold text even where
    it looks like numbers, such as a list of channels with one member.
    """
    # Written out before the layout, so that every character is counted.
    cells = [[cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row] for row in rows]
    made = Table(
        box=None,
        pad_edge=bool(indent),
        padding=(0, 1, 0, indent) if indent else (0, 2, 0, 0),
        show_header=header,
    )
    heads = _headers(columns, [[cell.cell_len for cell in row] for row in cells], WIDTH - indent)
    for i, column in enumerate(columns):
        number = column not in left and _numbers(row[i].plain for row in cells)
        # A bar keeps its blanks, and a short name is not worth breaking.
        whole = number or all(len(row[i]) <= SHORT for row in cells)
        made.add_column(heads[i], justify="right" if number else "left", no_wrap=whole, overflow="fold")
    for row in cells:
        made.add_row(*row)
    # A table's own title would be folded to the table's width.
    return Group(Text(title, style="italic"), made) if title else made


def _headers(columns: Sequence[str], widths: Sequence[Sequence[int]], room: int) -> list[str]:
    """The headers; in a table that has no room for them as they are, those longer than their cells take several lines.

    >>> _headers(["prompts", "in own prompts (control)"], [[2, 13]], 30)
    ['prompts', 'in own prompts\\n(control)']
    """
    widest = [max((row[i] for row in widths), default=0) for i in range(len(columns))]
    if sum(max(len(c), w) + 2 for c, w in zip(columns, widest, strict=True)) - 2 <= room:
        return list(columns)
    folded = (
        textwrap.wrap(column, max(width, 14), break_long_words=False) if len(column) > width else [column]
        for column, width in zip(columns, widest, strict=True)
    )
    return ["\n".join(lines) for lines in folded]


def _numbers(cells: Iterable[str]) -> bool:
    """Whether a column holds numbers, perhaps with a unit or an interval; a list of numbers is text.

    >>> _numbers(["0.3", "", "–"]), _numbers(["+1.20 ± 0.10"]), _numbers(["27, 34, 29"]), _numbers(["L3H2"])
    (True, True, False, False)
    """
    shown = [cell for cell in cells if cell and cell != "–"]
    return bool(shown) and all(_NUMBER.match(cell) for cell in shown)


def diagnosis_table(diagnosis: Diagnosis) -> RenderableType:
    """What ``headwise doctor`` found."""
    keys = f"{diagnosis.kv_heads} key head{'s' if diagnosis.kv_heads != 1 else ''}"
    shared = "" if diagnosis.kv_heads == diagnosis.heads else f", {keys}"
    head = Text(
        f"{diagnosis.model}: {diagnosis.family}, {diagnosis.layers} layers × {diagnosis.heads} heads{shared}",
        style="bold",
    )
    rows = [
        (
            check.name,
            f"{check.error:.1e}",
            f"{check.tolerance:.0e}",
            Text("ok", style="green") if check.ok else Text("FAILED", style="bold red"),
        )
        for check in diagnosis.checks
    ]
    verdict = "All checks passed." if diagnosis.ok else "This model's numbers cannot be trusted."
    return Group(head, Text(), table(("check", "error", "allowed", ""), rows), Text(), Text(verdict))


def attention_table(
    title: str, rows: Sequence[tuple[str, float]], *, label: str = "head", value: str = "attention"
) -> RenderableType:
    """Rows of (name, attention), strongest first, with bars."""
    return table(
        (label, value, ""), [(name, f"{share:.3f}", bar(share)) for name, share in rows], title=title
    )
