"""What an MLP's write is made of: its neurons, and what it read (docs/method/splitting.md).

A reading is a vector of the stream at a position; what is explained is its product with what the MLP wrote there, for
instance the MLP's part of a query along some channels. All readings of one MLP in one prompt are one batch: each
collapses to a vector of the stream, and the shares of thousands of writers are one product with what they wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.mlp import MLPReading
from headwise.tracing.vectors import component_writes
from headwise.tracing.writes import PromptWrites
from headwise.types import Component

CHUNK_BYTES = 1 << 25
"""Shares of all writers that are held at a time."""
NEURONS = 5
"""Neurons shown on either side."""
LEAST = 0.05
"""A writer is shown from this part of what all helping writers bring."""


@dataclass(frozen=True, slots=True)
class WriterShare:
    """One writer that an MLP read: its share of a reading, and the effect of leaving it out of the MLP's input."""

    writer: Component
    """What the MLP read."""
    share: float
    """Its share; shares sum to the total."""
    effect: float
    """By how much the reading changes without it; effects need not sum to anything."""


@dataclass(frozen=True, slots=True)
class NeuronShare:
    """One neuron's share of a reading."""

    index: int
    """Its number in the MLP."""
    share: float
    """Its share; shares sum to the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTotals:
    """Shares cancel: what all that help bring, and what all that hinder take (negative)."""

    helping: float
    """All positive parts together."""
    hindering: float
    """All negative parts together."""

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
    """The MLP that wrote."""
    positions: tuple[int, ...]
    """Where it wrote."""
    total: float
    """The readings of what the MLP wrote in the recorded pass, summed."""
    writers: tuple[WriterShare, ...]
    """The strongest of what the MLP read, with both signs, largest first; ``offset`` is the MLP's own constants."""
    others: float
    """What all other writers bring together."""
    by_writer: SignedTotals
    """All that helps and all that hinders among what it read."""
    neurons: tuple[NeuronShare, ...]
    """The strongest neurons of both signs, largest first."""
    other_neurons: float
    """What all other neurons bring together."""
    constant: float
    """What passes no neuron: the output bias."""
    by_neuron: SignedTotals
    """All that helps and all that hinders among its neurons."""
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
    read: MLPReading
    depth: int
    """Layers whose heads the MLP reads: those below, and its own unless it stands beside its attention."""

    @cached_property
    def totals(self) -> Tensor:
        """[m]: the readings of what the MLP wrote in the recorded pass."""
        written = self.up.stream.layers[self.layer].mlp
        assert written is not None
        return (written[self.up.prompt, self.up.span][self.positions] * self.readings).sum(-1)

    def writer(self, index: int) -> Component:
        """Heads by the token they read, embedding, biases and MLPs below, and last the MLP's own constants."""
        if index == self.up.n_carried(self.depth) + self._n_static:
            return Component("offset", self.layer)
        return self.up.component(self.depth, index)

    def chunks(self, places: Sequence[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Some readings, as many at a time as fit: their places, and every writer's share of each [places, writers].

        The shares of a reading sum to its total. Writers are in the order of :meth:`writer`.
        """
        one = self.up.n_carried(self.depth) * torch.finfo(self.up.dtype).bits // 8
        step = max(1, CHUNK_BYTES // max(1, one))
        for start in range(0, len(places), step):
            chosen = list(places[start : start + step])
            yield chosen, self._shares(chosen)

    def _shares(self, places: list[int]) -> Tensor:
        up, pulled, at = self.up, self.read.pulled[places], self.positions[places]
        distinct, where = at.unique(return_inverse=True)
        weights = up.row_weights(self.depth, distinct).flatten(1)[where]
        carried = up.carried(pulled[None], self.depth)[0].mT * weights
        static = torch.einsum("cmd,md->mc", up.static[: self._n_static, at], pulled)
        return torch.cat((carried, static, self.read.own[places, None]), 1)

    def effects(self, places: Sequence[int], writers: Sequence[Component]) -> Tensor:
        """What readings lose when a writer is left out of the MLP's input and the MLP is computed anew.

        Returns [places, writers].
        """
        own = Component("offset", self.layer)
        effects = torch.zeros(
            len(places), len(writers), dtype=self.readings.dtype, device=self.readings.device
        )
        for number, writer in enumerate(writers):
            if writer == own:
                effects[:, number] = self.read.only(places).without_own()
            else:
                written = component_writes(self.up, writer)[self.positions[list(places)]]
                effects[:, number] = self.read.only(places).without(written.to(self.readings.dtype))
        return effects

    def account(
        self, places: Sequence[int] | None = None, *, least: float = LEAST, neurons: int = NEURONS
    ) -> MLPAccount:
        """Some of the readings (all, unless told) as one account: a head reads keys at many positions.

        Shown are the writers from ``least`` of what all that help bring, and so many neurons of either sign.
        """
        at = list(range(len(self.positions))) if places is None else list(places)
        shares = torch.stack([found.double().sum(0) for _, found in self.chunks(at)]).sum(0)
        by_neuron = self.read.neurons[at].double().sum(0)
        totals, total = SignedTotals.of(shares), float(self.totals[at].double().sum())
        chosen = _strongest(shares, least * max(totals.helping, -totals.hindering))
        writers = [self.writer(i) for i in chosen]
        effects = self.effects(at, writers).double().sum(0).tolist()
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
        return self.up.n_static(self.layer) + (self.up.per_layer - 1) * (self.depth - self.layer)


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
    distinct, where = at.unique(return_inverse=True)
    stream = up.stream.layers[layer].stream[up.prompt, up.span][distinct]
    if not anatomy.parallel:
        stream = stream + _attention_write(up, layer, distinct)
    read = anatomy.mlp(layer).at(stream).only(where).read(readings)
    return MLPReadings(up, layer, at, readings, read, layer if anatomy.parallel else layer + 1)


def _attention_write(up: PromptWrites, layer: int, positions: Tensor) -> Tensor:
    """What a layer's attention wrote at some positions: [m, d_model]."""
    weights = up.row_weights(layer + 1, positions, low=layer)[:, 0]
    values = up.v[layer].repeat_interleave(up.group, dim=0)
    read = torch.einsum("mht,htv->mhv", weights, values)
    written = torch.einsum("mhv,hdv->md", read, up.stream.output_weight(layer))
    bias = up.stream.bias_write(layer, up.prompt, up.span)
    return written if bias is None else written + bias.expand(up.tokens, -1)[positions]


def _strongest(shares: Tensor, least: float) -> list[int]:
    """Shares of at least this size, positive ones first, each sign from the largest; 0 is never one."""
    chosen = ((shares.abs() >= least) & (shares != 0)).nonzero()[:, 0]
    return chosen[shares[chosen].argsort(descending=True, stable=True)].tolist()
