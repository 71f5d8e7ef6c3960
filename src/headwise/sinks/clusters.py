"""Do heads share their control signals, and who writes them?

Two views. *Clusters*: each controlled head's mean signal, put into the stream, average linkage on cosine distance, cut
at the distance that counts as agreement inside a head. A head reads d_head directions only, so two heads that read one
and the same vector can still hold different parts of it; therefore also *sources*: heads grouped by the component that
writes most of their signal, whether that component writes the same vector in every prompt, and whether each head's
signal is its reading of that vector.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor
from torch.nn.functional import normalize

from headwise.bases.basis import directions
from headwise.bases.singular import one_thread
from headwise.model.batch import by_length
from headwise.model.stream import split
from headwise.progress import Tick
from headwise.scale.stages import Stages, ValuesJob, batched
from headwise.scale.work import Chunk
from headwise.sinks.find import BATCH, Parking
from headwise.sinks.signals import (
    CONTROLLED,
    SIDES,
    TRACED_TOKENS,
    Agreement,
    Parked,
    cosine_distance,
    sink_bases,
)
from headwise.tracing.vectors import component_writes
from headwise.tracing.writes import PromptWrites
from headwise.types import Component, Head, Side

if TYPE_CHECKING:
    from headwise.model.model import Model


PLURAL: dict[Side, str] = {"query": "queries", "key": "keys"}


@dataclass(frozen=True)
class SinkWriter:
    """A component and its share of the attention that the signals hold."""

    component: str
    """The component's name, such as ``MLP11``."""
    share: float
    """Its share, from 0 to 1."""


@dataclass(frozen=True, eq=False)
class Cluster:
    """Heads whose mean control signals point the same way in the stream."""

    side: Side
    """``query`` or ``key``."""
    heads: tuple[Head, ...]
    """Its heads."""
    distance: float
    """Mean cosine distance between its heads; 0 for a single head."""
    read_by: int
    """Different (key) heads among them: query heads of one group share their key, and so most of a key signal."""
    writers: tuple[SinkWriter, ...]
    """Who writes their signals, the largest share first."""
    direction: Tensor
    """[d_model], unit: the mean of its heads' signals."""


@dataclass(frozen=True, eq=False)
class Source:
    """Heads whose control signal is mostly written by one component."""

    side: Side
    """``query`` or ``key``."""
    component: str
    """The component's name, such as ``MLP11``."""
    heads: tuple[Head, ...]
    """The heads that mostly read it."""
    share: float
    """What the component writes of these heads' signals (by attention)."""
    distance: float
    """Mean cosine distance of what it writes, over prompts."""
    reading: float
    """Mean cosine between each head's signal and its reading of the component's mean write."""
    seen: float
    """Mean length of the part of that (unit) write that a head reads."""
    apart: float
    """Mean cosine distance between two heads' signals in the stream."""
    readings_apart: float
    """The same between their readings of the one write: heads that read one vector are this far apart."""
    direction: Tensor
    """[d_model], unit: the mean write."""


@dataclass(frozen=True, eq=False)
class Sharing:
    """One side's clusters and sources."""

    side: Side
    """``query`` or ``key``."""
    heads: tuple[Head, ...]
    """The controlled heads on this side."""
    distances: Tensor
    """[heads, heads] cosine distances of mean signals in the stream."""
    clusters: tuple[Cluster, ...]
    """Heads by the direction of their signals, largest cluster first."""
    silhouette: float | None
    """Of the clusters; None if all heads are in one, or each in its own."""
    sources: tuple[Source, ...]
    """Heads by the component that writes most of their signal."""

    @property
    def mean_distance(self) -> float | None:
        """Mean distance between two heads; None for fewer than two."""
        n = len(self.heads)
        return None if n < 2 else float(self.distances.sum() / (n * (n - 1)))


