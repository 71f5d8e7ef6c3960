"""A work made again, in the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.show.kit.terminal import table

_WORD = {True: "yes", False: "no", None: "shown"}


def reproduced_table(document: dict[str, Any]) -> RenderableType:
    """Claim by claim: what the work says, what came out, and whether it holds."""
    rows = [
        (
            part["place"],
            part["number"],
            part["here"] or part["left_out"],
            "left out" if part["here"] is None else _WORD[part["supported"]],
        )
        for part in document["parts"]
    ]
    size = " at a small size" if document["quick"] else ""
    return Group(
        Text(f"The {document['work']} in {document['model']}{size}", style="bold"),
        Text(f"{document['supported']} of {document['claims']} claims that could fail hold here"),
        Text(),
        table(("where", f"the {document['work']}'s number", "here", "holds?"), rows),
    )
