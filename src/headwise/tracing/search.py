"""The smallest sets of signals that cause some attentions: all firings of one layer of one prompt as one batch.

Every candidate is a (component, channel). On the query side a candidate's row over keys is a_ck · b_tk, on the key
side a_k · b_ck(t); its attribution is the row's product with the firing's gradient g. So the search needs, per
firing, one d_head vector for each component:

  query side   y_c = weight_dj · M_Q W_O v_j                    IG_ck = w_k · y_c · (Rᵀ_d G_d)_k   with w = gᵀB
  key side     y_c = Σ_t g_t weight_tj R_t · M_K W_O v_j        IG_ck = a_k · G_s,k · y_c

The rotations act on pairs of dimensions, so the sum over t is one matrix product of patterns with g_t cos and g_t sin.
Rows over keys are only built for the few candidates that the search asks for (docs/method/tracing.md §3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.bases.cell import layer_channels
from headwise.model.reading import SideMaps, SideScalars, side_maps, side_scalars
from headwise.model.rotary import Rotary
from headwise.tracing.greedy import Rows, drops, first_below, put_back
from headwise.tracing.integrate import Rule, attention, path_gradient
from headwise.tracing.rotations import Turns, prompt_rotary, turn, turned_product
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Removed, Side, Signal

if TYPE_CHECKING:
    from headwise.model.model import Model

CHUNK_BYTES = 1 << 25
"""Component vectors held at a time."""


@dataclass(frozen=True)
class Rules:
    """How a search is done. ``published`` are the authors' rules to the letter (docs/method/tracing.md §8)."""

    rule: Rule = "gauss"
    backward: bool = True
    soft_cap: bool = True
    """Whether a model's soft-cap acts in attribution and search (the published tracer leaves it out)."""
    max_signals: int = 1000
    tau: float | None = None
    """A fixed threshold; None: min(1, 2.5 / keys)."""
    visible_keys: bool = True
    """Whether the threshold counts the keys a row sees (the published tracer has no windows and counts d + 1)."""
    sides: tuple[Side, ...] = ("query", "key")

    @classmethod
    def published(cls, **changes: object) -> Rules:
        return cls(
            **{"rule": "trapezoid", "backward": False, "soft_cap": False, "visible_keys": False, **changes}
        )  # pyright: ignore[reportArgumentType]

    def threshold(self, keys: int) -> float:
        return min(1.0, 2.5 / keys) if self.tau is None else self.tau


@dataclass(frozen=True, eq=False)
class SideSignals:
    """The signals of one side of one firing, in the order of their removal."""

    cell: Cell
    side: Side
    tau: float
    attention: float
    after: float
    """Attention once all of them are removed."""
    removed: tuple[Removed, ...]
    """Signals of one channel each; their drops sum to ``attention − after``."""
    completeness: float
    """How far all candidates' attributions are from summing to the attention less that of a uniform row."""

    @property
    def resolved(self) -> bool:
        """False where no set of allowed size takes the attention below the threshold."""
        return len(self.removed) > 0

    @property
    def signals(self) -> list[Signal]:
        return [one.signal for one in self.removed]

    def by_writer(self) -> list[Removed]:
        """One signal per writer, in the order in which writers lost their first channel; numbers are summed."""
        joined: dict[Component, Removed] = {}
        for one in self.removed:
            before = joined.get(one.signal.writer)
            joined[one.signal.writer] = one if before is None else _joined(before, one)
        return list(joined.values())

    def __len__(self) -> int:
        return len(self.removed)


def _joined(one: Removed, other: Removed) -> Removed:
    signal = replace(one.signal, channels=one.signal.channels + other.signal.channels)
    return Removed(
        signal, one.attribution + other.attribution, one.drop + other.drop, one.strengths + other.strengths
    )


