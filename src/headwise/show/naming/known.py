"""Names beside what they name: as lines of a terminal, and as links of a page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from headwise.show.kit.terminal import table

if TYPE_CHECKING:
    from headwise.known_names import KnownName, KnownNames

COLUMNS = ("what", "verdict", "accuracy (95 %)", "name")


def names_lines(
    known: KnownNames, names: Iterable[KnownName], *, top: int = 20, indent: int = 0
) -> list[RenderableType]:
    """A table of names with their tests, and where the evidence is."""
    found = sorted(names, key=lambda one: one.text is None)
    space = " " * indent
    lines: list[RenderableType] = []
    if found:
        lines.append(table(COLUMNS, [row_of(one) for one in found[:top]], indent=indent))
    else:
        lines.append(Text(f"{space}nothing here is among the {len(known)} subjects of that run"))
    if len(found) > top:
        lines.append(Text(f"{space}… and {len(found) - top} more in the document"))
    if known.note is not None:
        lines.append(Text(f"{space}{known.note}"))
    if found:
        where = (
            "not saved" if known.folder is None else str(Path(known.folder) / found[0].evidence.split("#")[0])
        )
        lines.append(Text(f"{space}evidence: {where} ({known.corpus})"))
    return lines


def row_of(one: KnownName) -> tuple[str, str, str, str]:
    """A name as a row: what it is about, its verdict, its accuracy, its words."""
    flags = f" [{', '.join(one.flags)}]" if one.flags else ""
    return one.signal, one.verdict, accuracy_of(one), "–" if one.text is None else one.text + flags


def accuracy_of(one: KnownName) -> str:
    """Balanced accuracy with its interval."""
    a = one.accuracy
    return "–" if a is None else f"{a.mean:.2f} ({a.low:.2f} to {a.high:.2f})"


def linked(document: dict[str, Any], known: KnownNames | None, beside: Path | None) -> dict[str, Any]:
    """A document for a page: with the address of the run's folder, from the page's own folder on."""
    if known is None:
        return document
    return {**document, "names": {**document["names"], "link": known.link(beside)}}
