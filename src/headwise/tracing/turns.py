"""Rotations at every key: sums and products in which each key turns a vector by its own position.

A rotation acts on pairs of dimensions, so a sum over keys of weights times rotations is one matrix product with
weights times cosines and weights times sines, and no rotated vector is built that can be avoided
(docs/method/tracing.md §3). Without a rotation the same functions work on the vectors as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwise.model.reading import Rotary


def turned(rotary: Rotary | None, vectors: Tensor) -> Tensor:
    """Rotate vectors [u, n, t, w], each at its own column."""
    return vectors if rotary is None else rotary.turn(vectors)


def turned_product(rotary: Rotary | None, left: Tensor, right: Tensor) -> Tensor:
    """⟨left, R_t right⟩ at every column t, for vectors [n, w]: [n, T], without building the rotated vectors."""
    if rotary is None:
        return (left * right).sum(-1, keepdim=True)
    half = rotary.cos.shape[-1] // 2
    cos, sin = (x[0, :, :half].to(left.dtype) for x in (rotary.cos, rotary.sin))
    l1, l2, r1, r2 = left[:, :half], left[:, half : 2 * half], right[:, :half], right[:, half : 2 * half]
    rest = (left[:, 2 * half :] * right[:, 2 * half :]).sum(-1, keepdim=True)
    return (l1 * r1 + l2 * r2) @ cos.mT + (l2 * r1 - l1 * r2) @ sin.mT + rest


class Turns:
    """Sums over keys of weight_t · R_t: what the key side needs of a pattern, for every firing at once."""

    def __init__(self, rotary: Rotary | None, weight: Tensor) -> None:
        """``weight`` is [f, T]."""
        self.f, tokens = weight.shape
        self.half = 0 if rotary is None else rotary.cos.shape[-1] // 2
        columns = [weight.mT[..., None]]
        if rotary is not None:
            cos, sin = (x[0, :, : self.half].to(weight.dtype) for x in (rotary.cos, rotary.sin))
            columns += [weight.mT[..., None] * cos[:, None], weight.mT[..., None] * sin[:, None]]
        self.columns = torch.cat(columns, -1).view(tokens, -1)

    def of_columns(self, columns: Tensor, carried: Tensor) -> Tensor:
        """Single columns [n, T] of patterns and their projected values [n, w], for one firing: [n, w]."""
        mix, half = (columns.to(self.columns.dtype) @ self.columns).to(carried.dtype), self.half
        out = carried * mix[:, :1]
        if half:
            cos, sin = mix[:, 1 : 1 + half], mix[:, 1 + half :]
            first, second = carried[:, :half], carried[:, half : 2 * half]
            out[:, :half] = first * cos - second * sin
            out[:, half : 2 * half] = second * cos + first * sin
        return out

    def apply(self, pattern: Tensor, carried: Tensor, place: Tensor, out: Tensor) -> None:
        """Patterns [l, H, T, T] and projected values [u, l·H·T, w] into ``out`` [f, l·H·T, w]."""
        sums = (pattern.mT.reshape(-1, pattern.shape[-2]) @ self.columns).view(-1, self.f, 1 + 2 * self.half)
        half = self.half
        for i, u in enumerate(place.tolist()):
            y, mix = carried[u], sums[:, i]
            if half:
                cos, sin = mix[:, 1 : 1 + half], mix[:, 1 + half :]
                first, second = y[:, :half], y[:, half : 2 * half]
                torch.mul(first, cos, out=out[i, :, :half]).addcmul_(second, sin, value=-1)
                torch.mul(second, cos, out=out[i, :, half : 2 * half]).addcmul_(first, sin)
            out[i, :, 2 * half :] = y[:, 2 * half :] * mix[:, :1]
