"""The control signals of parked attention: what the tracer removes at a sink, as one vector per side.

A firing's control signal on a side is the sum of its removed signals: ``strengths`` along the unit directions of the
head's channels, as the head reads them (norm frozen, RoPE applied). Two such vectors of one head are compared by their
cosine. To compare heads, the rotation is turned back and the vector put into the stream, where all heads read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from headwise.bases.basis import Bases, Basis
from headwise.bases.singular import one_thread
from headwise.claims import claim, claims, p_value
from headwise.intervals import estimated, numbered, resampled
from headwise.model.batch import by_length
from headwise.model.reading import Rotary
from headwise.model.stream import split
from headwise.progress import Tick
from headwise.randomness import keyed
from headwise.scale.stages import Stages, ValuesJob, batched
from headwise.scale.work import Chunk
from headwise.sinks.find import BATCH, Parking, away
from headwise.tracing.search import LayerSearch, Rules, SideSignals
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Claim, Estimate, Head, Side

if TYPE_CHECKING:
    from headwise.model.model import Model

Kind = Literal["sink", "other", "frequent"]
KINDS: tuple[Kind, ...] = ("sink", "other", "frequent")
SIDES: tuple[Side, ...] = ("query", "key")
CONTROLLED = 0.5
"""A head is controlled on a side where its signals' mean distance over prompts is below this (the published rule)."""
NULL = "the same strengths in random channels, with random signs"
GROUP = "all parked heads and both sides"
MIN_SIGNALS = 4
"""Prompts a side needs before agreement is spoken of."""
TRACED_TOKENS = 160
"""Tokens traced in one batch of prompts, which is kept as a whole."""
SHUFFLES = 199
"""Draws of that null."""


def sink_bases(model: Model) -> Bases:
    """The singular channels in the absolute frame. A sink is nearly always the first token, whose keys are not rotated
    there: seen from each query they would turn with its distance, although nothing about the sink has changed."""
    return Bases.of(model, frame="absolute")


def sink_rules() -> Rules:
    """The published threshold: what is compared over prompts is all that parks an attention, not half of it."""
    return Rules(published_tau=True)


@dataclass(frozen=True, eq=False)
class Parked:
    """One traced firing. ``read`` are its control signals as the head multiplies them, ``written`` with the rotation
    turned back: [d_head] numbers along u_k (query side) or v_k (key side)."""

    prompt: int
    """The prompt, by number."""
    cell: Cell
    """The firing."""
    kind: Kind
    """Whether the token it reads is a ``sink``, any ``other`` one, or a ``frequent`` one at the head's own distance."""
    signals: dict[Side, SideSignals]
    """Side → the smallest set of signals that causes the attention."""
    read: dict[Side, Tensor]
    """Side → [d_head]: their sum along the head's channels, as the head multiplies it."""
    written: dict[Side, Tensor]
    """Side → [d_head]: the same with the rotation turned back."""

    @property
    def head(self) -> Head:
        """The head that parks."""
        return self.cell.head


@dataclass(frozen=True)
class _Firing:
    """A cell that may be traced."""

    prompt: int
    kind: Kind
    cell: Cell


def trace_parked(
    model: Model,
    parking: Parking,
    prompts: Sequence[int],
    heads: Sequence[Head],
    *,
    per_head: Mapping[Kind, int],
    least: float = 0.0,
    seed: int = 0,
    work: Stages | None = None,
) -> list[Parked]:
    """Trace one firing of each kind of each head in each prompt on both sides, up to ``per_head`` of a head.

    A firing of kind sink is from a random row away from a sink, to it, with attention of at least ``least``; other: to
    a random token that is no sink; frequent: to that token, as many positions back, to which the head attends in most
    prompts. All must be above the tracer's own threshold. A head's firings are taken from the shortest prompts on: all
    are chosen before the first is traced, so that it does not matter who traces what.
    """
    run = work or Stages.here(model)
    token_ids = [parking.token_ids[i] for i in prompts]
    batches = [[prompts[i] for i in part] for part in by_length(token_ids, BATCH, TRACED_TOKENS)]
    traceable = tuple(head for head in heads if head.layer > 0)
    often = Counter(token for i in prompts for token in set(parking.token_ids[i]))
    frequent = tuple(sorted(token for token, n in often.items() if n >= MIN_SIGNALS))
    choose = _ChooseJob(traceable, tuple(per_head), least, seed, frequent)
    searched = [[(i, parking.token_ids[i], parking.sinks[i]) for i in batch] for batch in batches]
    chosen: dict[int, list[_Firing]] = {prompt: [] for prompt in prompts}
    taken: Counter[tuple[Kind, Head]] = Counter()
    found = [firing for part in run("firings", choose, batched(searched)) for firing in part]
    one_each = [firing for firing in found if firing.kind != "frequent"]
    for firing in one_each + _at_fixed_distance([f for f in found if f.kind == "frequent"], parking):
        if taken[firing.kind, firing.cell.head] < per_head[firing.kind]:
            taken[firing.kind, firing.cell.head] += 1
            chosen[firing.prompt].append(firing)
    wanted = [[(parking.token_ids[i], chosen[i]) for i in batch] for batch in batches]
    traced = [one for part in run("signals", _ParkedJob(), batched(wanted)) for one in part]
    return sorted(traced, key=lambda one: (one.prompt, one.cell, one.kind))


