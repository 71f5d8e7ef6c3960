"""The smallest sets of signals that cause some attentions: all firings of one layer of one prompt as one batch.

Every candidate is a (component, channel). Its attribution is the product of its row over keys with the firing's
gradient; :mod:`headwise.tracing.sides` says what a row is on either side, and gets all attributions from one d_head
vector per component. Candidates then leave in descending order until the attention falls below the threshold. Rows over
keys are only built for the few candidates that this asks for (docs/method/tracing.md §3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.bases.basis import turned_maps
from headwise.tracing.causes import (
    Best,
    Candidates,
    Quadrature,
    Rows,
    attention,
    default_threshold,
    drops,
    first_below,
    path_gradient,
    put_back,
)
from headwise.tracing.sides import KeySide, QuerySide
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Removed, Side, Signal

if TYPE_CHECKING:
    from headwise.bases.basis import Bases
    from headwise.tracing.through import MLPRules

LEAST_ATTENTION = 0.05
"""A trace asks about no attention below this: 2.5 / keys alone would be 0.004 in a text of 600 tokens."""
FIRINGS = 16
"""Firings of one layer that are searched at a time."""
SHARED = 8
"""Prompts from which on a head's reading is joined with all outputs below it."""
FIRST = 16
"""Candidates tried first; four times as many each time until they suffice."""
Gradient = Callable[..., Tensor]
"""From logits [f, t], visible keys [f, t], the keys asked about [f] and ``cap``: what each logit counts, g [f, t]."""


@dataclass(frozen=True)
class Rules:
    """How a search is done. ``published`` are the authors' rules to the letter (docs/method/tracing.md §6)."""

    rule: Quadrature = "gauss"
    backward: bool = True
    soft_cap: bool = True
    """Whether a model's soft-cap acts in attribution and search (the published tracer leaves it out)."""
    max_signals: int = 1000
    tau: float | None = None
    """A fixed threshold; None: the larger of 2.5 / keys and a quarter of the attention, but at most half of it."""
    published_tau: bool = False
    """Whether the default threshold is min(1, 2.5 / keys), whatever the attention."""
    published_seeds: bool = False
    """Whether a circuit starts where the published rule lets it start."""
    visible_keys: bool = True
    """Whether the threshold counts the keys a row sees (the published tracer has no windows and counts d + 1)."""
    sides: tuple[Side, ...] = ("query", "key")
    mlps: MLPRules | None = None
    """How far MLPs among the writers are followed; None: they are leaves."""
    influence: float = 0.02
    """A trace asks about no firing, and follows no MLP, through which less than this part of the answer passes."""

    @classmethod
    def published(cls, **changes: object) -> Rules:
        return cls(
            **{
                "rule": "trapezoid",
                "backward": False,
                "soft_cap": False,
                "visible_keys": False,
                "published_tau": True,
                "published_seeds": True,
                "influence": 0.0,
                **changes,
            }
        )  # pyright: ignore[reportArgumentType]

    def threshold(self, keys: int, attention: float) -> float:
        """Below what an attention must fall without its cause."""
        if self.tau is not None:
            return self.tau
        if self.published_tau:
            return min(1.0, 2.5 / keys)
        return default_threshold(attention, keys)

    def least(self, keys: int) -> float:
        """The attention from which on a firing that a trace meets is asked about."""
        if self.tau is not None:
            return self.tau
        return min(1.0, 2.5 / keys if self.published_tau else max(2.5 / keys, LEAST_ATTENTION))


