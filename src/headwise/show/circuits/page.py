"""A circuit as one HTML file that opens offline: it begins at the answer, and every edge can be inspected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwise import files
from headwise.show import notebook
from headwise.show.kit.page import mounted

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit


def circuit_page(circuit: Circuit) -> str:
    """The page of the circuit's own document."""
    return mounted(f"Circuit: {circuit.answer!r}", circuit.to_json(), notebook.circuit(circuit))


def write_circuit_page(circuit: Circuit, path: str | Path) -> Path:
    """Write the page; a reader never sees half of it."""
    return files.write_text(path, circuit_page(circuit))
