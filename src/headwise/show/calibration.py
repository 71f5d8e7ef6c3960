"""What a calibration says in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.strings import counted


def calibration_lines(document: Mapping[str, Any]) -> RenderableType:
    """What was measured on what, and how far its channels can be trusted."""
    corpus, cells, stable = document["corpus"], document["cells"], document["stable_channels"]
    kinds = f" of {counted(len(corpus['kinds']), 'kind')}" if len(corpus["kinds"]) > 1 else ""
    lines = [
        f"{counted(document['heads'], 'head')} of {document['model']}, measured over "
        f"{counted(corpus['texts'], 'text')}{kinds} (corpus {corpus['name']}, {corpus['digest'][:12]})",
        f"attended cells per head: {cells['median']:.0f} (median)",
        f"channels per head that are the same in both halves of the texts and between kinds of text: "
        f"{stable['median']:.0f} of {stable['of']} (median); the others are shown as one block",
    ]
    if cells["few"]:
        lines.append(f"{counted(cells['few'], 'head')} with few attended cells: moments shrunk more")
    if cells["too_few"]:
        lines.append(
            f"{counted(cells['too_few'], 'head')} with too few attended cells: singular channels instead"
        )
    if document["roles"] is not None:
        named = ", ".join(f"{role} {number}" for role, number in document["roles"].items())
        lines.append(f"heads with a role on random tokens: {named}")
    return Group(*(Text(line) for line in lines))