def writers_of(traced: Sequence[Parked], side: Side) -> list[SinkWriter]:
    """Shares of the attention that the removed signals took, by writing component, largest first."""
    taken: Counter[str] = Counter()
    for one in traced:
        for removed in one.signals[side].removed:
            taken[removed.signal.writer.name] += removed.drop  # pyright: ignore[reportArgumentType]
    total = sum(taken.values()) or 1.0
    return [
        SinkWriter(name, taken[name] / total) for name in sorted(taken, key=lambda name: (-taken[name], name))
    ]


def share_signals(
    model: Model,
    parking: Parking,
    traced: Sequence[Parked],
    found: dict[tuple[Head, Side], Agreement],
    work: Stages | None = None,
) -> list[Sharing]:
    """Clusters and sources of the controlled heads, side by side."""
    made, run = [], work or Stages.here(model)
    for side in SIDES:
        heads = tuple(sorted(head for (head, one), a in found.items() if one == side and a.controlled))
        firings = {
            head: [one for one in traced if one.head == head and side in one.written] for head in heads
        }
        means = {head: _mean_direction([one.written[side] for one in firings[head]]) for head in heads}
        directions = {head: _directions(model, head, side) for head in heads}
        vectors = [directions[head] @ means[head] for head in heads]
        stacked = torch.stack(vectors) if vectors else torch.zeros(0, model.d_model, dtype=torch.float64)
        unit = normalize(stacked, dim=-1)
        distances = (1 - unit @ unit.mT).clamp(min=0).fill_diagonal_(0.0)
        labels = cut(distances)
        clusters = []
        for label in sorted(set(labels)):
            places = [i for i, one in enumerate(labels) if one == label]
            members = tuple(heads[i] for i in places)
            writers = writers_of([one for head in members for one in firings[head]], side)
            distance = float(cosine_distance(unit[places])) if len(places) > 1 else 0.0
            direction = normalize(unit[places].mean(0), dim=0)
            read_by = len({_reader(model, head, side) for head in members})
            clusters.append(Cluster(side, members, distance, read_by, tuple(writers), direction))
        clusters.sort(key=lambda c: (-len(c.heads), c.heads))
        sources = _sources(run, parking, side, firings, means, directions)
        made.append(
            Sharing(side, heads, distances, tuple(clusters), _silhouette(distances, labels), tuple(sources))
        )
    return made


def cut(distances: Tensor, at: float = CONTROLLED) -> list[int]:
    """Average linkage, cut at a distance: a label for each row.

    >>> cut(torch.tensor([[0.0, 0.1, 0.9], [0.1, 0.0, 0.8], [0.9, 0.8, 0.0]]))
    [1, 1, 2]
    """
    n = len(distances)
    if n < 2:
        return [1] * n
    tree = linkage(squareform(distances.numpy(), checks=False), "average")
    return fcluster(tree, at, "distance").tolist()


def _silhouette(distances: Tensor, labels: Sequence[int]) -> float | None:
    if not 2 <= len(set(labels)) < len(labels):
        return None
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(distances.numpy(), list(labels), metric="precomputed"))


def _reader(model: Model, head: Head, side: Side) -> tuple[int, int]:
    return head.layer, head.index if side == "query" else head.index // model.anatomy.group


def _mean_direction(vectors: Sequence[Tensor]) -> Tensor:
    """The mean of unit vectors, unit again: a loud prompt counts no more than a quiet one."""
    return normalize(normalize(torch.stack(list(vectors)), dim=-1).mean(0), dim=0)


def _directions(model: Model, head: Head, side: Side) -> Tensor:
    return directions(model, head, sink_bases(model).head(head), side)


# --- sources ---------------------------------------------------------------------------------------------------------


