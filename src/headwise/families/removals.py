"""What leaves the model when signals or heads of a family are removed: the edits, and how long the removed vectors are.

A *signal* leaves at every token: what its source, a head with all it carried, wrote into that channel is taken from the
queries (or the keys) of the target head, as the clean pass has it. A *head* keeps writing at every token what it writes
there on average over the prompt, so that its usual write stays and what it says is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.circuits.counterfactual import unused
from headwise.families.incidence import Element
from headwise.model.edits import AddVectors, Edit, SetOutput
from headwise.model.outputs import head_outputs
from headwise.tracing.vectors import component_shares
from headwise.tracing.writes import PromptWrites
from headwise.types import Component, Head, Side, Signal

if TYPE_CHECKING:
    from headwise.model.model import Model

ReadInput = tuple[Head, Side]
"""Where a signal enters: what a head reads on one side."""
RemovedSignals = dict[ReadInput, list[Signal]]
"""Signals by where they enter."""
RemovedHeads = tuple[Head, ...]
"""Heads whose messages leave."""


class Signals:
    """What components wrote into channels of heads in one prompt, at every token."""

    def __init__(self, up: PromptWrites) -> None:
        self.up = up
        self._shares: dict[tuple[ReadInput, Component], Tensor] = {}
        self._maps: dict[Head, tuple[Tensor, Tensor]] = {}

    def maps(self, head: Head) -> tuple[Tensor, Tensor]:
        """G_d and G_s of a head as each row multiplies them: [T, d_head, channels] and [T, channels, d_head]."""
        if head not in self._maps:
            rows = [self.up.maps_at(head, row) for row in range(self.up.tokens)]
            self._maps[head] = torch.stack([g for g, _ in rows]), torch.stack([g for _, g in rows])
        return self._maps[head]

    def shares(self, place: ReadInput, component: Component) -> Tensor:
        """A component's share of a head's queries or keys: [T, d_head]."""
        if (place, component) not in self._shares:
            self._shares[place, component] = component_shares(self.up, *place, component)
        return self._shares[place, component]

    def vectors(self, members: Mapping[ReadInput, Sequence[Signal]]) -> dict[ReadInput, Tensor]:
        """The sum of some signals at each place, in head space.

        Of queries [T, d_head]; of keys [T rows, T, d_head], as each row sees them.
        """
        result = {}
        for (head, side), listed in members.items():
            query_map, key_map = self.maps(head)
            total = torch.zeros((), dtype=torch.float64, device=self.up.device)
            for signal in listed:
                chosen, shares = list(signal.channels), self.shares((head, side), signal.writer)
                if side == "query":
                    read = torch.einsum("td,tdc->tc", shares, query_map[..., chosen])
                    total = total + torch.einsum("tc,tcd->td", read, key_map[:, chosen])
                else:
                    read = torch.einsum("kd,tcd->tkc", shares, key_map[:, chosen])
                    total = total + torch.einsum("tkc,tdc->tkd", read, query_map[..., chosen])
            result[head, side] = total
        return result


def grouped(features: Sequence[Element]) -> RemovedSignals:
    """Features, as signals, by the head and side that they enter."""
    result: RemovedSignals = {}
    for f in features:
        side: Side = "query" if f.side == "query" else "key"
        signal = Signal(Head.parse(f.target), side, Component.parse(f.source), (f.channel,))
        result.setdefault((signal.head, side), []).append(signal)
    return result


def removal_edits(vectors: Mapping[ReadInput, Tensor]) -> list[Edit]:
    """Edits that take vectors from every query of their heads, and from every key as each row sees it."""
    made: list[Edit] = []
    for (head, side), value in vectors.items():
        if side == "query":
            every = list(range(len(value)))
            made.append(AddVectors(head=head, side="query", positions=every, value=-value))
        elif bool((value == value[:1]).all()):
            # The same for every row (no rotation, or the absolute frame): one edit for all of them.
            every = list(range(len(value)))
            made.append(AddVectors(head=head, positions=every, value=-value[0]))
        else:
            for row, taken in enumerate(value):
                seen = list(range(row + 1))
                made.append(AddVectors(head=head, positions=seen, value=-taken[: row + 1], seen_by=row))
    return made


@dataclass(frozen=True, eq=False)
class TakenAway:
    """Edits that take something away, and the length of what they take."""

    edits: list[Edit]
    length: float


NOTHING = TakenAway([], 0.0)


class Remover:
    """Makes the edits of one prompt for whatever is to be removed from it."""

    def __init__(self, model: Model, up: PromptWrites, heads: Collection[Head]) -> None:
        self._signals = Signals(up)
        token_ids = list(up.stream.token_ids[up.prompt])
        self._outputs = head_outputs(model, token_ids, sorted(heads))[0] if heads else {}

    def removed(self, what: RemovedSignals | RemovedHeads) -> TakenAway:
        """Signals as the clean pass has them, or what heads say beyond their usual write."""
        if isinstance(what, dict):
            vectors = self._signals.vectors(what)
            sizes = [_size(one) for one in vectors.values()]
            return TakenAway(removal_edits(vectors), float(torch.stack(sizes).sum().sqrt()) if sizes else 0.0)
        edits: list[Edit] = []
        total = 0.0
        for head in what:
            output = self._outputs[head]
            usual = output.mean(0)
            edits.append(SetOutput(head=head, value=usual))
            total += float((output - usual).double().square().sum())
        return TakenAway(edits, total**0.5)


def unused_channels(
    members: RemovedSignals, used: RemovedSignals, width: int, generator: torch.Generator
) -> RemovedSignals:
    """As many signals of the same writers into the same heads, along channels that ``used`` does not have there."""
    avoid = {place: {c for one in listed for c in one.channels} for place, listed in used.items()}
    return {
        place: unused(listed, width, generator, avoid=avoid.get(place, ()))
        for place, listed in members.items()
    }


def unused_heads(
    chosen: RemovedHeads, used: Collection[Head], n_heads: int, generator: torch.Generator
) -> RemovedHeads:
    """As many other heads of the same layers, those first that are not ``used``; fewer where a layer has no more.

    >>> heads, used = (Head(1, 0), Head(3, 2)), {Head(1, 0), Head(1, 1), Head(3, 2)}
    >>> made = unused_heads(heads, used, 3, torch.Generator().manual_seed(0))
    >>> str(made[0]), str(made[1]) in ("L3H0", "L3H1")
    ('L1H2', True)
    """
    made: list[Head] = []
    for layer in sorted({head.layer for head in chosen}):
        mine = [head for head in chosen if head.layer == layer]
        order = [Head(layer, i) for i in torch.randperm(n_heads, generator=generator).tolist()]
        others = [head for head in order if head not in mine]
        made += sorted(others, key=lambda head: head in used)[: len(mine)]
    return tuple(made)


def _size(vectors: Tensor) -> Tensor:
    """The square of how much is taken from a head's queries, or on average over rows from its keys."""
    total = vectors.square().sum()
    return total if vectors.ndim == 2 else total / len(vectors)