def _at_fixed_distance(firings: Sequence[_Firing], parking: Parking) -> list[_Firing]:
    """Of each head, the firings on one token at one distance: those that most prompts have, the first in each prompt.

    They are counted before anything is traced, so that how well their signals agree has no say in the choice.
    """
    by_head: dict[Head, dict[tuple[int, int], dict[int, _Firing]]] = {}
    for one in firings:
        cell = one.cell
        what = cell.query - cell.key, parking.token_ids[one.prompt][cell.key]
        by_head.setdefault(cell.head, {}).setdefault(what, {}).setdefault(one.prompt, one)
    made: list[_Firing] = []
    for groups in by_head.values():
        most = min(groups, key=lambda what: (-len(groups[what]), what))
        if len(groups[most]) >= MIN_SIGNALS:
            made += groups[most].values()
    return made


@dataclass(frozen=True)
class _ChooseJob(ValuesJob):
    """Chooses one firing of each kind of each head, in prompts given by number, token ids and sinks.

    Of firings on ``frequent`` tokens it gives all: which of them are at the head's distance, all prompts decide.
    """

    kind: ClassVar = _Firing
    heads: tuple[Head, ...]
    kinds: tuple[Kind, ...]
    least: float
    seed: int
    frequent: tuple[int, ...]

    def make(
        self, model: Model, chunk: Chunk[tuple[int, list[int], tuple[int, ...]]], tick: Tick, /
    ) -> list[_Firing]:
        made = []
        with torch.no_grad(), one_thread():
            stream = split(model, [ids for _, ids, _ in chunk.items])
            for place, (prompt, ids, sinks) in enumerate(chunk.items):
                up = PromptWrites(stream, place)
                is_frequent = torch.isin(torch.tensor(ids), torch.tensor(self.frequent, dtype=torch.long))
                for head in self.heads:
                    for kind, cells in self.candidates(up, head, sinks, is_frequent).items():
                        if cells and kind != "frequent":
                            generator = keyed(self.seed, "firing", kind, prompt, str(head))
                            cells = [cells[int(torch.randint(len(cells), (1,), generator=generator))]]
                        made += [_Firing(prompt, kind, Cell(head, query, key)) for query, key in cells]
        return made

    def candidates(
        self, up: PromptWrites, head: Head, sinks: Sequence[int], is_frequent: Tensor
    ) -> dict[Kind, list[tuple[int, int]]]:
        """The cells of a head's pattern that are of each kind."""
        call, rules, t = up.stream.call_of(head, up.prompt), sink_rules(), up.tokens
        is_sink = torch.zeros(t, dtype=torch.bool)
        is_sink[list(sinks)] = True
        found: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in self.kinds}
        for rows, patterns, seen in call.in_rows():
            pattern, visible = patterns[0, 0].double().cpu(), seen[0].cpu()
            tau = torch.tensor([rules.least(int(n)) for n in visible.sum(1).tolist()], dtype=torch.float64)
            strong = visible & (pattern >= tau[:, None])
            strong[0] &= rows.start > 0
            at = range(rows.start, rows.stop)
            wanted: dict[Kind, Tensor] = {
                "sink": strong & is_sink & away(at, range(t)) & (pattern >= self.least),
                "other": strong & ~is_sink,
                # From its own row a token would be its own query, which is then as constant as the key.
                "frequent": strong & ~is_sink & is_frequent & (torch.tensor(at)[:, None] > torch.arange(t)),
            }
            for kind, cells in found.items():
                cells += [(rows.start + row, key) for row, key in wanted[kind].nonzero().tolist()]
        return found


