"""What a command prints in the end: one JSON document, or a table for people and where each file lies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise import jsons

if TYPE_CHECKING:
    pass


def print_json(document: Any) -> None:
    """One JSON document on stdout, whatever stdout's encoding."""
    text = jsons.dumps(document)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = jsons.ascii_only(text)
    print(text)


def finish(document: Any, table: Callable[[], Any], *, as_json: bool, **places: Path | None) -> None:
    """One JSON document; or a table, and a line for each place where something was written.

    The words are the same in every verb: ``page``, ``report``, ``run`` (a folder), ``saved``.
    """
    if as_json:
        print_json(document)
        return
    from headwise.show.kit.terminal import console

    console().print(table())
    for word, path in places.items():
        if path is not None:
            console().print(f"{word.replace('_', ' ')}: {path}", markup=False, soft_wrap=True)


def report_in(out: Path | None) -> Path | None:
    """Where the report of a run folder lies."""
    return None if out is None else out / "report.html"
