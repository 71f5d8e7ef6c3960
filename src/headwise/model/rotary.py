"""The rotation a model applied to its queries and keys, captured as the cosines and sines it used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headwise.model.batch import Batch


@dataclass(frozen=True, eq=False)
class Rotary:
    """RoPE at some columns: ``cos`` and ``sin`` are [prompts or 1, columns, rotated dimensions].

    The first ``cos.shape[-1]`` dimensions of a head are rotated in pairs (i, i + half), the rest pass through
    (partial rotary). The map is linear, so it acts on every part of a query or key alike.
    """

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, position_embeddings: Any) -> Rotary | None:
        if position_embeddings is None:
            return None
        cos, sin = position_embeddings
        return cls(cos, sin)

    def of_prompt(self, batch: Batch, prompt: int) -> Rotary:
        """The rotation at the positions of one prompt: cos and sin [1, positions, rotated dimensions]."""
        row = prompt if self.cos.shape[0] > 1 else 0
        return Rotary(*(x[row : row + 1, batch.span(prompt)] for x in (self.cos, self.sin)))

    def at_positions(self, positions: Tensor | list[int]) -> Rotary:
        """Of one prompt's rotation, that at some positions."""
        return Rotary(self.cos[:, positions], self.sin[:, positions])

    def at(self, columns: Tensor) -> Rotary:
        """The rotation at chosen columns [prompts, n]."""
        index = columns[..., None].expand(-1, -1, self.cos.shape[-1])
        rows = columns.shape[0]
        return Rotary(
            self.cos.expand(rows, -1, -1).gather(1, index), self.sin.expand(rows, -1, -1).gather(1, index)
        )

    def turn(self, vectors: Tensor) -> Tensor:
        """Rotate vectors [prompts, heads, columns, d_head]."""
        return self._apply(vectors, 1.0)

    def undo(self, vectors: Tensor) -> Tensor:
        """Rotate back. cos² + sin² is not 1 where a model scales its rotation (YaRN), so divide by it."""
        return self._apply(vectors, -1.0)

    def transposed(self, vectors: Tensor) -> Tensor:
        """The transposed map: ⟨turn(x), y⟩ = ⟨x, transposed(y)⟩ (not the inverse, if a model scales its rotation)."""
        return self._apply(vectors, -1.0, divide=False)

    def _apply(self, vectors: Tensor, direction: float, *, divide: bool = True) -> Tensor:
        width = self.cos.shape[-1]
        turned, rest = vectors[..., :width], vectors[..., width:]
        cos, sin = self.cos[:, None].to(vectors.dtype), self.sin[:, None].to(vectors.dtype)
        first, second = turned.chunk(2, dim=-1)
        turned = turned * cos + torch.cat((-second, first), dim=-1) * sin * direction
        if direction < 0 and divide:
            turned = turned / (cos.square() + sin.square())
        return torch.cat((turned, rest), dim=-1)