@dataclass(frozen=True)
class _ParkedJob(ValuesJob):
    """Traces the firings of prompts, given as token ids."""

    kind: ClassVar = Parked

    def make(
        self, model: Model, chunk: Chunk[tuple[list[int], list[_Firing]]], tick: Tick, /
    ) -> list[Parked]:
        made: list[Parked] = []
        with torch.no_grad(), one_thread():
            stream = split(model, [ids for ids, _ in chunk.items])
            ups = [PromptWrites(stream, place, sink_bases(model)) for place in range(len(chunk))]
            for layer in sorted({one.cell.head.layer for _, firings in chunk.items for one in firings}):
                search = LayerSearch(ups[0].bases, layer, sink_rules(), ups[0].dtype)
                for up, (_, firings) in zip(ups, chunk.items, strict=True):
                    for kind in KINDS:
                        here = [one for one in firings if one.kind == kind and one.cell.head.layer == layer]
                        found = search.run(up, [one.cell for one in here]) if here else []
                        made += [
                            _parked(up, search.basis, one, sides)
                            for one, sides in zip(here, found, strict=True)
                        ]
        return made


def _parked(up: PromptWrites, channels: Basis, firing: _Firing, sides: dict[Side, SideSignals]) -> Parked:
    read: dict[Side, Tensor] = {
        side: control_signal(signals, up) for side, signals in sides.items() if signals.resolved
    }
    written: dict[Side, Tensor] = {
        side: turned_back(up, channels, firing.cell, side, vector) for side, vector in read.items()
    }
    return Parked(firing.prompt, firing.cell, firing.kind, sides, read, written)


def control_signal(signals: SideSignals, up: PromptWrites) -> Tensor:
    """The removed signals of a side, summed along the head's channels: [d_head]."""
    total = torch.zeros(up.stream.model.d_head, dtype=torch.float64)
    channels = [channel for one in signals.removed for channel in one.signal.channels]
    strengths = [strength for one in signals.removed for strength in one.strengths]
    return total.index_add_(0, torch.tensor(channels), torch.tensor(strengths, dtype=torch.float64))


def turned_back(up: PromptWrites, channels: Basis, cell: Cell, side: Side, read: Tensor) -> Tensor:
    """A control signal with RoPE undone at its own position: what was in the stream along u_k or v_k."""
    rotary = up.stream.rotary(cell.head.layer, up.prompt)
    if rotary is None:
        return read
    here = rotary.at_positions([cell.at(side)])
    here = Rotary(here.cos.double().cpu(), here.sin.double().cpu())
    vector = head_space(channels, cell.head.index, side, read)
    return channel_space(channels, cell.head.index, side, here.undo(vector[None, None, None])[0, 0, 0])


def head_space(channels: Basis, head: int, side: Side, strengths: Tensor) -> Tensor:
    """The query or key vector [d_head] that has these strengths along the head's channels."""
    if side == "query":
        return (strengths * channels.energies[head]) @ channels.key_map[head]
    return channels.query_map[head] @ strengths


def channel_space(channels: Basis, head: int, side: Side, vector: Tensor) -> Tensor:
    """The strengths along the head's channels of a query or key vector; null channels have none."""
    if side == "key":
        return channels.key_map[head] @ vector
    sigma = channels.energies[head]
    real = sigma > 0
    return (vector @ channels.query_map[head]) * real / torch.where(real, sigma, torch.ones_like(sigma))


# --- agreement ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """How alike the control signals of one head and side are over prompts."""

    firings: int
    """Firings on sinks that were compared, one per prompt."""
    distance: Estimate
    """Mean cosine distance between the signals of two prompts: 0 the same, 1 unrelated."""
    shuffled: float
    """The same for signals of the same sizes in random channels (mean over draws)."""
    shuffled_low: float
    """2.5th percentile of those draws."""
    others: float | None
    """The same for firings of this head on tokens that are no sinks; None with too few."""
    others_firings: int
    """Firings on other tokens that were compared."""
    signals: float
    """Median number of signals a firing needed."""
    claim: Claim | None = None
    """That they agree more than the same strengths in random channels do; None in runs made before that was tested.
    Whether they agree because the token is a sink is another claim (:mod:`headwise.sinks.matched`)."""

    @property
    def controlled(self) -> bool:
        """Whether the distance is below 0.5: the published cut-off, which describes and claims nothing."""
        return self.distance.mean < CONTROLLED


