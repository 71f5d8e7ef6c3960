"""A family's circuits as one: edges without token positions, pruned to those that enough of its circuits hold.

An edge between two components counts once per circuit, however many firings it has there. Edges from embeddings,
biases and offsets are left out, for every circuit has them; what no longer leads to the answer goes, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headwise.circuits.circuit import Edge, Node
from headwise.circuits.reach import closure
from headwise.families.incidence import LEFT_OUT
from headwise.families.result import CORE
from headwise.known_names import KnownName, KnownNames, signal_id, writer_id
from headwise.types import Component, Head, Signal

if TYPE_CHECKING:
    from headwise.families.result import FamiliesResult, Family
    from headwise.survey.records import CircuitRun

ANSWER = "answer"


class Written(NamedTuple):
    """One edge of one circuit, whatever its token positions."""

    prompt: int
    """The number of the prompt."""
    source: str
    """Who wrote."""
    target: str
    """The head that read, or the answer."""
    side: str
    """Of the head."""
    weight: float
    """The attention that its removal took; into the answer, its share of the answer."""
    signal: str | None
    """The signal as names are looked up by it; None into the answer."""


@dataclass(frozen=True, kw_only=True)
class FamilyEdge:
    """An edge of a family's aggregated circuit."""

    source: str
    """The component that writes."""
    target: str
    """The head that reads, or ``answer``."""
    side: str
    """The side of the head that it enters."""
    share: float
    """The share of the family's circuits that hold it."""
    weight: float
    """What its removal takes, per circuit of the family; into the answer, its share of the answer."""
    signals: tuple[str, ...]
    """The signals that it is in single circuits, the commonest first."""
    names: tuple[str, ...] = ()
    """Of these and of the whole writer, what has been asked for a name, those with words first."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FamilyCircuit:
    """The circuits of one family as one."""

    family: Family
    """Which family it is."""
    edges: tuple[FamilyEdge, ...]
    """The edges that are left, heaviest first."""
    pruned: float
    """The least share of circuits that an edge has to be in."""
    all_edges: int
    """How many there were before."""
    names: KnownNames | None = None
    """The names of its edges and heads, where a run of names was given."""

    @property
    def components(self) -> list[str]:
        """Everything that an edge begins or ends at."""
        return list(dict.fromkeys(end for e in self.edges for end in (e.source, e.target)))

    def to_json(self) -> dict[str, Any]:
        """One entry of a document."""
        edges = [
            {
                "source": e.source,
                "target": e.target,
                "side": e.side,
                "share": e.share,
                "weight": e.weight,
                "signals": list(e.signals[:3]),
                "names": list(e.names),
            }
            for e in self.edges
        ]
        return {"family": self.family.family, "pruned": self.pruned, "edges": edges}


def written(run: CircuitRun) -> list[Written]:
    """Every edge of every circuit of a run that two circuits can share."""
    columns = ("prompt", "source", "source_kind", "target", "side", "weight", "channels", "strengths")
    rows = zip(*(run.edges.column(name).to_pylist() for name in columns), strict=True)
    made = []
    for prompt, source, kind, target, side, weight, channels, strengths in rows:
        if kind in LEFT_OUT:
            continue
        signal = None
        if target != ANSWER:
            what = Signal(Head.parse(target), side, Component.parse(source), tuple(channels))
            signal = signal_id(what, strengths)
        made.append(Written(prompt, source, target, side, weight, signal))
    return made


def family_circuits(
    found: FamiliesResult, names: KnownNames | None = None, *, pruned: float = CORE
) -> list[FamilyCircuit]:
    """The aggregated, pruned circuit of every family."""
    edges = written(found.run)
    return [_family(found, family, edges, names, pruned) for family in found.families]


def _family(
    found: FamiliesResult, family: Family, edges: Iterable[Written], names: KnownNames | None, pruned: float
) -> FamilyCircuit:
    rows = zip(found.incidence.prompts, found.labels, strict=True)
    members = {int(prompt) for prompt, label in rows if label == family.family}
    weight: dict[tuple[str, str, str], float] = defaultdict(float)
    held: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    signals: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for one in edges:
        if one.prompt in members:
            key = (one.source, one.target, one.side)
            weight[key] += one.weight
            held[key].add(one.prompt)
            if one.signal is not None:
                signals[key][one.signal] += 1
    kept = {key for key, prompts in held.items() if len(prompts) >= pruned * len(members)}
    made = [
        FamilyEdge(
            source=source,
            target=target,
            side=side,
            share=len(held[source, target, side]) / len(members),
            weight=weight[source, target, side] / len(members),
            signals=tuple(name for name, _ in signals[source, target, side].most_common()),
        )
        for source, target, side in kept
    ]
    alive = closure(ANSWER, [Edge(e.source, e.target, "query", e.weight) for e in made], forward=False)
    left = [e for e in made if e.target in alive]
    left.sort(key=lambda e: (e.target != ANSWER, -e.weight, e.source, e.target, e.side))
    if names is not None:
        left = [replace(e, names=tuple(_names(names, e))) for e in left]
    return FamilyCircuit(family=family, edges=tuple(left), pruned=pruned, all_edges=len(held), names=names)


def _names(known: KnownNames, edge: FamilyEdge) -> list[str]:
    if edge.target == ANSWER:
        return []
    side = "query" if edge.side == "query" else "key"
    whole = writer_id(Head.parse(edge.target), side, Component.parse(edge.source))
    found: dict[str, KnownName] = known.chosen((*edge.signals, whole))
    return sorted(found, key=lambda key: found[key].text is None)


def node_of_name(name: str, layers: int) -> Node:
    """A component without a token, as pages draw it."""
    if name == ANSWER:
        return Node("answer", layers, None, 0, 0)
    part = Component.parse(name)
    return Node(part.kind, part.layer, part.index if part.kind == "head" else None, 0, 0)
