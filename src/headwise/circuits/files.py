"""Circuits as versioned, byte-stable JSON (schema in docs/reference/circuit-json.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.circuits.circuit import Circuit, Counterfactual, Edge, Node
from headwise.errors import HeadwiseError

if TYPE_CHECKING:
    from headwise.model.model import Model

SCHEMA = 1


def to_dict(circuit: Circuit) -> dict[str, Any]:
    """The JSON of a circuit: nodes and edges in a fixed order, floats as they are."""
    order = sorted(circuit.nodes, key=lambda n: (n.layer, n.kind, n.head or 0, n.query, n.key))
    place = {node.id: number for number, node in enumerate(order)}
    edges = sorted(circuit.edges, key=lambda e: (place[e.target], e.side, -e.weight, place[e.source]))
    return {
        "schema": SCHEMA,
        "kind": "headwise-circuit",
        "model": {"name": circuit.model, "weight_hash": circuit.weight_hash},
        "prompt": circuit.prompt,
        "tokens": list(circuit.tokens),
        "token_ids": list(circuit.token_ids),
        "answer": circuit.answer,
        "wrong": circuit.wrong,
        "answer_id": circuit.answer_id,
        "wrong_id": circuit.wrong_id,
        "difference": circuit.difference,
        "top": circuit.top,
        "mode": circuit.mode,
        "nodes": [
            {"id": n.id, "kind": n.kind, "layer": n.layer, "head": n.head, "query": n.query, "key": n.key,
             "attention": n.attention}
            for n in order
        ],
        "edges": [
            {"source": e.source, "target": e.target, "side": e.side, "weight": e.weight, "channels": list(e.channels),
             "strengths": list(e.strengths), **({} if e.signal is None else {"signal": list(e.signal)})}
            for e in edges
        ],
        "counterfactuals": [
            {"target": c.target, "side": c.side, "removed": c.removed, "attention": c.attention,
             "predicted": c.predicted, "edited": c.edited, "controls": list(c.controls)}
            for c in circuit.counterfactuals
        ],
        "notes": list(circuit.notes),
        "seconds": circuit.seconds,
    }  # fmt: skip


def save(circuit: Circuit, path: str | Path) -> None:
    text = json.dumps(to_dict(circuit), ensure_ascii=False, indent=1)
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise HeadwiseError(f"cannot write {str(path)!r}: {error.strerror or error}") from None


def load(path: str | Path, model: Model | None = None) -> Circuit:
    """Read a circuit file; with ``model`` given, a circuit of another model is refused."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise HeadwiseError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except ValueError:
        raise HeadwiseError(
            f"{str(path)!r} is not JSON: give a file written by headwise trace --json"
        ) from None
    if not isinstance(data, dict) or data.get("kind") != "headwise-circuit":
        raise HeadwiseError(f"{str(path)!r} is not a circuit: give a file written by headwise trace --json")
    schema = data.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise HeadwiseError(
            f"{str(path)!r} has schema {schema}, this headwise reads up to {SCHEMA}: upgrade headwise to open it"
        )
    try:
        circuit = from_dict(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise HeadwiseError(
            f"{str(path)!r} is damaged ({type(error).__name__}: {error}): trace it again"
        ) from None
    if model is not None and circuit.weight_hash and circuit.weight_hash != model.weight_hash:
        raise HeadwiseError(
            f"{str(path)!r} is a circuit of {circuit.model!r} (weights {circuit.weight_hash[:12]}), not of "
            f"{model.name!r} (weights {model.weight_hash[:12]}): load that model, or trace the prompt again"
        )
    return circuit


def from_dict(data: dict[str, Any]) -> Circuit:
    nodes = tuple(
        Node(n["kind"], n["layer"], n["head"], n["query"], n["key"], n["attention"]) for n in data["nodes"]
    )
    known = {node.id for node in nodes}
    for edge in data["edges"]:
        for end in (edge["source"], edge["target"]):
            if end not in known:
                raise KeyError(f"edge names {end!r}, which is no node")
    return Circuit(
        nodes=nodes,
        edges=tuple(
            Edge(e["source"], e["target"], e["side"], e["weight"], tuple(e["channels"]),
                 tuple(e.get("strengths", ())), tuple(e["signal"]) if "signal" in e else None)
            for e in data["edges"]
        ),
        tokens=tuple(data["tokens"]),
        token_ids=tuple(data["token_ids"]),
        prompt=data["prompt"],
        answer=data["answer"],
        wrong=data["wrong"],
        answer_id=data["answer_id"],
        wrong_id=data["wrong_id"],
        mode=data["mode"],
        model=data["model"]["name"],
        weight_hash=data["model"]["weight_hash"],
        seconds=data["seconds"],
        counterfactuals=tuple(
            Counterfactual(c["target"], c["side"], c["removed"], c["attention"], c["predicted"], c["edited"],
                           tuple(c["controls"]))
            for c in data["counterfactuals"]
        ),
        notes=tuple(data["notes"]),
        difference=data.get("difference"),
        top=data.get("top"),
    )  # fmt: skip
