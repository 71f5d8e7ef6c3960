"""The two sides of a search: what a candidate's row over keys is, and what all candidates bring to the attention.

A candidate is a (component, channel). On the query side its row over keys is a_ck · b_tk, on the key side
a_k · b_ck(t); its attribution is the row's product with the firing's gradient g. So all attributions follow from one
d_head vector y_c per firing and component:

  query side   y_c = weight_dj · M_Q W_O v_j                    IG_ck = w_k · y_c · G_d,k   with w = gᵀB
  key side     y_c = Σ_t g_t weight_tj R_t · M_K W_O v_j        IG_ck = a_k · (G_s R_dᵀ)_k · y_c

in the query's frame (in the absolute one R_dᵀ G_d and G_s take the places of G_d and G_s R_dᵀ).

Rotations act on pairs of dimensions, so the sum over t is one matrix product of patterns with g_t cos and g_t sin, and
no rotated vector is built that can be avoided (docs/method/tracing.md §3). f firings, N components, t keys, w = d_head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.model.reading import Turns, side_maps, turned, turned_product
from headwise.types import Side

if TYPE_CHECKING:
    from headwise.tracing.search import LayerChunk


SLICE = 128
"""Columns of patterns that are rebuilt at a time."""


class _SearchedSide(ABC):
    """One side of a chunk of firings: component vectors, how channels read them, rows of single candidates."""

    def __init__(self, chunk: LayerChunk, side: Side, where: Tensor) -> None:
        """``where`` [f] is the query or key head of each firing."""
        self.chunk, self.where = chunk, where
        self.y: Tensor | None = None
        """[f, N, w], once every component's vector is made."""
        up, layer = chunk.up, chunk.layer
        self.n_carried, self.n_static = up.n_carried(layer), up.n_static(layer)
        scalars = up.stream.scalars(layer, side)
        # [f, t]: the scalar of each column for the head of each firing
        self.scalar = scalars.stream[up.prompt, up.span][:, where].mT.double()
        self.offset_scalar = scalars.offset[up.prompt, up.span][:, where].mT.double()
        unique, self.place = where.unique(return_inverse=True)
        maps = side_maps(up.stream.model, layer, side, chunk.shared.dtype)
        self.matrices, self.offset = maps.matrix[unique], maps.offset
        self.carried = chunk.shared.carried(up, side, unique, self.matrices)

    def attributions(self) -> Tensor:
        """What every candidate brings to its firing's attention: [f, N, channels]."""
        self.y = self.vectors()
        reading, weight = self.prepare()
        return self.y @ (reading * weight[:, None]).to(self.y.dtype)

    @property
    def n_others(self) -> int:
        """Components that are not heads: embedding, biases, MLPs, and the offset, where there is one."""
        return self.n_static + (self.offset is not None)

    def prepare(self) -> tuple[Tensor, Tensor]:
        """:meth:`reading`, without any component's vector: those are made by :meth:`vectors_of`."""
        self.read_by, weight = self.reading()
        return self.read_by, weight

    @abstractmethod
    def carried_lengths(self) -> Tensor:
        """‖y_c‖, or more, of what heads carried from single tokens: [f, heads below · T]."""

    @abstractmethod
    def vectors_of(self, firing: int, component: Tensor) -> Tensor:
        """y_c of some components [n] of one firing: [n, w]."""

    @abstractmethod
    def vectors(self) -> Tensor:
        """y_c of every component: [f, N, w]."""

    @abstractmethod
    def reading(self) -> tuple[Tensor, Tensor]:
        """The map [f, w, channels] from y_c to coordinates, and what multiplies each coordinate [f, channels]."""

    @abstractmethod
    def counterpart(self) -> Tensor:
        """What the query (the g-weighted sum of keys) is multiplied with, scale included [f, w]: no basis is in it."""

    @abstractmethod
    def whole_reading(self, vectors: Tensor) -> Tensor:
        """What multiplies y_c itself, where ``vectors`` [f, w] multiply the query or the keys."""

    @abstractmethod
    def whole_rows(self, component: Tensor) -> Tensor:
        """Rows over keys [m, t] of whole components [m] of the first firing."""

    @abstractmethod
    def whole_vectors(self, component: Tensor) -> Tensor:
        """What whole components [m] of the first firing are in head space, where its row reads them: [m, places, w]."""

    @abstractmethod
    def rows(self, of: Tensor, component: Tensor, channel: Tensor) -> tuple[Tensor, Tensor]:
        """Rows over keys [o, m, t] and strengths [o, m] of some candidates [o, m] of firings ``of`` [o]."""

    @abstractmethod
    def stream_readings(self, of: Tensor, channels: Tensor) -> Tensor:
        """How firings ``of`` [n] read some channels [n, K] (weights) of a write at the position that is read.

        Returns [n, d_model]: the product with a write is what it brings to the attention there.
        """

    def _in_stream(self, of: Tensor, vectors: Tensor) -> Tensor:
        """Readings of a head's space [n, w], before its projection: [n, d_model]."""
        matrices = self.matrices[self.place[of]]
        return (vectors.to(matrices.dtype)[:, None] @ matrices)[:, 0]

    def _room(self) -> Tensor:
        """[f, N, w], not filled: heads by token, then static components, then the offset, where there is one."""
        components = self.n_carried + self.n_static + (self.offset is not None)
        shape = (len(self.where), components, self.carried.shape[-1])
        return torch.empty(shape, dtype=self.chunk.up.dtype, device=self.chunk.up.device)


