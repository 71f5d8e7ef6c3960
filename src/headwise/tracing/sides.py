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
from headwise.tracing.writes import LONG
from headwise.types import Side

if TYPE_CHECKING:
    from headwise.tracing.search import LayerChunk


class _SearchedSide(ABC):
    """One side of a chunk of firings: component vectors, how channels read them, rows of single candidates."""

    def __init__(self, chunk: LayerChunk, side: Side, where: Tensor) -> None:
        """``where`` [f] is the query or key head of each firing."""
        self.chunk, self.where = chunk, where
        self.side: Side = side
        up, layer = chunk.up, chunk.layer
        self.n_carried, self.n_static = up.n_carried(layer), up.n_static(layer)
        scalars = up.stream.scalars(layer, side)
        # [f, t]: the scalar of each column for the head of each firing
        self.scalar = scalars.stream[up.prompt, up.span][:, where].mT.double()
        self.offset_scalar = scalars.offset[up.prompt, up.span][:, where].mT.double()
        self.heads, self.place = where.unique(return_inverse=True)
        maps = side_maps(up.stream.model, layer, side, chunk.shared.dtype)
        self.matrices, self.offset = maps.matrix[self.heads], maps.offset

    @cached_property
    def carried(self) -> Tensor:
        """Every value below, through its head's output and the readings of the distinct heads: [u, heads · T, w]."""
        return self.chunk.shared.carried(self.chunk.up, self.side, self.heads, self.matrices)

    def carried_of(self, of: Tensor, component: Tensor) -> Tensor:
        """The same for some components [o, n] of firings ``of`` [o]: [o, n, w]; those that are no heads get any."""
        component = component.clamp(max=self.n_carried - 1)
        if "carried" in self.__dict__ or self.chunk.shared.shares(self.side, self.heads):
            return self.carried[self.place[of][:, None], component]
        some, where = component.unique(return_inverse=True)
        u, width, d_model = self.matrices.shape
        read = self.chunk.up.written_rows(some) @ self.matrices.reshape(-1, d_model).mT
        return read.view(-1, u, width)[where, self.place[of][:, None]]

    @property
    def n_others(self) -> int:
        """Components that are not heads: embedding, biases, MLPs, and the offset, where there is one."""
        return self.n_static + (self.offset is not None)

    @abstractmethod
    def bounds(self, read: Tensor) -> Tensor:
        """Of what heads carried from single tokens, no channel's product with ``read`` [f, w, K] is larger than this:
        [f, heads below · T]."""

    @abstractmethod
    def others(self) -> Tensor:
        """y_c of all components that are not heads: [f, n_others, w]."""

    @abstractmethod
    def vectors_of(self, of: Tensor, component: Tensor) -> Tensor:
        """y_c of what heads carried from single tokens [o, n], for firings ``of`` [o]: [o, n, w]."""

    @abstractmethod
    def vectors(self) -> Tensor:
        """y_c of every component of the first firing: [N, w]."""

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
        vectors, place = vectors.to(self.matrices.dtype), self.place[of]
        read = vectors.new_empty(len(of), self.matrices.shape[-1])
        for head, matrix in enumerate(self.matrices):
            mine = place == head
            read[mine] = vectors[mine] @ matrix
        return read


