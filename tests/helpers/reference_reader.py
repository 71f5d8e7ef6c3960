"""How a head reads the stream, written out head by head: what the library's one reading is held against."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.reading import Rotary
from headwise.model.stream import Stream
from headwise.types import Head, Side


@dataclass(frozen=True, eq=False)
class Reader:
    """How one head reads the stream on one side, with every norm's scalar frozen: a linear map and an offset.

    A part x of the stream at column c contributes rotate_c(gain · scale_c · (matrix @ x)) to the head's vector.
    """

    matrix: Tensor
    """[d_head, d_model]: projection, norm gain and centring in one."""
    offset: Tensor | None
    """[d_head]: what the norm's shift and the projection's bias add, before QK-norm."""
    norm_scale: Tensor | None
    """[n, t, 1] scalar of the norm before attention."""
    qk_scale: Tensor | None
    """[n, t, 1] scalar of this head's QK-norm."""
    qk_gain: Tensor | None
    rotary: Rotary | None

    def read(self, parts: Tensor, prompt: int, column: int) -> Tensor:
        """Parts of the stream [..., d_model] at a column, in head space [..., d_head]."""
        return self.place(parts @ self.matrix.mT, prompt, column)

    def place(self, projected: Tensor, prompt: int, column: int) -> Tensor:
        """Already projected parts [..., d_head] at a column: scale and rotate them."""
        if self.norm_scale is not None:
            projected = projected * self.norm_scale[prompt, column]
        return self._finish(projected, prompt, column)

    def offset_at(self, prompt: int, column: int) -> Tensor | None:
        return None if self.offset is None else self._finish(self.offset, prompt, column)

    def _finish(self, vectors: Tensor, prompt: int, column: int) -> Tensor:
        if self.qk_scale is not None:
            assert self.qk_gain is not None
            vectors = vectors * self.qk_scale[prompt, column] * self.qk_gain
        if self.rotary is None:
            return vectors
        here = torch.tensor([[column]], device=vectors.device)
        row = prompt if self.rotary.cos.shape[0] > 1 else 0
        rotary = Rotary(self.rotary.cos[row : row + 1], self.rotary.sin[row : row + 1]).at(here)
        flat = vectors.reshape(1, -1, 1, vectors.shape[-1])
        return rotary.turn(flat).reshape(vectors.shape)


@torch.no_grad()
def reader(stream: Stream, head: Head | str, side: Side) -> Reader:
    """The frozen linear map by which a head reads the stream on one side."""
    head = stream.model.head(head)
    if head.layer >= len(stream.layers):
        raise HeadwiseError(f"the stream was captured up to layer {len(stream.layers) - 1}, not for {head}")
    anatomy, record = stream.model.anatomy, stream.layers[head.layer]
    index = head.index if side == "query" else head.index // anatomy.group
    projection = anatomy.query(head.layer) if side == "query" else anatomy.key(head.layer)
    dtype = record.stream.dtype
    weight = projection.weight[index].to(dtype)
    matrix, offset = weight, None if projection.bias is None else projection.bias[index].to(dtype)
    norm, norm_scale = anatomy.attention_norm(head.layer), None
    if norm is not None:
        norm_scale = norm.scale(record.stream)
        matrix = weight * norm.gain.to(dtype)
        if norm.centred:
            matrix = matrix - matrix.mean(1, keepdim=True)
        if norm.shift is not None:
            shift = weight @ norm.shift.to(dtype)
            offset = shift if offset is None else offset + shift
    qk_norm = anatomy.query_norm(head.layer) if side == "query" else anatomy.key_norm(head.layer)
    qk_scale = record.query_scale if side == "query" else record.key_scale
    qk_gain = None
    if qk_norm is not None:
        assert qk_scale is not None
        qk_scale = qk_scale[:, :, index if qk_scale.shape[2] > 1 else 0]
        gain = qk_norm.gain.to(dtype)
        # One gain for all heads, or (all_heads) a gain of its own for each.
        qk_gain = gain if gain.numel() == anatomy.d_head else gain.view(-1, anatomy.d_head)[index]
    return Reader(matrix, offset, norm_scale, qk_scale, qk_gain, record.rotary)