class QuerySide(_SearchedSide):
    def __init__(self, chunk: LayerChunk) -> None:
        super().__init__(chunk, "query", chunk.heads)

    def vectors(self) -> Tensor:
        chunk, up = self.chunk, self.chunk.up
        vectors = self._room()
        for i, u in enumerate(self.place.tolist()):
            torch.mul(self.carried[u], self._weights[i, :, None], out=vectors[i, : self.n_carried])
        static = up.static[: self.n_static, chunk.d].transpose(0, 1)
        vectors[:, self.n_carried : self.n_carried + self.n_static] = static @ self.matrices[self.place].mT
        if self.offset is not None:
            ratio = self._here(self.offset_scalar) / self._here(self.scalar)
            vectors[:, -1] = self.offset[self.where] * ratio[:, None].to(self.offset.dtype)
        return vectors

    @cached_property
    def _weights(self) -> Tensor:
        """What each firing's row multiplies every value below with: [f, heads below · T]."""
        distinct, where = self.chunk.d.unique(return_inverse=True)
        rows = self.chunk.up.row_weights(self.chunk.layer, distinct)
        return rows[where].reshape(len(self.chunk.firings), -1)

    def carried_lengths(self) -> Tensor:
        return self.carried.norm(dim=-1)[self.place] * self._weights

    def vectors_of(self, firing: int, component: Tensor) -> Tensor:
        chunk, up, u = self.chunk, self.chunk.up, self.place[firing]
        vectors = self.carried.new_empty(len(component), self.carried.shape[-1])
        heads = component < self.n_carried
        some = component[heads]
        vectors[heads] = self.carried[u, some] * self._weights[firing, some, None]
        static = (component >= self.n_carried) & (component < self.n_carried + self.n_static)
        written = up.static[component[static] - self.n_carried, chunk.d[firing]]
        vectors[static] = written @ self.matrices[u].mT
        if self.offset is not None:
            ratio = self._here(self.offset_scalar)[firing] / self._here(self.scalar)[firing]
            own = self.offset[self.where[firing]] * ratio.to(self.offset.dtype)
            vectors[component == self.n_carried + self.n_static] = own
        return vectors

    def reading(self) -> tuple[Tensor, Tensor]:
        chunk = self.chunk
        reading = chunk.query_reading * (chunk.scale * self._here(self.scalar))[:, None, None]
        return reading, (chunk.g[:, None] @ chunk.b)[:, 0]

    def counterpart(self) -> Tensor:
        return self.chunk.scale * (self.chunk.g[:, None] @ self.chunk.k)[:, 0]

    def whole_reading(self, vectors: Tensor) -> Tensor:
        rotary = self.chunk.rotary
        if rotary is not None:
            vectors = rotary.at_positions(self.chunk.d).transposed(vectors[None, None])[0, 0]
        return vectors * self._here(self.scalar)[:, None]

    def whole_rows(self, component: Tensor) -> Tensor:
        keys = self.whole_vectors(component)[:, 0] @ self.chunk.k[0].mT
        return self.chunk.scale * keys * self.chunk.visible[:1]

    def whole_vectors(self, component: Tensor) -> Tensor:
        chunk = self.chunk
        assert self.y is not None
        vectors = self.y[:1, component, None].double() * self._here(self.scalar)[0]
        return turned(None if chunk.rotary is None else chunk.rotary.at_positions(chunk.d[:1]), vectors)[0]

    def rows(self, of: Tensor, component: Tensor, channel: Tensor) -> tuple[Tensor, Tensor]:
        chunk = self.chunk
        pairs = zip(of.tolist(), component, strict=True)
        if self.y is None:
            chosen = torch.stack([self.vectors_of(i, some) for i, some in pairs]).double()
        else:
            chosen = self.y[of[:, None], component].double()
        along = self.read_by[of].mT.gather(1, channel[..., None].expand(-1, -1, chosen.shape[2]))
        coordinate = (chosen * along).sum(-1)
        b = chunk.b[of].mT.gather(1, channel[..., None].expand(-1, -1, chunk.T))
        unit = chunk.scale * chunk.query_units[of].gather(1, channel)
        return coordinate[..., None] * b * chunk.visible[of][:, None], coordinate / unit

    def stream_readings(self, of: Tensor, channels: Tensor) -> Tensor:
        reading, weight = self.reading()
        return self._in_stream(of, (reading[of] @ (weight[of] * channels)[..., None])[..., 0])

    def _here(self, scalars: Tensor) -> Tensor:
        """Of scalars [f, t], those at each firing's query: [f]."""
        return scalars.gather(1, self.chunk.d[:, None])[:, 0]


