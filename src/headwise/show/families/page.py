"""The aggregated, pruned circuit of a family as one HTML file: components without tokens, edges with their names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise import files
from headwise.families.aggregate import node_of_name
from headwise.show.kit.page import mounted
from headwise.show.kit.table import Table, TableColumn, notebook
from headwise.show.naming.known import linked

if TYPE_CHECKING:
    from headwise.families.aggregate import FamilyCircuit, FamilyEdge
    from headwise.families.result import FamiliesResult


PAGES = 12
"""Families that have a page; more are too small to be read."""


def page_name(circuit: FamilyCircuit) -> str:
    """The file of a family's page, from its number: a label's value may be anything."""
    return f"circuit-{circuit.family.family}.html"


def family_page(found: FamiliesResult, circuit: FamilyCircuit, beside: Path | None = None) -> str:
    """The page; ``beside`` is its folder, from which evidence is linked."""
    title = f"Family {circuit.family.name}: {found.run.config['task']}"
    return mounted(title, linked(_document(found, circuit), circuit.names, beside), _bare(circuit))


def write_family_pages(found: FamiliesResult, circuits: list[FamilyCircuit], folder: Path) -> list[Path]:
    """One page per family."""
    return [files.write_text(folder / page_name(one), family_page(found, one, folder)) for one in circuits]


def _document(found: FamiliesResult, circuit: FamilyCircuit) -> dict[str, Any]:
    """As the page of a circuit reads it."""
    family, config = circuit.family, found.run.config
    layers = 1 + max((node_of_name(name, 0).layer for name in circuit.components), default=0)
    nodes = {name: node_of_name(name, layers) for name in circuit.components}
    heads = [name for name, node in nodes.items() if node.kind == "head"]
    known = {} if circuit.names is None else circuit.names.chosen(heads)
    made: dict[str, Any] = {
        "kind": "headwise-circuit",
        "model": {"name": config["model"]},
        "prompt": family.prompt,
        "tokens": [],
        "answer": None,
        "wrong": None,
        "mode": config["mode"],
        "basis": found.run.basis.to_json(),
        "family": {
            "name": family.name,
            "task": str(config["task"]),
            "circuits": family.size,
            "of": len(found.labels),
            "pruned": circuit.pruned,
            "all_edges": circuit.all_edges,
        },
        "nodes": [
            {
                "id": node.id,
                "kind": node.kind,
                "layer": node.layer,
                "head": node.head,
                "query": 0,
                "key": 0,
                "attention": None,
                **({"names": [name]} if name in known else {}),
            }
            for name, node in nodes.items()
        ],
        "edges": [
            {
                "source": nodes[e.source].id,
                "target": nodes[e.target].id,
                "side": e.side,
                "weight": e.weight,
                "share": e.share,
                "channels": [],
                "names": list(e.names),
            }
            for e in circuit.edges
        ],
        "notes": [],
    }
    if circuit.names is not None:
        listed = [*(key for e in circuit.edges for key in e.names), *heads]
        made["names"] = circuit.names.to_json(listed)
    return made


def _bare(circuit: FamilyCircuit) -> str:
    """For a browser without scripts."""
    rows = [(e.source, e.target, e.side, e.share, e.weight, name_of(circuit, e)) for e in circuit.edges]
    share, weight = TableColumn(name="circuits", format=".0%"), TableColumn(name="weight", format=".3f")
    table = Table(("from", "to", "side", share, weight, "name"), rows)
    return notebook(f"The circuit of family {circuit.family.name}.", table.html(bare=True))


def name_of(circuit: FamilyCircuit, edge: FamilyEdge) -> str:
    """An edge's name with how it fared; empty where it has none."""
    if circuit.names is None or not edge.names:
        return ""
    return f"{edge.names[0]}: {circuit.names.by_signal[edge.names[0]].said}"
