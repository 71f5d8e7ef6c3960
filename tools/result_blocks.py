"""Blocks of a results page that are made from kept numbers: ``<!-- block: NAME -->`` to ``<!-- end -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parent.parent / "docs" / "results"
DATA = PAGES / "data"
BLOCK = re.compile(r"(<!-- block: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Blocks = Mapping[str, Callable[[dict[str, Any]], Sequence[str]]]
"""How each block of a page is made from its numbers, as lines."""


def filled(page: str, data: dict[str, Any], blocks: Blocks) -> str:
    """The page with its blocks made from the numbers."""
    return BLOCK.sub(lambda m: f"{m[1]}\n{chr(10).join(blocks[m[2]](data))}\n\n{m[3]}", page)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown.

    >>> table(["head", "share"], [["L1H2", "0.5"]])
    ['| head | share |', '|---|---|', '| L1H2 | 0.5 |']
    """
    return [
        f"| {' | '.join(one)} |" if i != 1 else f"|{'|'.join(one)}|"
        for i, one in enumerate([titles, ["---"] * len(titles), *rows])
    ]


def percent(share: float | None) -> str:
    """As a whole number, or a dash.

    >>> percent(0.333), percent(None)
    ('33 %', '–')
    """
    return "–" if share is None else f"{share:.0%}".replace("%", " %")


def power(value: float) -> str:
    """A small number by its power of ten.

    >>> power(0.0000321)
    '3.2e-5'
    """
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def between(low: float, high: float, places: int = 2) -> str:
    """An interval.

    >>> between(-0.5, 0.25)
    '-0.50 to 0.25'
    """
    return f"{low:.{places}f} to {high:.{places}f}"


def said(supported: bool) -> str:
    """What a claim came to."""
    return "**yes**" if supported else "no"
