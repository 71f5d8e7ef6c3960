"""The published rules (docs/method/tracing.md §8) written down literally: slow, nothing shared, nothing clever.

Full-width SVD and pseudo-inverses, contribution matrices of size candidates × keys, candidates removed one by one.
The fast tracer has to give the same circuits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from reference_reader import reader

from headwise.model.model import Model
from headwise.model.stream import Stream
from headwise.types import Component, Head

Firing = tuple[int, int, int, int]
Edge = tuple[tuple, tuple, str]


@dataclass
class LiteralCircuit:
    seeds: dict[tuple, float] = field(default_factory=dict)
    edges: dict[Edge, tuple[float, tuple[int, ...]]] = field(default_factory=dict)
    """(source node, firing, side) -> weight, channels in the order of removal"""
    expanded: list[Firing] = field(default_factory=list)


class LiteralTracer:
    def __init__(self, model: Model, stream: Stream, prompt: int = 0) -> None:
        self.model, self.stream, self.prompt = model, stream, prompt
        self.length = int(stream.batch.lengths[prompt])
        self.start = int(stream.batch.starts[prompt])
        self._svd: dict[Head, tuple[np.ndarray, ...]] = {}

    def svd(self, head: Head) -> tuple[np.ndarray, ...]:
        """σ [dh], and maps from rotated query and key vectors to coordinates, by way of residual space."""
        if head not in self._svd:
            query, key = reader(self.stream, head, "query"), reader(self.stream, head, "key")
            w_q = (
                query.matrix.double()
                if query.qk_gain is None
                else query.matrix.double() * query.qk_gain[:, None]
            )
            w_k = key.matrix.double() if key.qk_gain is None else key.matrix.double() * key.qk_gain[:, None]
            u, sigma, vt = torch.linalg.svd(w_q.mT @ w_k)
            n = self.model.d_head
            to_a = sigma[:n, None] * u[:, :n].mT @ torch.linalg.pinv(w_q)
            to_b = vt[:n] @ torch.linalg.pinv(w_k)
            self._svd[head] = sigma[:n].numpy(), to_a.numpy(), to_b.numpy()
        return self._svd[head]

    def logits(self, firing: Firing) -> np.ndarray:
        layer, index, d, _ = firing
        call = self.stream.layers[layer].call
        column = self.start + d
        q = call.query[self.prompt, index, column].double()
        k = call.key_of(index)[self.prompt, self.start : column + 1].double()
        rows = torch.full((call.query.shape[0], 1), column)
        visible = call.visible(rows)[self.prompt, 0, self.start : column + 1]
        return (k @ q * call.scale).masked_fill(~visible, -torch.inf).numpy()

    def contributions(self, firing: Firing, side: str) -> tuple[list[Component], np.ndarray]:
        """Components, and C [components, channels, keys 0..d]."""
        layer, index, d, _ = firing
        head = Head(layer, index)
        _, to_a, to_b = self.svd(head)
        call = self.stream.layers[layer].call
        keys = call.key_of(index)[self.prompt, self.start : self.start + d + 1].double().numpy()
        query = call.query[self.prompt, index, self.start + d].double().numpy()
        if side == "query":
            parts = self.stream.shares(head, "query", d, self.prompt)
            a = parts.vectors.double().numpy() @ to_a.T
            b = keys @ to_b.T
            return list(parts.components), call.scale * a[:, :, None] * b.T[None]
        a = to_a @ query
        place: dict[Component, int] = {}
        shares = [self.stream.shares(head, "key", t, self.prompt) for t in range(d + 1)]
        for share in shares:
            for component in share.components:
                place.setdefault(component, len(place))
        rows = np.zeros((len(place), len(a), d + 1))
        for t, share in enumerate(shares):
            b = share.vectors.double().numpy() @ to_b.T
            rows[[place[c] for c in share.components], :, t] = call.scale * a * b
        return list(place), rows

    def signals(self, firing: Firing, side: str, tau: float) -> list[tuple[Component, int, float]]:
        """(component, channel, attention its removal took), in the order of removal; empty above 1,000 removals."""
        components, rows = self.contributions(firing, side)
        n_channels, n_keys = rows.shape[1:]
        rows = rows.reshape(-1, n_keys)
        logits, s = self.logits(firing), firing[3]
        seen = np.isfinite(logits)
        rows, logits, s, n_keys = rows[:, seen], logits[seen], int(seen[:s].sum()), int(seen.sum())
        ig = np.zeros(len(rows))
        for i, alpha in enumerate(np.linspace(0, 1, 65)):
            p = _softmax(alpha * logits)
            ig += (0.5 if i in (0, 64) else 1.0) / 64 * p[s] * (rows[:, s] - rows @ p)
        assert abs(ig.sum() - (_softmax(logits)[s] - 1 / n_keys)) < 5e-3
        left, before = logits.copy(), _softmax(logits)[s]
        removed = []
        for candidate in np.argsort(-ig, kind="stable"):
            left = left - rows[candidate]
            after = _softmax(left)[s]
            removed.append((components[candidate // n_channels], int(candidate % n_channels), before - after))
            before = after
            if len(removed) > 1000:
                return []
            if after < tau:
                return removed
        return []

    def seeds(self, direction: torch.Tensor) -> dict[tuple, float]:
        """Shares of the final stream at the last position along an unembedding direction, those above the cutoff."""
        model, last = self.model, self.length - 1
        parts = self.stream.writes(model.n_layers, last, self.prompt)
        norm = model.anatomy.final_norm()
        vectors = parts.vectors.double()
        assert norm is not None
        scale = norm.scale(parts.whole.double())
        if norm.centred:
            vectors = vectors - vectors.mean(-1, keepdim=True)
        shares = (vectors * scale * norm.gain.double()) @ direction.double()
        total = float(shares.sum())
        if total <= 0:
            return {}
        ordered = sorted(shares.tolist(), reverse=True)
        running, cutoff = 0.0, ordered[-1]
        for share in ordered:
            running += share
            if running > total:
                cutoff = share
                break
        cutoff = min(cutoff, total / 2)
        return {
            self.node(component, last): float(share)
            for component, share in zip(parts.components, shares.tolist(), strict=True)
            if share >= cutoff
        }

    def node(self, component: Component, position: int) -> tuple:
        if component.kind == "head":
            return ("head", component.layer, component.index, position, component.source)
        return (component.kind, component.layer, position)

    def trace(self, direction: torch.Tensor) -> LiteralCircuit:
        circuit = LiteralCircuit(seeds=self.seeds(direction))
        waiting = [node[1:] for node in circuit.seeds if node[0] == "head"]
        if not waiting:
            return LiteralCircuit()
        seen = set(waiting)
        while waiting:
            firing = max(waiting)
            waiting.remove(firing)
            layer, _, d, s = firing
            tau = min(1.0, 2.5 / (d + 1))
            if layer == 0 or d == 0 or s > d or _softmax(self.logits(firing))[s] < tau:
                continue
            circuit.expanded.append(firing)
            for side in ("query", "key"):
                grouped: dict[tuple, tuple[float, tuple[int, ...]]] = {}
                for component, channel, taken in self.signals(firing, side, tau):
                    node = self.node(component, d if side == "query" else s)
                    weight, channels = grouped.get(node, (0.0, ()))
                    grouped[node] = (weight + taken, (*channels, channel))
                for node, value in grouped.items():
                    circuit.edges[node, ("head", *firing), side] = value
                    if node[0] == "head" and node[4] <= node[3] and node[1:] not in seen:
                        seen.add(node[1:])
                        waiting.append(node[1:])
        return circuit


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()