class KeySide(_SearchedSide):
    def __init__(self, chunk: LayerChunk) -> None:
        super().__init__(chunk, "key", chunk.kv)
        # static components are read at every key: [unique, static, t, w]
        static = torch.einsum("ntx,uwx->untw", chunk.up.static[: self.n_static], self.matrices)
        self.turned_static = turned(chunk.rotary, static)
        self.turned_offset: Tensor | None = None
        if self.offset is not None:
            constant = self.offset[self.where][:, None, None].expand(-1, 1, chunk.T, -1)
            self.turned_offset = turned(chunk.rotary, constant)[:, 0]  # [f, t, w]

    def vectors(self) -> Tensor:
        chunk, up = self.chunk, self.chunk.up
        weight = (chunk.g * self.scalar).to(up.dtype)
        vectors = self._room()
        per_layer = up.n_heads * chunk.T
        mixed = Turns(chunk.rotary, weight)
        for low, high, pattern in up.blocks(chunk.layer):
            rows = slice(low * per_layer, high * per_layer)
            mixed.apply(pattern, self.carried[:, rows], self.place, vectors[:, rows])
        vectors[:, self.n_carried : self.n_carried + self.n_static] = torch.einsum(
            "ft,fntw->fnw", weight, self.turned_static[self.place]
        )
        if self.turned_offset is not None:
            off_weight = (chunk.g * self.offset_scalar).to(up.dtype)
            vectors[:, -1] = (off_weight[:, None] @ self.turned_offset)[:, 0]
        return vectors

    def carried_lengths(self) -> Tensor:
        chunk, up = self.chunk, self.chunk.up
        size = (chunk.g * self.scalar).abs().to(up.dtype).mT  # [t, f]
        if chunk.rotary is not None:
            # A model may scale its rotation (YaRN).
            scaled = (chunk.rotary.cos.square() + chunk.rotary.sin.square()).amax(-1)[0].sqrt().clamp(min=1.0)
            size = size * scaled[:, None].to(size.dtype)
        lengths = size.new_empty(len(chunk.firings), self.n_carried)
        per_layer = up.n_heads * chunk.T
        for low, high, pattern in up.blocks(chunk.layer):
            sums = pattern.mT.reshape(-1, chunk.T) @ size
            lengths[:, low * per_layer : high * per_layer] = sums.mT
        return lengths * self.carried.norm(dim=-1)[self.place]

    def vectors_of(self, firing: int, component: Tensor) -> Tensor:
        chunk, up, u = self.chunk, self.chunk.up, self.place[firing]
        vectors = self.carried.new_empty(len(component), self.carried.shape[-1])
        weight = (chunk.g[firing] * self.scalar[firing])[None]
        turns = Turns(chunk.rotary, weight)
        heads = (component < self.n_carried).nonzero()[:, 0]
        for some in heads.split(SLICE) if len(heads) else ():
            index = component[some]
            rest = index // chunk.T
            columns = up.columns(rest // up.n_heads, rest % up.n_heads, index % chunk.T)  # [n, T]
            vectors[some] = turns.of_columns(columns, self.carried[u, index])
        static = (component >= self.n_carried) & (component < self.n_carried + self.n_static)
        here = self.turned_static[u, component[static] - self.n_carried]
        vectors[static] = torch.einsum("t,ntw->nw", weight[0].to(here.dtype), here)
        if self.turned_offset is not None:
            off = (chunk.g[firing] * self.offset_scalar[firing]).to(vectors.dtype)
            vectors[component == self.n_carried + self.n_static] = off @ self.turned_offset[firing]
        return vectors

    def reading(self) -> tuple[Tensor, Tensor]:
        return self.chunk.key_map.mT, self.chunk.a

    def counterpart(self) -> Tensor:
        return self.chunk.q * self.chunk.scale

    def whole_reading(self, vectors: Tensor) -> Tensor:
        return vectors

    def whole_rows(self, component: Tensor) -> Tensor:
        along = self.counterpart()[:1].expand(len(component), -1)
        return self._along(component, torch.zeros_like(component), along) * self.chunk.visible[:1]

    def whole_vectors(self, component: Tensor) -> Tensor:
        chunk, up = self.chunk, self.chunk.up
        shape = (len(component), chunk.T, self.carried.shape[-1])
        vectors = torch.zeros(shape, dtype=torch.float64, device=component.device)
        at = (component < self.n_carried).nonzero()[:, 0]
        rest, source = component[at] // chunk.T, component[at] % chunk.T
        if len(at):
            weights = up.columns(rest // up.n_heads, rest % up.n_heads, source) * self.scalar[0]
            y = self.carried[self.place[0], component[at]].double()
            whole = turned(chunk.rotary, y[None, :, None].expand(-1, -1, chunk.T, -1))[0]
            vectors[at] = whole * weights[..., None]
        at = ((component >= self.n_carried) & (component < self.n_carried + self.n_static)).nonzero()[:, 0]
        static = self.turned_static[self.place[0], component[at] - self.n_carried].double()
        vectors[at] = static * self.scalar[0][:, None]
        if self.turned_offset is not None:
            own = component == self.n_carried + self.n_static
            vectors[own] = self.turned_offset[0].double() * self.offset_scalar[0][:, None]
        return vectors * chunk.visible[0][:, None]

    def _along(self, index: Tensor, owner: Tensor, along: Tensor) -> Tensor:
        """Components [n] of firings ``owner`` [n], at every key, along one vector each [n, w]: [n, t]."""
        rows = torch.zeros(len(index), self.chunk.T, dtype=torch.float64, device=index.device)
        for kind in (self._carried_rows, self._static_rows, self._offset_rows):
            kind(rows, index, owner, along)
        return rows

    def rows(self, of: Tensor, component: Tensor, channel: Tensor) -> tuple[Tensor, Tensor]:
        chunk, (o, m) = self.chunk, component.shape
        width = self.carried.shape[-1]
        along = (
            chunk.key_map[of].gather(1, channel[..., None].expand(-1, -1, width)).flatten(0, 1)
        )  # [o·m, w]
        owner, index = of[:, None].expand(-1, m).flatten(), component.flatten()  # [o·m]
        rows = self._along(index, owner, along)
        a = chunk.a[of].gather(1, channel)
        rows = rows.view(o, m, chunk.T)
        strength = rows.gather(2, chunk.s[of][:, None, None].expand(-1, m, 1))[..., 0]
        strength = strength / chunk.key_units[of].gather(1, channel)
        return rows * a[..., None] * chunk.visible[of][:, None], strength

    def stream_readings(self, of: Tensor, channels: Tensor) -> Tensor:
        chunk = self.chunk
        key = chunk.s[of]
        vectors = ((chunk.a[of] * channels)[:, None] @ chunk.key_map[of])[:, 0]
        if chunk.rotary is not None:
            vectors = chunk.rotary.at_positions(key).transposed(vectors[None, None])[0, 0]
        return self._in_stream(of, vectors * (chunk.g[of, key] * self.scalar[of, key])[:, None])

    def _carried_rows(self, rows: Tensor, index: Tensor, owner: Tensor, along: Tensor) -> None:
        """What heads carried from single tokens, at every key."""
        at = (index < self.n_carried).nonzero()[:, 0]
        if not len(at):
            return
        up, mine = self.chunk.up, owner[at]
        rest, source = index[at] // self.chunk.T, index[at] % self.chunk.T
        weights = up.columns(rest // up.n_heads, rest % up.n_heads, source)
        y = self.carried[self.place[mine], index[at]].double()
        rows[at] = weights * self.scalar[mine] * turned_product(self.chunk.rotary, along[at], y)

    def _static_rows(self, rows: Tensor, index: Tensor, owner: Tensor, along: Tensor) -> None:
        """Embedding, biases and MLPs."""
        at = ((index >= self.n_carried) & (index < self.n_carried + self.n_static)).nonzero()[:, 0]
        if len(at):
            y = self.turned_static[self.place[owner[at]], index[at] - self.n_carried].double()
            rows[at] = (y @ along[at][..., None])[..., 0] * self.scalar[owner[at]]

    def _offset_rows(self, rows: Tensor, index: Tensor, owner: Tensor, along: Tensor) -> None:
        at = (index == self.n_carried + self.n_static).nonzero()[:, 0]
        if len(at) and self.turned_offset is not None:
            y = self.turned_offset[owner[at]].double()
            rows[at] = (y @ along[at][..., None])[..., 0] * self.offset_scalar[owner[at]]
