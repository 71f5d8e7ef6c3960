"""Circuits as versioned, byte-stable JSON (schema in docs/reference/circuit-json.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise import jsons
from headwise.circuits.circuit import Circuit, Edge
from headwise.circuits.named import edge_names, names_in, node_names
from headwise.circuits.schema import SCHEMA, CircuitShape, require_fit, require_prompt
from headwise.errors import HeadwiseError
from headwise.files import write_json
from headwise.known_names import KnownName
from headwise.validation import check, require_schema

if TYPE_CHECKING:
    from headwise.model.model import Model

GIVE = "give a file that Circuit.save or `headwise trace --save FILE` wrote"


def to_json(circuit: Circuit) -> dict[str, Any]:
    """The JSON of a circuit: nodes and edges in a fixed order, floats as they are."""
    circuit = in_order(circuit)
    return {
        "schema": SCHEMA,
        "kind": "headwise-circuit",
        "model": {"name": circuit.model, "weight_hash": circuit.weight_hash},
        "prompt": circuit.prompt,
        "tokens": list(circuit.tokens),
        "token_ids": list(circuit.token_ids),
        "start": circuit.start,
        "answer": circuit.answer,
        "wrong": circuit.wrong,
        "answer_id": circuit.answer_id,
        "wrong_id": circuit.wrong_id,
        "difference": circuit.difference,
        "top": circuit.top,
        "mode": circuit.mode,
        "basis": circuit.basis.to_json(),
        "nodes": [
            {
                "id": n.id,
                "kind": n.kind,
                "layer": n.layer,
                "head": n.head,
                "query": n.query,
                "key": n.key,
                "attention": n.attention,
                **_names(node_names(circuit, n)),
            }
            for n in circuit.nodes
        ],
        "edges": [
            {
                "source": e.source,
                "target": e.target,
                "side": e.side,
                "weight": e.weight,
                "channels": list(e.channels),
                "strengths": list(e.strengths),
                **({} if e.signal is None else {"signal": list(e.signal)}),
                "kind": e.kind,
                "unit": e.unit,
                **_names(edge_names(circuit, e)),
            }
            for e in (*circuit.edges, *circuit.accounts)
        ],
        "counterfactuals": [
            {
                "target": c.target,
                "side": c.side,
                "removed": c.removed,
                "attention": c.attention,
                "predicted": c.predicted,
                "edited": c.edited,
                "controls": list(c.controls),
            }
            for c in circuit.counterfactuals
        ],
        **({} if circuit.names is None else {"names": circuit.names.to_json(names_in(circuit))}),
        "notes": list(circuit.notes),
        "seconds": circuit.seconds,
    }


def _names(found: dict[str, KnownName]) -> dict[str, list[str]]:
    """What names of the file's own list are about a node or an edge; nothing where there are none."""
    return {"names": list(found)} if found else {}


def in_order(circuit: Circuit) -> Circuit:
    """The circuit with its nodes and edges in the order of the file, in which it has one form alone."""
    nodes = sorted(circuit.nodes, key=lambda n: (n.layer, n.kind, n.head or 0, n.query, n.key))
    place = {node.id: number for number, node in enumerate(nodes)}

    def sort(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
        return tuple(
            sorted(edges, key=lambda e: (place[e.target], e.unit, e.side, -e.weight, place[e.source]))
        )

    return replace(circuit, nodes=tuple(nodes), edges=sort(circuit.edges), accounts=sort(circuit.accounts))


def save(circuit: Circuit, path: str | Path) -> None:
    """Write the file, if :func:`load` would read it: a circuit made by hand may lack what a file needs."""
    data = jsons.finite(to_json(circuit))
    check(CircuitShape, data, "this circuit cannot be saved")
    write_json(path, data)


def load(path: str | Path, model: Model | None = None) -> Circuit:
    """Read a circuit file; with ``model`` given, a circuit of another model is refused."""
    where = repr(str(path))
    data = jsons.read(path, "a circuit", GIVE)
    if not isinstance(data, dict) or data.get("kind") != "headwise-circuit":
        raise HeadwiseError(f"{where} is not a circuit: {GIVE}")
    require_schema(data.get("schema"), (SCHEMA,), where, "trace it again")
    circuit = check(CircuitShape, data, f"the circuit {where}", "trace it again").circuit()
    circuit = in_order(circuit)
    if model is not None:
        require_fit(circuit, model, f"the circuit {where}")
        require_prompt(circuit, model, f"the circuit {where}")
    return circuit