class LayerSearch:
    """Everything about one layer that its firings share, whatever the prompt."""

    def __init__(self, model: Model, layer: int, rules: Rules, dtype: torch.dtype) -> None:
        self.model, self.layer, self.rules = model, layer, rules
        self.maps: dict[Side, SideMaps] = {
            side: side_maps(model, layer, side, dtype) for side in ("query", "key")
        }
        self.channels = layer_channels(model, layer)
        self.group = model.anatomy.group
        self._scalars: dict[tuple[int, Side], SideScalars] = {}
        self._carried: dict[Side, tuple[tuple[int, ...], Tensor]] = {}
        self._joined: dict[tuple[Side, int], Tensor] = {}
        self._tokens: Counter[tuple[Side, int]] = Counter()
        """Tokens of the prompts in which a head's queries (a key head's keys) will be searched."""

    def expect(self, wanted: Iterable[tuple[PromptWrites, Sequence[Cell]]]) -> None:
        """Say which firings of which prompts will be searched: heads that many prompts share are joined with the
        outputs below them once, instead of reading every written vector in every prompt.
        """
        for up, firings in wanted:
            for head in {f.head.index for f in firings}:
                self._tokens["query", head] += up.tokens
            for head in {f.head.index // self.group for f in firings}:
                self._tokens["key", head] += up.tokens

    def scalars(self, up: PromptWrites, side: Side) -> SideScalars:
        """The frozen scalars of all prompts that went through the model together with this one."""
        key = (id(up.stream), side)
        if key not in self._scalars:
            self._scalars[key] = side_scalars(up.stream, self.layer, side)
        return self._scalars[key]

    def carried(self, up: PromptWrites, side: Side, heads: Tensor, matrices: Tensor) -> Tensor:
        """:meth:`PromptWrites.carried`, remembered for the next chunk: firings of one head follow one another."""
        key = (id(up), *heads.tolist())
        if side not in self._carried or self._carried[side][0] != key:
            self._carried.pop(side, None)  # before its successor is made
            _, width, d_model = matrices.shape
            joined = [
                self._join(up, side, head, matrices[place])
                if self._tokens[side, head] * (d_model - width) > d_model * width
                else None
                for place, head in enumerate(heads.tolist())
            ]
            self._carried[side] = key, up.carried(matrices, self.layer, joined)
        return self._carried[side][1]

    def _join(self, up: PromptWrites, side: Side, head: int, matrix: Tensor) -> Tensor:
        if (side, head) not in self._joined:
            self._joined[side, head] = up.join(matrix, self.layer)
        return self._joined[side, head]

    def run(self, up: PromptWrites, firings: Sequence[Cell]) -> list[dict[Side, SideSignals]]:
        """Search the firings of one prompt, in chunks whose memory is bounded (at least one firing)."""
        width, size = self.model.d_head, 4 * torch.finfo(up.dtype).bits // 32
        per_firing = (up.n_carried(self.layer) + up.n_static(self.layer) + 1) * width * size
        step = max(1, CHUNK_BYTES // per_firing)
        # Firings of one head next to one another share its projections.
        order = sorted(range(len(firings)), key=lambda i: firings[i].head.index)
        results: dict[int, dict[Side, SideSignals]] = {}
        for start in range(0, len(order), step):
            chosen = order[start : start + step]
            chunk = _Chunk(self, up, [firings[i] for i in chosen])
            found = [chunk.search(side) for side in self.rules.sides]
            for place, i in enumerate(chosen):
                results[i] = {side: found[n][place] for n, side in enumerate(self.rules.sides)}
        return [results[i] for i in range(len(firings))]


class _Chunk:
    """Some firings of one layer of one prompt. f firings, N components, t keys, w = d_head."""

    def __init__(self, shared: LayerSearch, up: PromptWrites, firings: list[Cell]) -> None:
        self.shared, self.up, self.firings = shared, up, firings
        layer, device = shared.layer, up.device
        self.layer, self.T = layer, up.tokens
        self.heads = torch.tensor([f.head.index for f in firings], device=device)
        self.d = torch.tensor([f.query for f in firings], device=device)
        self.s = torch.tensor([f.key for f in firings], device=device)
        self.kv = self.heads // shared.group
        self.scale = float(up.scale[layer])
        self.cap = up.cap if shared.rules.soft_cap else None
        self.query_map = shared.channels.query_map.to(device)[self.heads]
        self.key_map = shared.channels.key_map.to(device)[self.heads]
        self.sigma = shared.channels.sigma.to(device)[self.heads]
        q = up.q[layer, self.heads, self.d].double()
        k = up.k[layer, self.kv].double()
        self.visible = up.visible(layer)[self.d]
        self.a = self.scale * (q[:, None] @ self.query_map)[:, 0]
        self.b = k @ self.key_map.mT
        self.logits = (k @ q[..., None])[..., 0] * self.scale * self.visible
        self.g = path_gradient(self.logits, self.visible, self.s, cap=self.cap, rule=shared.rules.rule)
        row = attention(self.logits, self.visible, self.cap)
        self.attention = row.gather(1, self.s[:, None])[:, 0]
        self.n_visible = self.visible.sum(1)
        keys = self.n_visible if shared.rules.visible_keys else self.d + 1
        self.tau = torch.tensor(
            [shared.rules.threshold(n) for n in keys.tolist()], dtype=torch.float64, device=device
        )
        record = up.stream.layers[layer]
        self.rotary = None if record.rotary is None else prompt_rotary(record.rotary, up)

    # --- component vectors and what multiplies them -----------------------------------------------------------------

    def search(self, side: Side) -> list[SideSignals]:
        scalars = self.shared.scalars(self.up, side)
        where = self.heads if side == "query" else self.kv
        p, span = self.up.prompt, self.up.span
        # [f, t]: the scalar of each column for the head of each firing
        self.scalar = scalars.stream[p, span][:, where].mT.double()
        self.offset_scalar = scalars.offset[p, span][:, where].mT.double()
        unique, place = where.unique(return_inverse=True)
        matrices = self.shared.maps[side].matrix[unique]
        self.carried = self.shared.carried(self.up, side, unique, matrices)
        self.place = place
        if side == "query":
            vectors, reading, weight = self._query_vectors(matrices)
        else:
            vectors, reading, weight = self._key_vectors(matrices)
        scores = vectors @ (reading * weight[:, None]).to(vectors.dtype)
        completeness = scores.sum(2).double().sum(1) - (self.attention - 1 / self.n_visible.double())
        return self._greedy(side, scores, vectors, reading, completeness)

    def _query_vectors(self, matrices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors [f, N, w], the map [f, w, channels] to coordinates a_ck, and (gᵀB)_k."""
        up, layer, f = self.up, self.layer, len(self.firings)
        rows, where = self.d.unique(return_inverse=True)
        weights = up.row_weights(layer, rows)[where].reshape(f, -1, 1)
        n_carried, n_static = up.n_carried(layer), up.n_static(layer)
        offset = self.shared.maps["query"].offset
        vectors = self._room_for_vectors(offset)
        for i, u in enumerate(self.place.tolist()):
            torch.mul(self.carried[u], weights[i], out=vectors[i, :n_carried])
        static = up.static[:n_static, self.d].transpose(0, 1)
        vectors[:, n_carried : n_carried + n_static] = static @ matrices[self.place].mT
        scalar = self.scalar.gather(1, self.d[:, None])[:, 0]
        if offset is not None:
            ratio = self.offset_scalar.gather(1, self.d[:, None])[:, 0] / scalar
            vectors[:, -1] = offset[self.heads] * ratio[:, None].to(offset.dtype)
        reading = self.query_map
        if self.rotary is not None:
            at = Rotary(self.rotary.cos[:, self.d], self.rotary.sin[:, self.d])
            # [1, channels, f, w] turned back at each firing's own position
            reading = at.transposed(reading.permute(2, 0, 1)[None])[0].permute(1, 2, 0)
        reading = reading * (self.scale * scalar)[:, None, None]
        return vectors, reading, (self.g[:, None] @ self.b)[:, 0]

    def _key_vectors(self, matrices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors [f, N, w] summed over keys with g, the map [f, w, channels] to b_ck, and a_k."""
        up, layer = self.up, self.layer
        weight = (self.g * self.scalar).to(up.dtype)
        n_carried, n_static = up.n_carried(layer), up.n_static(layer)
        offset = self.shared.maps["key"].offset
        vectors = self._room_for_vectors(offset)
        per_layer = up.n_heads * self.T
        mixed = Turns(self.rotary, weight)
        for low, high, pattern in up.blocks(layer):
            rows = slice(low * per_layer, high * per_layer)
            mixed.apply(pattern, self.carried[:, rows], self.place, vectors[:, rows])
        # static components are read at every key: [unique, static, t, w]
        static = torch.einsum("ntx,uwx->untw", up.static[:n_static], matrices)
        self.turned_static = turn(self.rotary, static)
        vectors[:, n_carried : n_carried + n_static] = torch.einsum(
            "ft,fntw->fnw", weight, self.turned_static[self.place]
        )
        if offset is not None:
            constant = offset[self.kv][:, None, None].expand(-1, 1, self.T, -1)
            self.turned_offset = turn(self.rotary, constant)[:, 0]
            off_weight = (self.g * self.offset_scalar).to(up.dtype)
            vectors[:, -1] = (off_weight[:, None] @ self.turned_offset)[:, 0]
        return vectors, self.key_map.mT, self.a

    def _room_for_vectors(self, offset: Tensor | None) -> Tensor:
        """[f, N, w], not filled: heads by token, then static components, then the offset, where there is one."""
        up = self.up
        components = up.n_carried(self.layer) + up.n_static(self.layer) + (offset is not None)
        shape = (len(self.firings), components, self.carried.shape[-1])
        return torch.empty(shape, dtype=up.dtype, device=up.device)

    # --- the search --------------------------------------------------------------------------------------------------

    def _greedy(
        self, side: Side, scores: Tensor, vectors: Tensor, reading: Tensor, completeness: Tensor
    ) -> list[SideSignals]:
        results: list[SideSignals | None] = [None] * len(self.firings)
        # A token after the query can have been read by nobody: not a candidate.
        future = torch.zeros(scores.shape[:2], dtype=torch.bool, device=scores.device)
        by_token = future[:, : self.up.n_carried(self.layer)].view(len(self.firings), -1, self.T)
        by_token[:] = (torch.arange(self.T, device=self.d.device) > self.d[:, None])[:, None]
        best = scores.amax(2).masked_fill_(future, float("-inf"))
        limit = min(self.shared.rules.max_signals, scores[0].numel())
        m, open_ = min(32, limit), torch.arange(len(self.firings), device=scores.device)
        while len(open_):
            # The m best candidates lie among the m components of largest best score.
            top = best[open_].topk(min(m, best.shape[1]), 1).indices
            among = scores[open_[:, None], top].masked_fill_(
                future[open_[:, None], top][..., None], float("-inf")
            )
            value, flat = among.flatten(1).topk(m, 1)
            component = top.gather(1, flat // scores.shape[2])
            channel = flat % scores.shape[2]
            candidates, strength = self._rows(side, open_, component, channel, vectors, reading)
            rows = Rows(
                self.logits[open_], self.visible[open_], self.s[open_], self.tau[open_], self.cap, candidates
            )
            count = first_below(rows)
            done = (count > 0) | (m == limit)
            ready = done.nonzero()[:, 0]
            if len(ready):
                self._finish(
                    side,
                    open_,
                    ready,
                    rows,
                    count,
                    component,
                    channel,
                    strength,
                    value,
                    completeness,
                    results,
                )
            open_, m = open_[~done], min(limit, m * 4)
        return results  # pyright: ignore[reportReturnType]

    def _rows(
        self, side: Side, of: Tensor, component: Tensor, channel: Tensor, vectors: Tensor, reading: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rows over keys [f, m, t] and strengths [f, m] of some candidates (component, channel) of firings ``of``."""
        if side == "query":
            chosen = vectors[of[:, None], component].double()
            coordinate = (
                chosen * reading[of].mT.gather(1, channel[..., None].expand(-1, -1, chosen.shape[2]))
            ).sum(-1)
            b = self.b[of].mT.gather(1, channel[..., None].expand(-1, -1, self.T))
            # A query's coordinate holds scale and σ; a null channel has no σ, its coordinate is as large as it is.
            sigma = self.sigma[of].gather(1, channel)
            unit = self.scale * torch.where(sigma > 0, sigma, torch.ones_like(sigma))
            return coordinate[..., None] * b * self.visible[of][:, None], coordinate / unit
        f, m = component.shape
        along = self.key_map[of].gather(1, channel[..., None].expand(-1, -1, vectors.shape[2])).flatten(0, 1)
        owner = of[:, None].expand(-1, m).flatten()
        index = component.flatten()
        up, layer = self.up, self.layer
        n_carried, n_static = up.n_carried(layer), up.n_static(layer)
        rows = torch.zeros(f * m, self.T, dtype=torch.float64, device=index.device)
        at = (index < n_carried).nonzero()[:, 0]
        if len(at):
            rest, source = index[at] // self.T, index[at] % self.T
            weights = up.columns(rest // up.n_heads, rest % up.n_heads, source)
            y = self.carried[self.place[owner[at]], index[at]].double()
            rows[at] = weights * self.scalar[owner[at]] * turned_product(self.rotary, along[at], y)
        at = ((index >= n_carried) & (index < n_carried + n_static)).nonzero()[:, 0]
        if len(at):
            y = self.turned_static[self.place[owner[at]], index[at] - n_carried].double()
            rows[at] = (y @ along[at][..., None])[..., 0] * self.scalar[owner[at]]
        at = (index == n_carried + n_static).nonzero()[:, 0]
        if len(at):
            y = self.turned_offset[owner[at]].double()
            rows[at] = (y @ along[at][..., None])[..., 0] * self.offset_scalar[owner[at]]
        a = self.a[of].gather(1, channel)
        rows = rows.view(f, m, self.T)
        strength = rows.gather(2, self.s[of][:, None, None].expand(-1, m, 1))[..., 0]
        return rows * a[..., None] * self.visible[of][:, None], strength

    def _finish(
        self, side: Side, of: Tensor, ready: Tensor, rows: Rows, count: Tensor, component: Tensor, channel: Tensor,
        strength: Tensor, value: Tensor, completeness: Tensor, results: list[SideSignals | None],
    ) -> None:  # fmt: skip
        width = max(1, int(count[ready].max()))
        cut = Rows(rows.logits[ready], rows.visible[ready], rows.key[ready], rows.tau[ready], rows.cap,
                   rows.candidates[ready, :width])  # fmt: skip
        removed = torch.arange(width, device=count.device) < count[ready, None]
        if self.shared.rules.backward:
            removed = put_back(cut, removed)
        taken = drops(cut, removed)
        after = self.attention[of[ready]] - taken.sum(1)
        for n, place in enumerate(ready.tolist()):
            i, keep = int(of[place]), removed[n].nonzero()[:, 0]
            cell = self.firings[i]
            found = zip(
                component[place, keep].tolist(),
                channel[place, keep].tolist(),
                value[place, keep].tolist(),
                taken[n, keep].tolist(),
                strength[place, keep].tolist(),
                strict=True,
            )
            results[i] = SideSignals(
                cell=cell,
                side=side,
                tau=float(self.tau[i]),
                attention=float(self.attention[i]),
                after=float(after[n]),
                removed=tuple(
                    Removed(
                        Signal(cell.head, side, self.up.component(self.layer, c), (k,)), score, drop, (along,)
                    )
                    for c, k, score, drop, along in found
                ),
                completeness=float(completeness[i]),
            )
