"""Wrap the Markdown pages at 120 characters: ``python tools/wrap_docs.py``. A test compares.

Paragraphs and list items are filled; headings, tables, code and HTML stay as they are. A word that is longer than a
line (a link) has one to itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
WIDTH = 120

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^(\s*)([*+-]|\d+\.)(\s+)(?=\S)")
_VERBATIM = re.compile(r"^\s*(#|\||<|!\[|!!!|>|---)|^( {4}|\t)")
# What must not begin a line, or it would be read as a list item, a heading or a quotation.
_UNSAFE = re.compile(r"^([*+-]|\d+[.)]|#+|>|\|.*)$")


def pages() -> list[Path]:
    """Every page that is wrapped."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def wrapped(text: str) -> str:
    """A page with its prose filled.

    >>> print(wrapped("One\\ntwo.\\n\\n* a\\n  b\\n\\n    code stays\\n    code"))
    One two.
    <BLANKLINE>
    * a b
    <BLANKLINE>
        code stays
        code
    """
    return "\n".join(line for block in _blocks(text.split("\n")) for line in block)


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Runs of lines that are filled together, filled; every other line by itself."""
    run: list[str] = []
    inside = nested = False  # a fence; a list, where deeper lines go on with an item instead of being code
    for line in lines:
        fence = bool(_FENCE.match(line))
        item = _ITEM.match(line)
        if item and not inside and (nested or len(item[1]) < 4):
            yield _filled(run)
            run, nested = [line], True
        elif inside or fence or not line.strip() or (_VERBATIM.match(line) and not (run and nested)):
            yield _filled(run)
            yield [line]
            run = []
            nested = nested and (not line.strip() or line.startswith(" "))
        else:
            nested = nested and (bool(run) or line.startswith(" "))
            run.append(line)
        inside ^= fence
    yield _filled(run)


def _filled(run: list[str]) -> list[str]:
    if not run:
        return []
    item = _ITEM.match(run[0])
    first = item[0] if item else re.match(r"\s*", run[0])[0]  # pyright: ignore[reportOptionalSubscript]
    hanging = " " * len(first)
    words = " ".join(run)[len(first) :].split()
    lines, now = [], first + words[0]
    for word in words[1:]:
        # A line's end never comes where the next line would begin with a list's mark.
        if len(now) + 1 + len(word) <= WIDTH or _UNSAFE.match(word):
            now += f" {word}"
        else:
            lines.append(now)
            now = hanging + word
    return [*lines, now]


def main() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := wrapped(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
