"""A circuit as one HTML file that opens offline: it begins at the answer, and every edge can be inspected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwise import files
from headwise.show import notebook
from headwise.show.kit.page import mounted
from headwise.show.naming.known import linked

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit


def circuit_page(circuit: Circuit, beside: Path | None = None) -> str:
    """The page of the circuit's own document; ``beside`` is its folder, from which evidence is linked."""
    document = linked(circuit.to_json(), circuit.names, beside)
    return mounted(f"Circuit: {circuit.answer!r}", document, notebook.circuit(circuit))


def write_circuit_page(circuit: Circuit, path: str | Path) -> Path:
    """Write the page; a reader never sees half of it."""
    return files.write_text(path, circuit_page(circuit, Path(path).parent))
