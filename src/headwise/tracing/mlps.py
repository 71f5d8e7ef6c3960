"""What an MLP's write is made of: its neurons, and what it read (docs/method/splitting.md).

A reading is a vector of the stream at a position; what is explained is its product with what the MLP wrote there, for
instance the MLP's part of a query along some channels. All readings of one MLP in one prompt are one batch: each
collapses to a vector of the stream, and the shares of thousands of writers are one product with what they wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.mlp import MLPReading
from headwise.tracing.writes import PromptWrites, component_writes
from headwise.types import Component

NEURONS = 5
"""Neurons shown on either side."""
LEAST = 0.05
"""A writer is shown from this part of what all helping writers bring."""


@dataclass(frozen=True, slots=True)
class WriterShare:
    """One writer that an MLP read: its share of a reading, and the effect of leaving it out of the MLP's input."""

    writer: Component
    share: float
    effect: float


@dataclass(frozen=True, slots=True)
class NeuronShare:
    """One neuron's share of a reading."""

    index: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTotals:
    """Shares cancel: what all that help bring, and what all that hinder take (negative)."""

    helping: float
    hindering: float

    @classmethod
    def of(cls, shares: Tensor) -> SignedTotals:
        """
        >>> SignedTotals.of(torch.tensor([2.0, -0.5, 1.0]))
        SignedTotals(helping=3.0, hindering=-0.5)
        """
        return cls(helping=float(shares.clamp(min=0).sum()), hindering=float(shares.clamp(max=0).sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MLPAccount:
    """What readings of an MLP's write at one position or several are made of, two ways that both sum to ``total``."""

    mlp: Component
    positions: tuple[int, ...]
    total: float
    """The readings of what the MLP wrote in the recorded pass, summed."""
    writers: tuple[WriterShare, ...]
    """The strongest of what the MLP read, with both signs, largest first; ``offset`` is the MLP's own constants."""
    others: float
    """What all other writers bring together."""
    by_writer: SignedTotals
    neurons: tuple[NeuronShare, ...]
    """The strongest neurons of both signs, largest first."""
    other_neurons: float
    """What all other neurons bring together."""
    constant: float
    """What passes no neuron: the output bias."""
    by_neuron: SignedTotals
    error: float
    """How far the writers' shares are from summing to the total, relative to what they bring without sign."""


@dataclass(frozen=True, eq=False)
class MLPReadings:
    """Some readings of one MLP of one prompt: m readings, each a vector of the stream at a position."""

    up: PromptWrites
    layer: int
    positions: Tensor
    """[m]"""
    readings: Tensor
    """[m, d_model]"""
    weights: Tensor
    """[m, layers, H, T]: what the heads that the MLP reads multiply each value with."""
    read: MLPReading

    @cached_property
    def totals(self) -> Tensor:
        """[m]: the readings of what the MLP wrote in the recorded pass."""
        written = self.up.stream.layers[self.layer].mlp
        assert written is not None
        return (written[self.up.prompt, self.up.span][self.positions] * self.readings).sum(-1)

    @cached_property
    def shares(self) -> Tensor:
        """[m, writers]: each writer's share of each reading; they sum to the totals. In the order of :meth:`writer`."""
        up, pulled, layers = self.up, self.read.pulled, self.weights.shape[1]
        carried = up.carried(pulled[None], layers)[0].mT * self.weights.flatten(1)
        static = torch.einsum("cmd,md->mc", up.static[: self._n_static, self.positions], pulled)
        return torch.cat((carried, static, self.read.own[:, None]), 1)

    def writer(self, index: int) -> Component:
        """Heads by the token they read, embedding, biases and MLPs below, and last the MLP's own constants."""
        if index == self.weights.shape[1] * self.up.n_heads * self.up.tokens + self._n_static:
            return Component("offset", self.layer)
        return self.up.component(self.weights.shape[1], index)

    def effects(self, place: int, writers: Sequence[Component]) -> list[float]:
        """What a reading loses when a writer is left out of the MLP's input and the MLP is computed anew."""
        one, position = self.read.only(place), int(self.positions[place])
        own = Component("offset", self.layer)
        others = [writer for writer in dict.fromkeys(writers) if writer != own]
        found: dict[Component, float] = {}
        if others:
            writes = torch.stack([component_writes(self.up, writer)[position] for writer in others])
            left = one.without(writes[None].to(self.readings.dtype))[0].tolist()
            found.update(zip(others, left, strict=True))
        if own in writers:
            found[own] = float(one.without_own()[0])
        return [found[writer] for writer in writers]

    def account(
        self, places: Sequence[int] | None = None, *, least: float = LEAST, neurons: int = NEURONS
    ) -> MLPAccount:
        """Some of the readings (all, unless told) as one account: a head reads keys at many positions.

        Shown are the writers from ``least`` of what all that help bring, and so many neurons of either sign.
        """
        at = list(range(len(self.positions))) if places is None else list(places)
        shares, by_neuron = (x[at].double().sum(0) for x in (self.shares, self.read.neurons))
        totals, total = SignedTotals.of(shares), float(self.totals[at].double().sum())
        chosen = _strongest(shares, least * max(totals.helping, -totals.hindering))
        writers = [self.writer(i) for i in chosen]
        effects = [sum(by_place) for by_place in zip(*(self.effects(i, writers) for i in at), strict=True)]
        order = by_neuron.argsort(descending=True).tolist()
        picked = [i for i in order[:neurons] if by_neuron[i] > 0]
        picked += [i for i in order[len(order) - neurons :] if by_neuron[i] < 0] if neurons else []
        unsigned = float(shares.abs().sum())
        return MLPAccount(
            mlp=Component("mlp", self.layer),
            positions=tuple(self.positions[at].tolist()),
            total=total,
            writers=tuple(
                WriterShare(writer, float(shares[i]), effect)
                for i, writer, effect in zip(chosen, writers, effects, strict=True)
            ),
            others=float(shares.sum() - shares[chosen].sum()),
            by_writer=totals,
            neurons=tuple(NeuronShare(i, float(by_neuron[i])) for i in picked),
            other_neurons=float(by_neuron.sum() - by_neuron[picked].sum()),
            constant=float(self.read.constant[at].double().sum()),
            by_neuron=SignedTotals.of(by_neuron),
            error=abs(float(shares.sum()) - total) / max(unsigned, 1e-30),
        )

    @property
    def _n_static(self) -> int:
        """Embedding, biases and MLPs that this MLP reads: with attention of its own layer also that layer's bias."""
        return self.up.n_static(self.layer) + (self.up.per_layer - 1) * (self.weights.shape[1] - self.layer)


def read_mlp(up: PromptWrites, layer: int, positions: Sequence[int], readings: Tensor) -> MLPReadings:
    """Read what an MLP wrote at some ``positions`` along ``readings`` [m, d_model], one per position.

    A position may occur more than once, with other readings. The MLP is computed anew at these positions only.
    """
    anatomy = up.stream.model.anatomy
    if not 0 <= layer < up.n_layers or up.stream.layers[layer].mlp is None:
        raise HeadwiseError(f"MLP{layer} was not finished in this pass: split more layers")
    if readings.shape != (len(positions), anatomy.d_model):
        raise HeadwiseError(
            f"readings of {len(positions)} positions have shape [{len(positions)}, {anatomy.d_model}], "
            f"not {list(readings.shape)}"
        )
    for position in positions:
        if not 0 <= position < up.tokens:
            raise HeadwiseError(f"position {position} does not exist: the prompt has {up.tokens} tokens")
    at = torch.tensor(list(positions), device=up.device)
    readings = readings.to(up.device, up.dtype)
    # An MLP beside its attention reads what the attention reads; one behind it also reads what it wrote.
    reads = layer if anatomy.parallel else layer + 1
    distinct, where = at.unique(return_inverse=True)
    weights = up.row_weights(reads, distinct)[where]
    stream = up.stream.layers[layer].stream[up.prompt, up.span][at]
    if not anatomy.parallel:
        stream = stream + _attention_write(up, layer, at, weights[:, layer])
    return MLPReadings(up, layer, at, readings, weights, anatomy.mlp(layer).at(stream).read(readings))


def _attention_write(up: PromptWrites, layer: int, positions: Tensor, weights: Tensor) -> Tensor:
    """What a layer's attention wrote at some positions, from its heads' weights [m, H, T] there: [m, d_model]."""
    values = up.v[layer].repeat_interleave(up.group, dim=0)
    read = torch.einsum("mht,htv->mhv", weights, values)
    written = torch.einsum("mhv,hdv->md", read, up.stream.output_weight(layer))
    bias = up.stream.bias_write(layer, up.prompt, up.span)
    return written if bias is None else written + bias.expand(up.tokens, -1)[positions]


def _strongest(shares: Tensor, least: float) -> list[int]:
    """Shares of at least this size, positive ones first, each sign from the largest; 0 is never one."""
    chosen = ((shares.abs() >= least) & (shares != 0)).nonzero()[:, 0]
    return chosen[shares[chosen].argsort(descending=True, stable=True)].tolist()