def _sources(
    run: Stages,
    parking: Parking,
    side: Side,
    firings: dict[Head, list[Parked]],
    means: dict[Head, Tensor],
    directions: dict[Head, Tensor],
) -> list[Source]:
    groups: dict[str, list[Head]] = {}
    components: dict[str, Component] = {}
    for head, found in firings.items():
        top = writers_of(found, side)[0].component
        groups.setdefault(top, []).append(head)
        for one in found:
            for signal in one.signals[side].signals:
                components.setdefault(signal.writer.name, replace(signal.writer, source=-1))
    groups = {name: heads for name, heads in groups.items() if components[name].kind != "offset"}
    places = {
        name: sorted({_place(one, side) for head in heads for one in firings[head]})
        for name, heads in groups.items()
    }
    writes = _writes(run, parking, side, places, components)
    made = []
    for name, heads in groups.items():
        by_prompt = writes[name]
        direction = normalize(by_prompt.mean(0), dim=0)
        reads = {head: directions[head].mT @ direction for head in heads}
        mine = [one for head in heads for one in firings[head]]
        share = next(w.share for w in writers_of(mine, side) if w.component == name)
        cosines = [float(normalize(reads[head], dim=0) @ means[head]) for head in heads]
        seen = [float(reads[head].norm()) for head in heads]
        distance = float(cosine_distance(by_prompt)) if len(by_prompt) > 1 else float("nan")
        made.append(
            Source(
                side,
                name,
                tuple(heads),
                share,
                distance,
                sum(cosines) / len(heads),
                sum(seen) / len(heads),
                _apart([directions[head] @ means[head] for head in heads]),
                _apart([directions[head] @ reads[head] for head in heads]),
                direction,
            )
        )
    return sorted(made, key=lambda s: (-len(s.heads), s.component))


def _apart(vectors: Sequence[Tensor]) -> float:
    return float(cosine_distance(torch.stack(list(vectors)))) if len(vectors) > 1 else 0.0


def _place(one: Parked, side: Side) -> tuple[int, int]:
    return one.prompt, one.cell.at(side)


def _writes(
    run: Stages,
    parking: Parking,
    side: Side,
    places: dict[str, list[tuple[int, int]]],
    components: dict[str, Component],
) -> dict[str, Tensor]:
    """Per component, what it wrote where its signals were read: unit vectors [prompts, d_model], a mean each."""
    prompts = sorted({prompt for listed in places.values() for prompt, _ in listed})
    wanted: dict[int, dict[str, list[int]]] = {prompt: {} for prompt in prompts}
    for name, listed in places.items():
        for prompt, position in listed:
            wanted[prompt].setdefault(name, []).append(position)
    token_ids = [parking.token_ids[i] for i in prompts]
    batches = [
        [(token_ids[i], wanted[prompts[i]]) for i in part]
        for part in by_length(token_ids, BATCH, TRACED_TOKENS)
    ]
    job = _WriteJob({name: components[name] for name in places})
    found: dict[str, list[Tensor]] = {name: [] for name in places}
    for part in run(f"sources of {PLURAL[side]}", job, batched(batches)):
        for one in part:
            found[one.component].append(one.direction)
    return {name: torch.stack(vectors) for name, vectors in found.items()}


@dataclass(frozen=True, eq=False)
class _Write:
    """The mean direction that a component wrote in one prompt, where its signals were read."""

    component: str
    direction: Tensor


@dataclass(frozen=True)
class _WriteJob(ValuesJob):
    """What components wrote in prompts, given as token ids, at some positions by component."""

    kind: ClassVar = _Write
    components: dict[str, Component]

    def make(
        self, model: Model, chunk: Chunk[tuple[list[int], dict[str, list[int]]]], tick: Tick, /
    ) -> list[_Write]:
        made = []
        with torch.no_grad(), one_thread():
            stream = split(model, [ids for ids, _ in chunk.items])
            for place, (_, wanted) in enumerate(chunk.items):
                up = PromptWrites(stream, place)
                for name, at in wanted.items():
                    write = component_writes(up, self.components[name])[at].cpu()
                    made.append(_Write(name, normalize(normalize(write, dim=-1).mean(0), dim=0)))
        return made
