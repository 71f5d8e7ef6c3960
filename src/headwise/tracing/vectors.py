"""Single writes and signals as vectors: in float64 and from the written vectors themselves, so that they also check
what the search gets from sums."""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.model.reading import side_maps
from headwise.tracing.writes import PromptWrites
from headwise.types import Component, Head, Side, Signal


def component_writes(up: PromptWrites, component: Component) -> Tensor:
    """What one component wrote into the stream at every position: [T, d_model].

    A head without a source token (−1) is the whole head: what it carried from all of them.
    """
    if component.kind == "head" and component.source < 0:
        every = torch.arange(up.tokens, device=up.device)
        layer, head = (torch.full_like(every, x) for x in (component.layer, component.index))
        weights = up.columns(layer, head, every)
        values = up.v[component.layer, component.index // up.group].double()
        return weights.mT @ values @ up.stream.output_weight(component.layer)[component.index].double().mT
    if component.kind == "head":
        layer, head, source = (
            torch.tensor([x]) for x in (component.layer, component.index, component.source)
        )
        weights = up.columns(layer.to(up.device), head.to(up.device), source.to(up.device))[0]
        value = up.v[component.layer, component.index // up.group, component.source].double()
        write = up.stream.output_weight(component.layer)[component.index].double() @ value
        return weights[:, None] * write
    if component.kind == "embedding":
        return up.static[0].double()
    last = component.kind == "mlp"
    return up.static[1 + component.layer * up.per_layer + (up.per_layer - 1 if last else 0)].double()


def component_shares(up: PromptWrites, head: Head, side: Side, component: Component) -> Tensor:
    """A component's share of the head's query or key at every position: [T, d_head], after QK-norm and RoPE."""
    layer = head.layer
    maps, scalars = side_maps(up.stream.model, layer, side, torch.float64), up.stream.scalars(layer, side)
    index = head.index if side == "query" else head.index // up.group
    if component.kind == "offset":
        assert maps.offset is not None
        vectors = maps.offset[index] * scalars.offset[up.prompt, up.span, index, None].double()
    else:
        vectors = component_writes(up, component) @ maps.matrix[index].mT
        vectors = vectors * scalars.stream[up.prompt, up.span, index, None].double()
    rotary = up.stream.rotary(layer, up.prompt)
    return vectors if rotary is None else rotary.turn(vectors[None, None])[0, 0]


def signal_vectors(up: PromptWrites, signal: Signal, query: int, shares: Tensor | None = None) -> Tensor:
    """A signal in head space.

    On the query side [d_head], at the position ``query``; on the key side [T, d_head], at every key. Taking it
    from the query (from the keys as this row sees them) removes the signal and nothing else. ``shares`` are the
    writer's, where they are at hand.
    """
    head, chosen = signal.head, list(signal.channels)
    query_map, key_map = up.maps_at(head, query)
    if shares is None:
        shares = component_shares(up, head, signal.side, signal.writer)
    if signal.side == "query":
        return (shares[query] @ query_map[:, chosen]) @ key_map[chosen]
    return (shares @ key_map[chosen].mT) @ query_map[:, chosen].mT
