"""A table for notebooks: markup that needs neither script nor style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwise.show.kit.escape import text

FONT = "font-family:system-ui,sans-serif;line-height:1.45"
_CELL = "text-align:{side};padding:1px 14px 1px 0;white-space:pre"


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", numbers: Sequence[str] = ()
) -> str:
    """Columns named in ``numbers`` are aligned to the right; cells may hold any text."""
    sides = [_CELL.format(side="right" if name in numbers else "left") for name in columns]
    head = "".join(f'<th style="{side}">{text(name)}</th>' for name, side in zip(columns, sides, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{side}"><bdi>{text(cell)}</bdi></td>' for cell, side in zip(row, sides, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    caption = f'<caption style="text-align:left;font-weight:600">{text(title)}</caption>' if title else ""
    return (
        f'<table style="border-collapse:collapse">{caption}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