class QuerySide(_SearchedSide):
    def __init__(self, chunk: LayerChunk) -> None:
        super().__init__(chunk, "query", chunk.heads)

    @cached_property
    def _weights(self) -> Tensor:
        """What each firing's row multiplies every value below with: [f, heads below · T]."""
        distinct, where = self.chunk.d.unique(return_inverse=True)
        rows = self.chunk.up.row_weights(self.chunk.layer, distinct)
        return rows[where].reshape(len(self.chunk.firings), -1)

    def bounds(self, read: Tensor) -> Tensor:
        # ‖Mᵀ read_k‖ is how long a write has to be at most: no write need be projected for it.
        square = (self.matrices @ self.matrices.mT)[self.place].to(read.dtype)
        reach = (read * (square @ read)).sum(1).amax(1).clamp(min=0).sqrt()
        lengths = self.chunk.up.lengths(self.chunk.layer)
        return self._weights * lengths * reach[:, None].to(lengths.dtype)

    @cached_property
    def _others(self) -> Tensor:
        chunk, up = self.chunk, self.chunk.up
        static = up.static[: self.n_static, chunk.d].transpose(0, 1) @ self.matrices[self.place].mT
        if self.offset is None:
            return static
        ratio = self._here(self.offset_scalar) / self._here(self.scalar)
        offset = self.offset[self.where] * ratio[:, None].to(self.offset.dtype)
        return torch.cat((static, offset[:, None]), 1)

    def others(self) -> Tensor:
        return self._others

    def vectors_of(self, of: Tensor, component: Tensor) -> Tensor:
        return self.carried_of(of, component) * self._weights[of[:, None], component][..., None]

    def vectors(self) -> Tensor:
        return torch.cat((self.carried[self.place[0]] * self._weights[0, :, None], self._others[0]))

    def _chosen(self, of: Tensor, component: Tensor) -> Tensor:
        """y_c of any components [o, n]: [o, n, w]."""
        if self.n_carried == 0:
            return self._others[of[:, None], component]
        index = component.clamp(max=self.n_carried - 1)
        vectors = self.vectors_of(of, index)
        others = (component - self.n_carried).clamp(min=0)
        return torch.where(
            (component < self.n_carried)[..., None], vectors, self._others[of[:, None], others]
        )

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
        vectors = self._chosen(component.new_zeros(1), component[None])[0][:, None].double()
        vectors = (vectors * self._here(self.scalar)[0])[None]
        return turned(None if chunk.rotary is None else chunk.rotary.at_positions(chunk.d[:1]), vectors)[0]

    def rows(self, of: Tensor, component: Tensor, channel: Tensor) -> tuple[Tensor, Tensor]:
        chunk = self.chunk
        chosen = self._chosen(of, component).double()
        along = self.reading()[0][of].mT.gather(1, channel[..., None].expand(-1, -1, chosen.shape[2]))
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
        self.turned_static = chunk.shared.remembered("static", chunk.up, self.heads, self._turned_static)
        """[u, static, t, w]: static components are read at every key."""
        self.turned_offset: Tensor | None = None
        if self.offset is not None:
            constant = self.offset[self.where][:, None, None].expand(-1, 1, chunk.T, -1)
            self.turned_offset = turned(chunk.rotary, constant)[:, 0]  # [f, t, w]
        self.weight = (chunk.g * self.scalar).to(chunk.up.dtype)
        """[f, t]: what each firing multiplies a key's write with."""
        self.turns = Turns(chunk.rotary, self.weight)

    def _turned_static(self) -> Tensor:
        u, width, d_model = self.matrices.shape
        static = self.chunk.up.static[: self.n_static] @ self.matrices.reshape(-1, d_model).mT
        return turned(self.chunk.rotary, static.unflatten(-1, (u, width)).permute(2, 0, 1, 3))

    def bounds(self, read: Tensor) -> Tensor:
        chunk, size = self.chunk, self.weight.abs()  # [f, t]
        if chunk.T <= LONG:
            return chunk.up.received(chunk.layer, (size * self._reach(read)).mT) * chunk.up.lengths(
                chunk.layer
            )
        # One reach per key is dear in a long prompt. Rotations keep lengths in a head's space, so writes are projected.
        if chunk.rotary is not None:
            # A model may scale its rotation (YaRN).
            scaled = (chunk.rotary.cos.square() + chunk.rotary.sin.square()).amax(-1)[0].sqrt().clamp(min=1.0)
            size = size * scaled.to(size.dtype)
        reach = read.norm(dim=1).amax(1)[:, None].to(size.dtype)
        return chunk.up.received(chunk.layer, size.mT) * self.carried.norm(dim=-1)[self.place] * reach

    def _reach(self, read: Tensor) -> Tensor:
        """How much a write of length 1 at each key can bring to any of the products ``read`` [f, w, K]: [f, t]."""
        square = (self.matrices @ self.matrices.mT)[self.place].to(read.dtype)
        along = read.mT[:, :, None].expand(-1, -1, self.chunk.T, -1)  # [f, K, t, w]
        if self.chunk.rotary is not None:
            along = self.chunk.rotary.transposed(along)
        longest = ((along @ square[:, None]) * along).sum(-1).amax(1)
        return longest.clamp(min=0).sqrt().to(self.weight.dtype)

    def others(self) -> Tensor:
        parts = torch.empty(
            len(self.where),
            self.n_static,
            self.matrices.shape[1],
            dtype=self.weight.dtype,
            device=self.weight.device,
        )
        for u in range(len(self.heads)):
            mine = self.place == u
            parts[mine] = torch.einsum("ft,ntw->fnw", self.weight[mine], self.turned_static[u])
        if self.turned_offset is None:
            return parts
        off_weight = (self.chunk.g * self.offset_scalar).to(parts.dtype)
        return torch.cat((parts, off_weight[:, None] @ self.turned_offset), 1)

    def vectors_of(self, of: Tensor, component: Tensor) -> Tensor:
        some, where = component.unique(return_inverse=True)
        columns = self.chunk.up.columns_of(some)[where]  # [o, n, T]
        return self.turns.mixed(columns, self.carried_of(of, component), of)

    def vectors(self) -> Tensor:
        chunk, up = self.chunk, self.chunk.up
        carried, parts = self.carried[self.place[0]], []
        per_layer = up.n_heads * chunk.T
        for low, high, mix in up.received_by(chunk.layer, self.turns.columns[0]):
            rows = slice(low * per_layer, high * per_layer)
            parts.append(self.turns.applied(mix.flatten(0, 2), carried[rows]))
        return torch.cat((*parts, self.others()[0]))

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
        shape = (len(component), chunk.T, self.matrices.shape[1])
        vectors = torch.zeros(shape, dtype=torch.float64, device=component.device)
        at = (component < self.n_carried).nonzero()[:, 0]
        rest, source = component[at] // chunk.T, component[at] % chunk.T
        if len(at):
            weights = up.columns(rest // up.n_heads, rest % up.n_heads, source) * self.scalar[0]
            y = self.carried_of(at.new_zeros(1), component[at][None])[0].double()
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
        width = self.matrices.shape[1]
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
        y = self.carried_of(mine, index[at][:, None])[:, 0].double()
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
