"""A circuit as one HTML file that opens offline: tokens along x, layers along y, every edge can be inspected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwise import files
from headwise.show.kit.escape import script_json, text
from headwise.show.kit.page import page, script

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit


def circuit_page(circuit: Circuit) -> str:
    """The page. Its script only ever sets text, so nothing in a prompt can become markup."""
    parts = {"title": text(f"Circuit: {circuit.answer!r}"), "data": script_json(circuit.to_json())}
    return page("circuits/circuit.html", parts, [script("kit/text.js", "circuits/circuit.js")])


def write_circuit_page(circuit: Circuit, path: str | Path) -> Path:
    """Write the page; a reader never sees half of it."""
    return files.write_text(path, circuit_page(circuit))
