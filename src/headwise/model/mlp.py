"""One MLP, computed at some positions with its norms frozen, and read backwards.

An MLP writes m = Σ_i h_i·w_i + constants, so a linear reading of its write is a sum over neurons, exactly. To go on to
what the MLP read, each neuron's h_i is shared among the parts of its input (docs/method/splitting.md): a plain neuron
act(z) = act(0) + σ·z with the frozen slope σ is linear in the parts of z; a gated one, act(g)·u, is linear in each of
its factors, and half goes through each. The whole reading then collapses to one vector in the stream, whose product
with any part of the MLP's input is that part's share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headwise.model.anatomy import Norm

NEAR_ZERO = 1e-7
"""Below this a pre-activation counts as 0, where the slope act(z)/z is its limit."""
_STEP = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class MLPParts:
    """The weights of one MLP. d_model d, f neurons; a plain MLP has no gate and activates ``up`` itself."""

    norm: Norm | None
    gate: Tensor | None
    """[f, d]"""
    gate_bias: Tensor | None
    up: Tensor
    """[f, d]"""
    up_bias: Tensor | None
    activation: Callable[[Tensor], Tensor]
    down: Tensor
    """[d, f]"""
    down_bias: Tensor | None
    post_norm: Norm | None
    """The norm on what the MLP hands out, where there is one."""

    def at(self, stream: Tensor) -> FrozenMLP:
        """The MLP at some positions, from the stream [m, d] that it reads there."""
        scale, x = None, stream
        if self.norm is not None:
            scale = self.norm.scale(stream)
            x = self.norm.linear(stream, scale)
            x = x if self.norm.shift is None else x + self.norm.shift.to(x.dtype)
        gate = None if self.gate is None else _linear(x, self.gate, self.gate_bias)
        up = _linear(x, self.up, self.up_bias)
        hidden = self._hidden(gate, up)
        post_scale = None
        if self.post_norm is not None:
            post_scale = self.post_norm.scale(_linear(hidden, self.down, self.down_bias))
        return FrozenMLP(self, stream, scale, gate, up, hidden, post_scale)

    def _hidden(self, gate: Tensor | None, up: Tensor) -> Tensor:
        return self.activation(up) if gate is None else self.activation(gate) * up

    def slope(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """act(0), and the slopes (act(z) − act(0))/z.

        At z = 0 the slope is its limit act′(0); where act has a kink there (relu), the mean of the limits from both
        sides: ½ for relu, silu and gelu alike.
        """
        points = torch.tensor([_STEP, -_STEP, 0.0], dtype=torch.float64, device=z.device)
        right, left, origin = self.activation(points).to(z.dtype)
        zero = z.abs() < NEAR_ZERO
        slopes = (self.activation(z) - origin) / z.masked_fill(zero, 1.0)
        return origin, torch.where(zero, (right - left) / (2 * _STEP), slopes)


@dataclass(frozen=True, eq=False)
class FrozenMLP:
    """One MLP at m positions, the scalars of its norms frozen."""

    parts: MLPParts
    stream: Tensor
    """[m, d]: what it reads."""
    scale: Tensor | None
    gate: Tensor | None
    """[m, f] before the activation."""
    up: Tensor
    hidden: Tensor
    """[m, f]: the neurons."""
    post_scale: Tensor | None

    def write(self) -> Tensor:
        """[m, d]: what it adds to the stream."""
        out, norm = _linear(self.hidden, self.parts.down, self.parts.down_bias), self.parts.post_norm
        if norm is None:
            return out
        assert self.post_scale is not None
        out = norm.linear(out, self.post_scale)
        return out if norm.shift is None else out + norm.shift.to(out.dtype)

    def only(self, places: Tensor) -> FrozenMLP:
        """The same at some of the positions, each as often as it is named."""
        scale, gate, post_scale = (
            None if x is None else x[places] for x in (self.scale, self.gate, self.post_scale)
        )
        stream, up, hidden = (x[places] for x in (self.stream, self.up, self.hidden))
        return FrozenMLP(self.parts, stream, scale, gate, up, hidden, post_scale)

    def read(self, readings: Tensor) -> MLPReading:
        """Read what the MLP writes along one vector [m, d] of the stream per position."""
        parts, dtype = self.parts, readings.dtype
        behind = readings
        constant = readings.new_zeros(len(readings))
        if parts.post_norm is not None:
            assert self.post_scale is not None
            behind = parts.post_norm.pull(readings, self.post_scale)
            if parts.post_norm.shift is not None:
                constant = constant + readings @ parts.post_norm.shift.to(dtype)
        if parts.down_bias is not None:
            constant = constant + behind @ parts.down_bias.to(dtype)
        weights = behind @ parts.down.to(dtype)
        own, pulled = constant, None
        for z_weights, matrix, bias, at_zero in self._halves(weights):
            back = z_weights @ matrix.to(dtype)
            pulled = back if pulled is None else pulled + back
            own = own + at_zero
            if bias is not None:
                own = own + z_weights @ bias.to(dtype)
        assert pulled is not None
        if parts.norm is not None:
            if parts.norm.shift is not None:
                own = own + pulled @ parts.norm.shift.to(dtype)
            assert self.scale is not None
            pulled = parts.norm.pull(pulled, self.scale)
        return MLPReading(self, weights, constant, pulled, own)

    def _halves(self, weights: Tensor) -> list[tuple[Tensor, Tensor, Tensor | None, Tensor | float]]:
        """How a reading of the neurons [m, f] reads each pre-activation: weights, matrix and bias, and its constant."""
        parts = self.parts
        if self.gate is None or parts.gate is None:
            origin, slope = parts.slope(self.up)
            return [(weights * slope, parts.up, parts.up_bias, (weights * origin).sum(-1))]
        origin, slope = parts.slope(self.gate)
        # act(g)·u = ½[(act(g) + act(0))·u + σ·u·g]; act(0) is 0 for the activations of gates in use
        through_up = weights * (parts.activation(self.gate) + origin) / 2
        through_gate = weights * slope * self.up / 2
        return [
            (through_up, parts.up, parts.up_bias, 0.0),
            (through_gate, parts.gate, parts.gate_bias, 0.0),
        ]


@dataclass(frozen=True, eq=False)
class MLPReading:
    """What an MLP wrote at m positions along one reading vector each, by its neurons and by what it read."""

    mlp: FrozenMLP
    weights: Tensor
    """[m, f]: what each neuron's activation counts for."""
    constant: Tensor
    """[m]: what does not pass a neuron (output bias, shift of the norm behind it)."""
    pulled: Tensor
    """[m, d]: its product with a part of the MLP's input is that part's share."""
    own: Tensor
    """[m]: the share of the MLP's own constants: ``constant``, input biases and the shift of the norm before it."""

    @property
    def neurons(self) -> Tensor:
        """[m, f]: the share of each neuron; with ``constant`` they sum to the reading."""
        return self.weights * self.mlp.hidden

    @property
    def total(self) -> Tensor:
        """[m]: the reading of the MLP as it was computed here."""
        return self.neurons.sum(-1) + self.constant

    def only(self, places: Sequence[int]) -> MLPReading:
        """Some of the readings."""

        at = torch.tensor(list(places), device=self.weights.device)
        cut = (x[at] for x in (self.weights, self.constant, self.pulled, self.own))
        return MLPReading(self.mlp.only(at), *cut)

    def without(self, left_out: Tensor) -> Tensor:
        """Effects [m] of leaving a part [m, d] of the MLP's input out: the MLP is computed anew.

        Effects are not shares: a gated MLP is about quadratic in its input, so they sum to about twice the reading.
        """
        parts, x = self.mlp.parts, left_out
        if parts.norm is not None:
            assert self.mlp.scale is not None
            x = parts.norm.linear(x, self.mlp.scale)
        gate = None
        if parts.gate is not None:
            assert self.mlp.gate is not None
            gate = self.mlp.gate - _linear(x, parts.gate, None)
        return self._effect(gate, self.mlp.up - _linear(x, parts.up, None))

    def without_own(self) -> Tensor:
        """Effects [m] of leaving out the MLP's own constants, on both of its ends."""
        parts, x = self.mlp.parts, self.mlp.stream
        if parts.norm is not None:
            assert self.mlp.scale is not None
            x = parts.norm.linear(x, self.mlp.scale)
        gate = None if parts.gate is None else _linear(x, parts.gate, None)
        return self._effect(gate, _linear(x, parts.up, None)) + self.constant

    def _effect(self, gate: Tensor | None, up: Tensor) -> Tensor:
        """The fall [m] of the reading with other pre-activations [m, f]."""
        return ((self.mlp.hidden - self.mlp.parts._hidden(gate, up)) * self.weights).sum(-1)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = x @ weight.to(x.dtype).mT
    return out if bias is None else out + bias.to(x.dtype)
