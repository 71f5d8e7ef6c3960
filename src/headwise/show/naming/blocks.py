"""Names beside what they name, in a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwise.show.kit.markdown import literal
from headwise.show.kit.report import Block, Markdown, Table
from headwise.show.kit.table import TableColumns
from headwise.show.naming.known import accuracy_of

if TYPE_CHECKING:
    from headwise.known_names import KnownName, KnownNames


def names_blocks(known: KnownNames, signals: Iterable[str]) -> list[Block]:
    """The names of some subjects in a report: a table with their tests, and where the evidence is."""
    found = sorted(known.chosen(signals).values(), key=lambda one: one.text is None)
    columns: TableColumns[KnownName] = {
        "what": lambda one: one.signal,
        "name": lambda one: one.text,
        "verdict": lambda one: one.verdict,
        "accuracy (95 %)": accuracy_of,
        "flags": lambda one: ", ".join(one.flags),
        "evidence": lambda one: one.evidence,
    }
    where = "not saved" if known.folder is None else f"in `{literal(known.folder)}`"
    said = f"Found on one half of `{literal(known.corpus)}` and tested on the other; the evidence is {where}."
    if not found:
        return [Markdown(f"Nothing here is among the {len(known)} subjects of that run.")]
    return [Markdown(said), Table.of(found, columns)]