@dataclass(frozen=True, eq=False)
class SideSignals:
    """The signals of one side of one firing, in the order of their removal."""

    cell: Cell
    """The firing."""
    side: Side
    """The side that the signals enter."""
    tau: float
    """The threshold that the attention had to fall below."""
    attention: float
    """Its attention, untouched."""
    after: float
    """Attention once all of them are removed."""
    removed: tuple[Removed, ...]
    """Signals of one channel each; their drops sum to ``attention − after``."""
    completeness: float
    """How far all candidates' attributions are from summing to the attention less that of a uniform row."""
    mlps: tuple[tuple[int, Tensor], ...] = field(default=(), repr=False)
    """Layers of the MLPs among the writers and how each is read, as a vector of the stream at the position that is
    read: its product with what the MLP wrote there is the drop that this accounts for. Only where MLPs are followed."""

    @property
    def resolved(self) -> bool:
        """False where no set of allowed size takes the attention below the threshold."""
        return len(self.removed) > 0

    @property
    def signals(self) -> list[Signal]:
        """The signals alone, in the same order."""
        return [one.signal for one in self.removed]

    def by_writer(self) -> list[Removed]:
        """One signal per writer, in the order in which writers lost their first channel; numbers are summed."""
        of: dict[Component, list[Removed]] = {}
        for one in self.removed:
            of.setdefault(one.signal.writer, []).append(one)
        return [_joined(some) for some in of.values()]

    def __len__(self) -> int:
        return len(self.removed)


def _joined(some: Sequence[Removed]) -> Removed:
    """Signals of one writer as one."""
    if len(some) == 1:
        return some[0]
    first = some[0].signal
    channels = tuple(channel for one in some for channel in one.signal.channels)
    return Removed(
        Signal(first.head, first.side, first.writer, channels),
        sum(one.attribution for one in some),
        sum(one.drop for one in some),
        tuple(strength for one in some for strength in one.strengths),
    )


