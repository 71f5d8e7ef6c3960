"""A circuit as one HTML file that opens offline: tokens along x, layers along y, every edge to be asked."""

from __future__ import annotations

import html
import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit


def circuit_page(circuit: Circuit) -> str:
    """The page. Prompts may hold anything: the data cannot close its script element, and the page only sets text."""
    text = json.dumps(circuit.to_dict(), ensure_ascii=False)
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escape)
    # line separators are legal in JSON but were not always in scripts
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    page = resources.files("headwise.show").joinpath("circuit.html").read_text(encoding="utf-8")
    title = html.escape(f"Circuit: {circuit.answer!r}")
    before, after = page.split("{{data}}")
    return before.replace("{{title}}", title) + text + after


def write_circuit_page(circuit: Circuit, path: str | Path) -> Path:
    """Write the page; a reader never sees half of it."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(circuit_page(circuit), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        reason = error.strerror or "not writable"
        raise HeadwiseError(f"{str(path)!r} cannot be written ({reason}): choose another path") from None
    return path
