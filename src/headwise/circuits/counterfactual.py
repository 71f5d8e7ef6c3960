"""Take signals away and look: the attention the algebra predicts, and the attention of the really edited pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.model.edits import AddVectors, Edit
from headwise.tracing.integrate import attention
from headwise.tracing.search import Firing
from headwise.tracing.signals import component_shares, signal_vectors
from headwise.tracing.upstream import Upstream
from headwise.types import Component, Head, Side

if TYPE_CHECKING:
    from headwise.model.model import Model

Members = Sequence[tuple[Component, int]]
"""Signals of one side: (component, channel)."""
Known = dict[tuple[Side, Component], Tensor]
"""Components' shares of one head's query and keys, as far as they were needed."""


@dataclass(frozen=True, eq=False)
class Removal:
    """What is taken from one firing: a vector from its query, vectors [T, d_head] from the keys its row sees."""

    firing: Firing
    query: Tensor | None = None
    key: Tensor | None = None

    def edits(self, prompt: int | None = None, *, factor: float = 1.0) -> list[Edit]:
        """The edits that make it, in prompt ``prompt`` of a batch; ``factor`` −1 adds the signals once more."""
        head, d = Head(self.firing.layer, self.firing.head), self.firing.query
        made: list[Edit] = []
        if self.query is not None:
            made.append(
                AddVectors(head=head, side="query", positions=d, value=-factor * self.query, prompt=prompt)
            )
        if self.key is not None:
            seen = list(range(d + 1))
            value = -factor * self.key[: d + 1]
            made.append(AddVectors(head=head, positions=seen, value=value, seen_by=d, prompt=prompt))
        return made

    def predicted(self, up: Upstream) -> float:
        """The attention that is left, by the algebra alone."""
        return float(self.row(up)[self.firing.key])

    def row(self, up: Upstream) -> Tensor:
        """The whole row of attention that is left, by the algebra alone: [T]."""
        layer, head, d, _ = self.firing
        q, k = up.q[layer, head, d].double(), up.k[layer, head // up.group].double()
        q = q if self.query is None else q - self.query
        k = k if self.key is None else k - self.key
        return attention((k @ q) * float(up.scale[layer]), up.visible(layer)[d], up.cap)


def removal(
    up: Upstream, firing: Firing, sides: Mapping[Side, Members], known: Known | None = None
) -> Removal:
    """Remove the given signals of one side, or of both.

    ``known`` remembers what each component has of the head's query and keys, for more removals from this firing.
    """
    known = {} if known is None else known
    total: dict[Side, Tensor] = {}
    for side, members in sides.items():
        by_component: dict[Component, list[int]] = {}
        for component, channel in members:
            by_component.setdefault(component, []).append(channel)
        vectors = []
        for c, channels in by_component.items():
            if (side, c) not in known:
                known[side, c] = component_shares(up, firing, side, c)
            vectors.append(signal_vectors(up, firing, side, c, channels, known[side, c]))
        if vectors:
            total[side] = torch.stack(vectors).sum(0)
    return Removal(firing, total.get("query"), total.get("key"))


def unused(
    members: Members, width: int, generator: torch.Generator, *, avoid: Collection[int] = ()
) -> list[tuple[Component, int]]:
    """The control: the same components, each used channel exchanged for one that no member uses (nor ``avoid``)."""
    used = sorted({channel for _, channel in members})
    taken = {*used, *avoid}
    free = [channel for channel in range(width) if channel not in taken] or list(range(width))
    order = torch.randperm(len(free), generator=generator).tolist()
    instead = {channel: free[order[i % len(free)]] for i, channel in enumerate(used)}
    return [(component, instead[channel]) for component, channel in members]


def edited_attention(
    model: Model, token_ids: Sequence[int], removals: Sequence[Removal], *, batch_size: int = 32
) -> list[float]:
    """The attention each removal leaves, in forward passes that were really edited.

    Removals of one layer share a copy of the prompt where they touch different rows: a row's pattern depends on its
    own query and keys alone. Everything else gets a copy of its own.
    """
    result = [float("nan")] * len(removals)
    by_layer: dict[int, list[int]] = {}
    for i, one in enumerate(removals):
        by_layer.setdefault(one.firing.layer, []).append(i)
    for indices in by_layer.values():
        copies: dict[tuple[int, int], int] = {}
        place: list[tuple[int, int]] = []
        for i in indices:
            row = removals[i].firing[1:3]
            copy = copies.get(row, 0)
            copies[row] = copy + 1
            place.append((i, copy))
        n = max(copies.values())
        heads = sorted({Head(*removals[i].firing[:2]) for i in indices})
        rows = sorted({removals[i].firing.query for i in indices})
        edits = [edit for i, copy in place for edit in removals[i].edits(copy)]
        got = model.edit(
            [list(token_ids)] * n, edits, heads=heads, queries=rows, logits="none", batch_size=batch_size
        )
        assert got.pattern is not None
        for i, copy in place:
            firing = removals[i].firing
            where = (copy, heads.index(Head(firing.layer, firing.head)), rows.index(firing.query), firing.key)
            result[i] = float(got.pattern[where])
    return result
