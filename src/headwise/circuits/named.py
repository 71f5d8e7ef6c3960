"""The names of a circuit's nodes and edges: of its heads, and of the signals between them.

An edge is looked up from the particular to the general: the signal itself, then its channels whoever writes into them,
then all that the writer puts into that side of the head.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwise.known_names import (
    KnownName,
    KnownNames,
    NamesLike,
    channel_id,
    pole_of,
    signal_id,
    sink_id,
    writer_id,
)

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit, Edge, Node


def with_names(circuit: Circuit, names: NamesLike) -> Circuit:
    """The same circuit with names; those of another model are refused, those of another basis left out."""
    known = KnownNames.of(names).fit(circuit.model, circuit.weight_hash, circuit.basis)
    return replace(circuit, names=known)


def edge_names(circuit: Circuit, edge: Edge) -> dict[str, KnownName]:
    """The names of an edge, the most particular first; empty for what is no signal."""
    if circuit.names is None or not edge.channels:
        return {}
    signal, pole = circuit.signal(edge), pole_of(edge.strengths)
    wanted = (
        signal_id(signal, edge.strengths),
        channel_id(signal.head, signal.channels, pole),
        writer_id(signal.head, signal.side, signal.writer),
    )
    return circuit.names.chosen(wanted)


def node_names(circuit: Circuit, node: Node) -> dict[str, KnownName]:
    """The names of a head; where it reads the first token, that of its sink first."""
    if circuit.names is None or node.kind != "head":
        return {}
    head = node.cell.head
    return circuit.names.chosen((*([sink_id(head)] if node.key == 0 else []), str(head)))


def best(names: dict[str, KnownName]) -> KnownName | None:
    """The first that has words, or else the first."""
    found = list(names.values())
    return next((one for one in found if one.text is not None), found[0] if found else None)


def names_in(circuit: Circuit) -> dict[str, KnownName]:
    """Every name in it: of edges by weight, then of heads."""
    found: dict[str, KnownName] = {}
    for edge in sorted(circuit.edges, key=lambda e: -e.weight):
        found |= edge_names(circuit, edge)
    for node in circuit.nodes:
        found |= node_names(circuit, node)
    return found


def name_fields(names: dict[str, KnownName]) -> dict[str, Any]:
    """A node's or an edge's name as flat fields, for graph editors; empty where it has none."""
    one = best(names)
    if one is None:
        return {}
    return {
        "name": one.text,
        "name_of": one.signal,
        "name_verdict": one.verdict,
        "name_accuracy": None if one.accuracy is None else one.accuracy.mean,
        "name_evidence": one.evidence,
    }
