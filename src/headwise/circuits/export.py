"""Circuits for other programs: NetworkX, GraphML, and the attribution-graph JSON that circuit viewers read."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.circuits.circuit import Circuit, Node
from headwise.circuits.named import best, edge_names, name_fields, node_names
from headwise.files import write_bytes

if TYPE_CHECKING:
    import networkx


def to_networkx(circuit: Circuit) -> networkx.MultiDiGraph:
    """A directed multigraph; node and edge attributes are those of the JSON."""
    import networkx

    graph = networkx.MultiDiGraph(model=circuit.model, mode=circuit.mode, tokens=list(circuit.tokens))
    if circuit.names is not None:
        graph.graph["names"] = circuit.names.folder
    for node in circuit.nodes:
        graph.add_node(
            node.id,
            kind=node.kind,
            layer=node.layer,
            head=node.head,
            query=node.query,
            key=node.key,
            attention=node.attention,
            label=circuit.label(node.id),
            **name_fields(node_names(circuit, node)),
        )
    for edge in (*circuit.edges, *circuit.accounts):
        graph.add_edge(
            edge.source,
            edge.target,
            key=edge.side if edge.kind == "causal" else f"{edge.side} account of {edge.unit}",
            kind=edge.kind,
            unit=edge.unit,
            side=edge.side,
            weight=edge.weight,
            channels=list(edge.channels),
            **name_fields(edge_names(circuit, edge)),
        )
    return graph


# XML 1.0 has no way to write these characters.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_graphml(circuit: Circuit, path: str | Path) -> None:
    """Write GraphML; a reader never sees half of it."""
    write_bytes(path, graphml(circuit))


def graphml(circuit: Circuit) -> bytes:
    """GraphML knows numbers and strings only: channels become "3 17" (of a balanced basis, how many there are), what
    does not apply is left out."""
    import networkx

    graph = to_networkx(circuit)
    graph.graph["tokens"] = json.dumps(list(circuit.tokens), ensure_ascii=False)
    for *_, data in graph.edges(data=True):
        data["channels"] = circuit.basis.listed(data["channels"]).replace(", ", " ")
    for data in (
        graph.graph,
        *(d for _, d in graph.nodes(data=True)),
        *(d for *_, d in graph.edges(data=True)),
    ):
        for name, value in [*data.items()]:
            if value is None:
                del data[name]
            elif isinstance(value, str):
                data[name] = _NOT_XML.sub("?", value)
    buffer = io.BytesIO()
    networkx.write_graphml(graph, buffer)
    return buffer.getvalue()


_FEATURE_TYPES = {
    "head": "attention head",
    "mlp": "mlp",
    "embedding": "embedding",
    "bias": "bias",
    "offset": "bias",
    "answer": "logit",
}


def to_attribution_graph(circuit: Circuit) -> dict[str, Any]:
    """``metadata``, ``qParams``, ``nodes``, ``links``, and every firing's query–key pairs in ``qk_tracing_results``."""
    top = max((node.layer for node in circuit.nodes), default=0)

    def layer(node: Node) -> str:
        return "E" if node.layer < 0 else str(node.layer)

    nodes = [
        {
            "node_id": node.id,
            "feature": None if node.head is None else node.head,
            "layer": layer(node),
            "ctx_idx": node.query,
            "feature_type": _FEATURE_TYPES[node.kind],
            "jsNodeId": node.id,
            "clerp": _clerp(circuit, node),
            "influence": None,
            "activation": node.attention,
            "is_target_logit": node.kind == "answer",
            "token_prob": 0.0,
        }
        for node in circuit.nodes
    ]
    links = [
        {
            "source": e.source,
            "target": e.target,
            "weight": e.weight,
            "side": e.side,
            "channels": list(e.channels),
            "kind": e.kind,
            "unit": e.unit,
            **name_fields(edge_names(circuit, e)),
        }
        for e in (*circuit.edges, *circuit.accounts)
    ]
    return {
        "metadata": {
            "slug": "headwise",
            "scan": circuit.model,
            "prompt": circuit.prompt or "".join(circuit.tokens),
            "prompt_tokens": list(circuit.tokens),
            "title_prefix": "",
            "schema_version": 1,
            "node_threshold": None,
            "info": {
                "generator": {"name": "headwise"},
                "mode": circuit.mode,
                "weight_hash": circuit.weight_hash,
                "n_layers": top,
                **({} if circuit.names is None else {"names": circuit.names.folder}),
            },
        },
        "qParams": {"pinnedIds": [], "supernodes": [], "linkType": "both", "clickedId": "", "sg_pos": ""},
        "nodes": nodes,
        "links": links,
        "qk_tracing_results": {
            node.id: _pairs(circuit, node) for node in circuit.heads if circuit.into(node.id)
        },
    }


def _clerp(circuit: Circuit, node: Node) -> str:
    """What viewers write beside a node: its label, and its name with how that fared."""
    found = best(node_names(circuit, node))
    return circuit.label(node.id) + ("" if found is None or found.text is None else f": {found.said}")


def _pairs(circuit: Circuit, node: Node) -> dict[str, Any]:
    """The two sides of one firing, and the channels in which a query signal met a key signal."""
    sides = {
        side: [
            {"node_id": e.source, "weight": e.weight, "channels": list(e.channels)}
            for e in circuit.into(node.id, side)
        ]
        for side in ("query", "key")
    }
    pairs = [
        {"query": q.source, "key": k.source, "channels": shared}
        for q in circuit.into(node.id, "query")
        for k in circuit.into(node.id, "key")
        if (shared := sorted(set(q.channels) & set(k.channels)))
    ]
    return {
        "attention": node.attention,
        "query_position": node.query,
        "key_position": node.key,
        **sides,
        "pairs": pairs,
    }
