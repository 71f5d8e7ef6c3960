"""One norm of a model, with the number it multiplies each token by made explicit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Norm:
    """LayerNorm or RMSNorm with its per-token scale made explicit, so that it can be frozen.

    A norm is x ↦ gain · centre(x) · s(x) + shift with one scalar s per token; with s frozen it is linear up to the
    shift, and so splits over the parts of x.
    """

    centred: bool
    gain: Tensor
    shift: Tensor | None
    eps: float

    def scale(self, x: Tensor) -> Tensor:
        """The scalar each token is multiplied by: [..., d] -> [..., 1]."""
        if self.centred:
            return torch.rsqrt(x.var(-1, keepdim=True, correction=0) + self.eps)
        return torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def linear(self, part: Tensor, scale: Tensor) -> Tensor:
        """What the norm makes of one part of the stream when the token's scale is frozen (no shift)."""
        if self.centred:
            part = part - part.mean(-1, keepdim=True)
        return part * scale * self.gain.to(part.dtype)

    def pull(self, reading: Tensor, scale: Tensor) -> Tensor:
        """The transposed map of :meth:`linear`: ⟨linear(x), y⟩ = ⟨x, pull(y)⟩."""
        reading = reading * scale * self.gain.to(reading.dtype)
        return reading - reading.mean(-1, keepdim=True) if self.centred else reading