class LayerSearch:
    """Everything about one layer that its firings share, whatever the prompt."""

    def __init__(self, bases: Bases, layer: int, rules: Rules, dtype: torch.dtype) -> None:
        self.model, self.layer, self.rules, self.dtype = bases.model, layer, rules, dtype
        self.basis = bases.layer(layer)
        self.group = bases.model.anatomy.group
        self._remembered: dict[str, tuple[tuple[PromptWrites, tuple[int, ...]], Tensor]] = {}
        self._joined: dict[tuple[Side, int], Tensor] = {}
        self._tokens: Counter[tuple[Side, int]] = Counter()
        self._prompts: Counter[tuple[Side, int]] = Counter()
        """Tokens and number of the prompts in which a head's queries (a key head's keys) will be searched."""

    def expect(self, wanted: Iterable[tuple[PromptWrites, Sequence[Cell]]]) -> None:
        """Say which firings of which prompts will be searched: heads that many prompts share are joined with the
        outputs below them once, instead of reading every written vector in every prompt.
        """
        for up, firings in wanted:
            heads: set[tuple[Side, int]] = {("query", f.head.index) for f in firings}
            keys: set[tuple[Side, int]] = {("key", head // self.group) for _, head in heads}
            for one in heads | keys:
                self._tokens[one] += up.tokens
                self._prompts[one] += 1

    def carried(self, up: PromptWrites, side: Side, heads: Tensor, matrices: Tensor) -> Tensor:
        """:meth:`PromptWrites.carried`, remembered for the next chunk: firings of one head follow one another."""

        def made() -> Tensor:
            _, width, d_model = matrices.shape
            joined = [
                self._join(up, side, head, matrices[place])
                if self._tokens[side, head] * (d_model - width) > d_model * width
                else None
                for place, head in enumerate(heads.tolist())
            ]
            return up.carried(matrices, self.layer, joined)

        return self.remembered(f"carried {side}", up, heads, made)

    def remembered(self, what: str, up: PromptWrites, heads: Tensor, made: Callable[[], Tensor]) -> Tensor:
        """What some heads of a prompt need, made once for the chunks that follow one another."""
        key = up, tuple(heads.tolist())
        if what not in self._remembered or self._remembered[what][0] != key:
            self._remembered.pop(what, None)  # before its successor is made
            self._remembered[what] = key, made()
        return self._remembered[what][1]

    def shares(self, side: Side, heads: Tensor) -> bool:
        """Whether so many prompts share some heads that everything below is read at once."""
        return all(self._prompts[side, head] >= SHARED for head in heads.tolist())

    def _join(self, up: PromptWrites, side: Side, head: int, matrix: Tensor) -> Tensor:
        if (side, head) not in self._joined:
            self._joined[side, head] = up.join(matrix, self.layer)
        return self._joined[side, head]

    def run(self, up: PromptWrites, firings: Sequence[Cell]) -> list[dict[Side, SideSignals]]:
        """Search the firings of one prompt, some at a time."""
        # Firings of one head next to one another share its projections.
        order = sorted(range(len(firings)), key=lambda i: firings[i].head.index)
        results: dict[int, dict[Side, SideSignals]] = {}
        for start in range(0, len(order), FIRINGS):
            chosen = order[start : start + FIRINGS]
            chunk = LayerChunk(self, up, [firings[i] for i in chosen])
            found = [chunk.search(side) for side in self.rules.sides]
            for place, i in enumerate(chosen):
                results[i] = {side: found[n][place] for n, side in enumerate(self.rules.sides)}
        return [results[i] for i in range(len(firings))]


@dataclass(frozen=True, eq=False)
class _Tried:
    """The best candidates of the firings that are still open. o open firings, m candidates each."""

    of: Tensor
    """[o]: which firings of the chunk."""
    rows: Rows
    count: Tensor
    """[o]: how many candidates must leave; 0 where m do not suffice."""
    component: Tensor
    channel: Tensor
    strength: Tensor
    attribution: Tensor
    """[o, m] each."""


class LayerChunk:
    """Some firings of one layer of one prompt. f firings, N components, t keys, w = d_head."""

    def __init__(
        self, shared: LayerSearch, up: PromptWrites, firings: list[Cell], gradient: Gradient | None = None
    ) -> None:
        """``gradient`` gives g from logits, mask and keys; default: that of the attention."""
        self.shared, self.up, self.firings = shared, up, firings
        layer, device = shared.layer, up.device
        self.layer, self.T = layer, up.tokens
        self.heads = torch.tensor([f.head.index for f in firings], device=device)
        self.d = torch.tensor([f.query for f in firings], device=device)
        self.s = torch.tensor([f.key for f in firings], device=device)
        self.kv = self.heads // shared.group
        self.scale = float(up.scale[layer])
        self.cap = up.cap if shared.rules.soft_cap else None
        self.rotary = up.stream.rotary(layer, up.prompt)
        basis = shared.basis
        self.query_units, self.key_units = (
            units.to(device)[self.heads] for units in (basis.query_units, basis.key_units)
        )
        self._set_maps(basis.query_map.to(device)[self.heads], basis.key_map.to(device)[self.heads])
        self.q = q = up.q[layer, self.heads, self.d].double()
        self.k = k = up.k[layer, self.kv].double()
        self.visible = up.visible(layer, self.d)
        self.a = self.scale * (q[:, None] @ self.query_map)[:, 0]
        self.b = k @ self.key_map.mT
        self.logits = (k @ q[..., None])[..., 0] * self.scale * self.visible
        gradient = gradient or partial(path_gradient, rule=shared.rules.rule)
        self.g = gradient(self.logits, self.visible, self.s, cap=self.cap)
        self.pattern = attention(self.logits, self.visible, self.cap)
        self.attention = self.pattern.gather(1, self.s[:, None])[:, 0]
        self.n_visible = self.visible.sum(1)
        keys = self.n_visible if shared.rules.visible_keys else self.d + 1
        self.tau = torch.tensor(
            [
                shared.rules.threshold(n, a)
                for n, a in zip(keys.tolist(), self.attention.tolist(), strict=True)
            ],
            dtype=torch.float64,
            device=device,
        )

    def _set_maps(self, query_map: Tensor, key_map: Tensor) -> None:
        """G_d and G_s of each firing for rotated vectors, and the map that reads a query before its rotation."""
        self.query_map, self.key_map, self.query_reading = query_map, key_map, query_map
        if self.rotary is None:
            return
        here = self.rotary.at_positions(self.d)
        if self.shared.basis.name.frame == "query":
            self.query_map, self.key_map = turned_maps(here, query_map, key_map)
        else:
            # [1, channels, f, w] turned back at each firing's own position
            turned = here.transposed(query_map.permute(2, 0, 1)[None])
            self.query_reading = turned[0].permute(1, 2, 0)

    def search(self, which: Side) -> list[SideSignals]:
        """The signals of one side of every firing."""
        side = QuerySide(self) if which == "query" else KeySide(self)
        candidates = Candidates(self, side)
        completeness = candidates.totals - (self.attention - 1 / self.n_visible.double())
        results: dict[int, SideSignals] = {}
        limit = min(self.shared.rules.max_signals, candidates.number)
        m, open_ = min(FIRST, limit), torch.arange(len(self.firings), device=self.d.device)
        while len(open_):
            tried = self._try(side, open_, candidates.top(open_, m))
            done = (tried.count > 0) | (m == limit)
            ready = done.nonzero()[:, 0]
            if len(ready):
                results.update(self._finished(which, tried, ready, completeness))
            open_, m = open_[~done], min(limit, m * 4)
        found = [results[i] for i in range(len(self.firings))]
        return found if self.shared.rules.mlps is None else self._with_mlps(side, found)

    def _with_mlps(self, side: QuerySide | KeySide, found: list[SideSignals]) -> list[SideSignals]:
        """The same signals, with how each firing reads the MLPs among their writers."""
        joined = [
            (i, one)
            for i, signals in enumerate(found)
            for one in signals.by_writer()
            if one.signal.writer.kind == "mlp" and one.attribution > 0 and one.drop > 0
        ]
        if not joined:
            return found
        of = torch.tensor([i for i, _ in joined], device=self.d.device)
        channels = torch.zeros(len(joined), self.query_map.shape[-1], dtype=torch.float64, device=of.device)
        for place, (_, one) in enumerate(joined):
            channels[place, list(one.signal.channels)] = one.drop / one.attribution
        vectors = side.stream_readings(of, channels)
        mlps: dict[int, list[tuple[int, Tensor]]] = {}
        for (i, one), vector in zip(joined, vectors, strict=True):
            mlps.setdefault(i, []).append((one.signal.writer.layer, vector))
        return [replace(signals, mlps=tuple(mlps.get(i, ()))) for i, signals in enumerate(found)]

    def _try(self, side: QuerySide | KeySide, of: Tensor, best: Best) -> _Tried:
        """Take the best candidates of some firings away, one after the other."""
        value, component, channel = best
        candidates, strength = side.rows(of, component, channel)
        rows = Rows(self.logits[of], self.visible[of], self.s[of], self.tau[of], self.cap, candidates)
        return _Tried(of, rows, first_below(rows), component, channel, strength, value)

    def _finished(
        self, side: Side, tried: _Tried, ready: Tensor, completeness: Tensor
    ) -> dict[int, SideSignals]:
        """The results of those firings of ``tried`` that are ``ready``."""
        count = tried.count[ready]
        width = max(1, int(count.max()))
        cut = tried.rows.chosen(ready, width)
        removed = torch.arange(width, device=count.device) < count[:, None]
        if self.shared.rules.backward:
            removed = put_back(cut, removed)
        taken = drops(cut, removed)
        after = self.attention[tried.of[ready]] - taken.sum(1)
        of = tried.of[ready]
        # As lists at once: single elements of tensors are slow to get at.
        columns = (tried.component, tried.channel, tried.attribution, tried.strength)
        numbers = zip(
            of.tolist(),
            removed.tolist(),
            taken.tolist(),
            *(column[ready, :width].tolist() for column in columns),
            *(x[of].tolist() for x in (self.tau, self.attention, completeness)),
            after.tolist(),
            strict=True,
        )
        results = {}
        for i, leaves, drop, component, channel, score, along, tau, whole, off, left in numbers:
            cell = self.firings[i]
            results[i] = SideSignals(
                cell=cell,
                side=side,
                tau=tau,
                attention=whole,
                after=left,
                removed=tuple(
                    Removed(
                        Signal(cell.head, side, self.up.component(self.layer, component[n]), (channel[n],)),
                        score[n],
                        drop[n],
                        (along[n],),
                    )
                    for n in range(width)
                    if leaves[n]
                ),
                completeness=off,
            )
        return results
