"""How all heads of a layer read the stream, as one batch: the maps of :class:`~headwise.model.stream.Reader`, stacked.

With every norm's scalar frozen, a part x of the stream at column c gives head h the query share
rotate_c(scalar[c, h] · query[h] @ x), and the same for keys; the offset gives
rotate_c(offset_scalar[c, h] · offset[h]).
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headwise.model.anatomy import Anatomy
    from headwise.model.batch import Batch
    from headwise.model.model import Model
    from headwise.model.stream import LayerRecord
    from headwise.types import Side


@dataclass(frozen=True, eq=False)
class SideMaps:
    """One side of a layer: norm gain, centring, projection and QK-norm gain in one linear map per (key) head."""

    matrix: Tensor
    """[heads, d_head, d_model]"""
    offset: Tensor | None
    """[heads, d_head]: the norm's shift and the projection's bias, read through the QK-norm's gain."""


KEPT = 8
"""Maps that are remembered for a model, the ones used last: enough for one cell (two sides, in float64 and in the
model's own precision), and no second copy of a large model's weights."""
_known: weakref.WeakKeyDictionary[Model, OrderedDict[tuple[int, Side, torch.dtype], SideMaps]] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.Lock()


def side_maps(model: Model, layer: int, side: Side, dtype: torch.dtype) -> SideMaps:
    """The maps of every query head (``side`` query) or key head (key) of a layer; they depend on weights alone."""
    with _lock:
        known = _known.setdefault(model, OrderedDict())
        place: tuple[int, Side, torch.dtype] = (layer, side, dtype)
        if place not in known:
            known[place] = _composed(model, layer, side, dtype)
        known.move_to_end(place)
        if len(known) > KEPT:
            known.popitem(last=False)
        return known[place]


@torch.no_grad()
def _composed(model: Model, layer: int, side: Side, dtype: torch.dtype) -> SideMaps:
    anatomy = model.anatomy
    projection = anatomy.query(layer) if side == "query" else anatomy.key(layer)
    weight = projection.weight.detach().to(dtype)
    matrix, offset = weight, None if projection.bias is None else projection.bias.detach().to(dtype)
    norm = anatomy.attention_norm(layer)
    if norm is not None:
        matrix = weight * norm.gain.detach().to(dtype)
        if norm.centred:
            matrix = matrix - matrix.mean(-1, keepdim=True)
        if norm.shift is not None:
            shift = weight @ norm.shift.detach().to(dtype)
            offset = shift if offset is None else offset + shift
    qk_norm = anatomy.query_norm(layer) if side == "query" else anatomy.key_norm(layer)
    if qk_norm is not None:
        gain = qk_norm.gain.detach().to(dtype).view(-1, anatomy.d_head)
        matrix = matrix * gain[..., None]
        offset = None if offset is None else offset * gain
    return SideMaps(matrix, offset)


@dataclass(frozen=True, eq=False)
class SideScalars:
    """The frozen scalars of one side: ``stream`` [n, t, heads] for parts of the stream, ``offset`` for the offset."""

    stream: Tensor
    offset: Tensor


def side_scalars(anatomy: Anatomy, record: LayerRecord, layer: int, side: Side) -> SideScalars:
    """Scalars of the norm before attention and of the QK-norm, at every column (:meth:`Stream.scalars` keeps them)."""
    heads = anatomy.n_heads if side == "query" else anatomy.n_kv_heads
    n, t, _ = record.stream.shape
    ones = record.stream.new_ones(n, t, heads)
    norm = anatomy.attention_norm(layer)
    before = ones if norm is None else norm.scale(record.stream).expand(n, t, heads)
    scale = record.query_scale if side == "query" else record.key_scale
    inside = ones if scale is None else scale[..., 0].expand(n, t, heads)
    return SideScalars(before * inside, inside)


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

    def to(self, device: torch.device) -> Rotary:
        """The same rotation on another device."""
        return Rotary(self.cos.to(device), self.sin.to(device))

    def double(self) -> Rotary:
        """The same rotation in float64, where bases are."""
        return Rotary(self.cos.double().cpu(), self.sin.double().cpu())

    def turn(self, vectors: Tensor) -> Tensor:
        """Rotate vectors [prompts, heads, columns, d_head]."""
        return self._apply(vectors, 1.0)

    def undo(self, vectors: Tensor) -> Tensor:
        """Rotate back. cos² + sin² is not 1 where a model scales its rotation (YaRN), so divide by it."""
        return self._apply(vectors, -1.0)

    def transposed(self, vectors: Tensor) -> Tensor:
        """The transposed map: ⟨turn(x), y⟩ = ⟨x, transposed(y)⟩ (not the inverse, if a model scales its rotation)."""
        return self._apply(vectors, -1.0, divide=False)

    def inverse_transposed(self, vectors: Tensor) -> Tensor:
        """The inverse of :meth:`transposed`: turned, and divided by cos² + sin²."""
        width = self.cos.shape[-1]
        turned = self.turn(vectors)
        cos, sin = self.cos[:, None].to(vectors), self.sin[:, None].to(vectors)
        size = cos.square() + sin.square()
        return torch.cat((turned[..., :width] / size, turned[..., width:]), dim=-1)

    def _apply(self, vectors: Tensor, direction: float, *, divide: bool = True) -> Tensor:
        width = self.cos.shape[-1]
        turned, rest = vectors[..., :width], vectors[..., width:]
        cos, sin = self.cos[:, None].to(vectors), self.sin[:, None].to(vectors)
        first, second = turned.chunk(2, dim=-1)
        turned = turned * cos + torch.cat((-second, first), dim=-1) * sin * direction
        if direction < 0 and divide:
            turned = turned / (cos.square() + sin.square())
        return torch.cat((turned, rest), dim=-1)


# --- rotations at every column ---------------------------------------------------------------------------------------
# A rotation acts on pairs of dimensions, so a sum over columns of weights times rotations is one matrix product with
# weights times cosines and weights times sines: no rotated vector is built that can be avoided
# (docs/method/tracing.md §3). Without a rotation the same functions take the vectors as they are.


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
    """Sums over columns of weight_t · R_t: what the keys of a row need of a pattern."""

    def __init__(self, rotary: Rotary | None, weight: Tensor) -> None:
        """``weight`` is [f, T]: one sum for each of f rows."""
        self.half = 0 if rotary is None else rotary.cos.shape[-1] // 2
        columns = [weight[..., None]]
        if rotary is not None:
            cos, sin = (x[0, :, : self.half].to(weight.dtype) for x in (rotary.cos, rotary.sin))
            columns += [weight[..., None] * cos, weight[..., None] * sin]
        self.columns = torch.cat(columns, -1)
        """[f, T, 1 + 2 · half]"""

    def mixed(self, patterns: Tensor, vectors: Tensor, rows: Tensor | int) -> Tensor:
        """Σ_t pattern_t · weight_t · R_t v, from patterns [..., n, T] and vectors [..., n, w] of some of the rows."""
        return self.applied(patterns @ self.columns[rows], vectors)

    def applied(self, mix: Tensor, vectors: Tensor) -> Tensor:
        """The same, from patterns that were multiplied with :attr:`columns` [..., n, 1 + 2 · half]."""
        half = self.half
        out = vectors * mix[..., :1]
        if half:
            cos, sin = mix[..., 1 : 1 + half], mix[..., 1 + half :]
            first, second = vectors[..., :half], vectors[..., half : 2 * half]
            torch.mul(first, cos, out=out[..., :half]).addcmul_(second, sin, value=-1)
            torch.mul(second, cos, out=out[..., half : 2 * half]).addcmul_(first, sin)
        return out
