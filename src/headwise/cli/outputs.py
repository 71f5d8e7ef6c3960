"""Where results go: refuse a place that cannot be written before any work is done, then keep and show a study."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise import jsons
from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    from headwise.show.kit.report import Report


def refuse_unwritable(path: Path) -> None:
    """One line now instead of a lost result later.

    >>> refuse_unwritable(Path("/proc/nothing/page.html"))
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: '/proc/nothing/page.html' cannot be written: ...
    """
    if path.is_dir():
        raise HeadwiseError(f"{str(path)!r} cannot be written: it is a folder; give a file name")
    parent = path.resolve().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK) or str(parent).startswith("/proc"):
        raise HeadwiseError(
            f"{str(path)!r} cannot be written: {str(parent)!r} cannot be written to; choose another place"
        )


def keep_study(
    out: Path, kind: str, config: Mapping[str, Any], document: Mapping[str, Any], report: Report
) -> None:
    """A run folder of a study: manifest, its document as ``KIND.json``, and ``report.html``."""
    from headwise.scale.folder import RunFolder

    # The time it took is no result: the same command writes the same bytes.
    timeless = {key: value for key, value in document.items() if key != "seconds"}
    with RunFolder(out, kind, config) as folder:
        folder.write_json(f"{kind}.json", timeless)
        report.write(folder.place("report.html"))
        folder.finish(f"{kind}.json", "report.html")


def print_json(document: Any) -> None:
    """One JSON document on stdout, whatever stdout's encoding."""
    text = jsons.dumps(document)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = jsons.ascii_only(text)
    print(text)


def show_study(
    document: Mapping[str, Any], table: Callable[[], Any], out: Path | None, *, as_json: bool
) -> None:
    """One JSON document, or a table for people and where the report lies."""
    if as_json:
        print_json(document)
        return
    from headwise.show.kit.terminal import console

    console().print(table())
    if out is not None:
        console().print(f"report: {out / 'report.html'}", markup=False, soft_wrap=True)
