"""A plan in the terminal: what each command takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headwise.scale.disk import size_text
from headwise.show.kit.terminal import table
from headwise.strings import duration


def plan_table(document: Mapping[str, Any]) -> RenderableType:
    """One row per command."""
    sizes = document["sizes"]
    head = (
        f"{document['model']}: {sizes['parameters'] / 1e6:,.0f} million parameters, "
        f"{sizes['layers']} layers × {sizes['heads']} heads; weights in {document['dtype']} take "
        f"{size_text(document['weights'])}; there are {size_text(document['available'])} of memory"
    )
    rows = [
        [
            one["command"],
            f"{one['prompts']:,} × {one['tokens']:,}",
            duration(one["seconds"]),
            size_text(one["memory"]) + ("" if one["fits"] else ", too much"),
            size_text(one["disk"]) if one["disk"] else "—",
        ]
        for one in document["commands"]
    ]
    columns = ["command", "prompts × tokens", "time", "memory", "disk"]
    return Group(Text(head), Text(), table(columns, rows), Text("planned, not run"))