def cosine_distance(vectors: Tensor, weights: Tensor | None = None) -> Tensor:
    """Mean cosine distance between different vectors [n, d]; with ``weights`` [draws, n] one mean a resample.

    A vector drawn twice is not compared with itself.

    >>> cosine_distance(torch.eye(4).double()).item(), cosine_distance(torch.eye(4).double()[[0, 0]]).item()
    (1.0, 0.0)
    """
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    gram = unit @ unit.mT
    gram.fill_diagonal_(0.0)
    n = len(vectors)
    w = torch.ones(1, n, dtype=vectors.dtype) if weights is None else weights.to(vectors)
    pairs = w.sum(-1).square() - w.square().sum(-1)
    result = 1 - torch.einsum("bi,ij,bj->b", w, gram, w) / pairs
    return result[0] if weights is None else result


def agreement(
    vectors: Tensor,
    others: Tensor,
    signals: Sequence[int],
    seed: int,
    *labels: object,
    clusters: Tensor | None = None,
) -> Agreement:
    """Agreement of control signals [n, d_head], one per prompt, beside both of its controls. Those of one
    cluster [n] are resampled, and put into other channels, together."""
    n, (which, count) = len(vectors), numbered(clusters, len(vectors))
    resamples = cosine_distance(vectors, resampled(count, seed, *labels)[:, which])
    found = estimated(cosine_distance(vectors), resamples, n, count)
    unit = torch.nn.functional.normalize(_shuffled(vectors, which, keyed(seed, "shuffle", *labels)), dim=-1)
    # Σ over pairs of different prompts, twice
    both = unit.sum(1).square().sum(-1) - unit.square().sum((1, 2))
    draws = 1 - both / (n * (n - 1))
    return Agreement(
        firings=n,
        distance=replace(found, low=max(0.0, found.low)),
        shuffled=float(draws.mean()),
        shuffled_low=float(draws.quantile(0.025)),
        others=float(cosine_distance(others)) if len(others) >= MIN_SIGNALS else None,
        others_firings=len(others),
        signals=float(torch.tensor(signals, dtype=torch.float64).median()),
        claim=claim(p_value(-found.mean, -draws), null=NULL, draws=len(draws)),
    )


def _shuffled(vectors: Tensor, which: Tensor, generator: torch.Generator) -> Tensor:
    """The same numbers in random channels, with random signs, the same for each cluster: [draws, n, d]."""
    size = (SHUFFLES, int(which.max()) + 1, vectors.shape[1])
    order = torch.rand(size, generator=generator).argsort(-1)
    sign = torch.randint(2, size, generator=generator) * 2 - 1
    return vectors.expand(SHUFFLES, -1, -1).gather(-1, order[:, which]) * sign[:, which]


def agreements(
    parking: Parking, traced: Sequence[Parked], others: Sequence[Parked], seed: int
) -> dict[tuple[Head, Side], Agreement]:
    """Agreement of every head and side that has signals of enough prompts."""
    made = {}
    for side in SIDES:
        here, there = _by_head(traced, side), _by_head(others, side)
        for head, found in sorted(here.items()):
            if len(found) < MIN_SIGNALS:
                continue
            width = len(found[0].read[side])
            compared = [one.read[side] for one in there.get(head, [])]
            made[head, side] = agreement(
                torch.stack([one.read[side] for one in found]),
                torch.stack(compared) if compared else torch.zeros(0, width, dtype=torch.float64),
                [len(one.signals[side]) for one in found],
                seed,
                str(head),
                side,
                clusters=parking.cluster_of([one.prompt for one in found]),
            )
    judged = claims(
        [one.claim.p for one in made.values() if one.claim], null=NULL, draws=SHUFFLES, group=GROUP
    )
    return {where: replace(one, claim=said) for (where, one), said in zip(made.items(), judged, strict=True)}


def _by_head(traced: Sequence[Parked], side: Side) -> dict[Head, list[Parked]]:
    made: dict[Head, list[Parked]] = {}
    for one in traced:
        if side in one.read:
            made.setdefault(one.head, []).append(one)
    return made
