"""A circuit: who made the answer of one prompt, as a directed multigraph of firings and the signals between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from headwise.basis_names import BasisName
from headwise.circuits.reach import closure
from headwise.errors import HeadwiseError
from headwise.known_names import KnownNames, NamesLike
from headwise.strings import counted
from headwise.tracing.through import Unit
from headwise.types import AnswerIds, Cell, Component, Head, Side, Sides, Signal

if TYPE_CHECKING:
    import networkx

ABSOLUTE = BasisName("singular", "absolute", "")
"""The channels of circuits that do not name theirs: those of version 0.1 and of the published tracer."""

NodeKind = Literal["head", "mlp", "embedding", "bias", "offset", "answer"]
EdgeKind = Literal["causal", "account"]


@dataclass(frozen=True, slots=True)
class Node:
    """A component at token positions. For every kind but ``head``, ``query`` and ``key`` are its one token."""

    kind: NodeKind
    """Head, MLP, embedding, bias, offset or the answer."""
    layer: int
    """Its layer; −1 for the embedding and for heads' offsets, the number of layers for the answer."""
    head: int | None
    """A head's index in its layer."""
    query: int
    """Where it writes."""
    key: int
    """What it reads; for all but heads the same token."""
    attention: float | None = None
    """A firing's attention."""

    @property
    def id(self) -> str:
        """Component and token positions: what identifies a node.

        >>> Node("head", 9, 6, 14, 3).id, Node("mlp", 2, None, 4, 4).id, Node("embedding", -1, None, 0, 0).id
        ('L9H6@14<-3', 'MLP2@4', 'embedding@0')
        """
        return str(self.cell) if self.kind == "head" else f"{self.name}@{self.query}"

    @classmethod
    def of(cls, cell: Cell, attention: float | None = None) -> Node:
        """A head's node."""
        return cls("head", cell.head.layer, cell.head.index, cell.query, cell.key, attention)

    @property
    def cell(self) -> Cell:
        """The cell of the pattern that a head's node stands for."""
        if self.head is None:
            raise HeadwiseError(f"a node of kind {self.kind!r} is not a head: it has no cell")
        return Cell(Head(self.layer, self.head), self.query, self.key)

    @property
    def component(self) -> Component:
        """The component whose write this node stands for."""
        if self.kind == "head":
            assert self.head is not None
            return Component("head", self.layer, self.head, self.key)
        if self.kind == "answer":
            raise HeadwiseError("the answer is not a component")
        return Component(self.kind, -1 if self.kind == "embedding" else self.layer)

    @property
    def name(self) -> str:
        """The component alone: ``L9H6``, ``MLP2``, ``embedding``."""
        return "answer" if self.kind == "answer" else self.component.name


@dataclass(frozen=True, slots=True)
class Edge:
    """What one component wrote into some channels of one side of a firing, or what an MLP owes to one that it read.

    An *account* goes into an MLP, has no channels, and is not causal: nothing was removed to find it. Its weight is the
    part of what the MLP's write took above that it accounts for: of the attention, on that ``side`` of the heads that
    read the MLP, or of the answer (``account_of``).
    """

    source: str
    """The id of the node that wrote."""
    target: str
    """The id of the node that reads."""
    side: Side
    """Whether it enters the query or the key."""
    weight: float
    """The attention that its removal took; into the answer, its share of the answer."""
    channels: tuple[int, ...] = ()
    """In the order of removal; none into the answer."""
    strengths: tuple[float, ...] = ()
    """What was written along each channel (singular: along u_k at the query, v_k at the key), as the head reads it."""
    signal: tuple[float, ...] | None = field(default=None, compare=False, repr=False)
    """The removed vector in the head's space (of the query, or of the key at the key's token), kept on request."""
    account_of: Unit | None = None
    """For an account, what its weight is a part of."""

    @property
    def kind(self) -> EdgeKind:
        return "causal" if self.account_of is None else "account"

    @property
    def unit(self) -> Unit:
        """What the weight is a part of."""
        return self.account_of or ("answer" if self.target.startswith("answer@") else "attention")

    @property
    def id(self) -> str:
        """
        >>> Edge("MLP2@4", "L9H6@14<-4", "key", 0.2, (3,)).id
        'MLP2@4 -> L9H6@14<-4 [key]'
        >>> Edge("L1H0@4<-3", "MLP2@4", "key", 0.1, account_of="attention").id
        'L1H0@4<-3 -> MLP2@4 [account of attention, key]'
        """
        how = self.side if self.account_of is None else f"account of {self.account_of}, {self.side}"
        return f"{self.source} -> {self.target} [{how}]"


@dataclass(frozen=True)
class Counterfactual:
    """What happened to one attention when the signals of one side (or both) were removed."""

    target: str
    """The id of the firing."""
    side: Sides
    """The side that signals were removed from."""
    removed: int
    """How many."""
    attention: float
    """Untouched."""
    predicted: float
    """Without them, by the algebra."""
    edited: float | None = None
    """The attention of the really edited forward pass, where it was run."""
    controls: tuple[float, ...] = ()
    """The attention when as many signals of channels that were not used leave instead (really edited)."""


@dataclass(frozen=True)
class Circuit:
    """Nodes and edges of one prompt's circuit.

    >>> nodes = (Node("embedding", -1, None, 1, 1), Node("head", 1, 0, 2, 1, 0.9), Node("answer", 2, None, 2, 2))
    >>> a, b, c = (n.id for n in nodes)
    >>> circuit = Circuit(nodes, (Edge(a, b, "key", 0.5, (3,)), Edge(b, c, "query", 2.0)), tokens=("x", "y", "z"))
    >>> circuit
    Circuit(1 head firing, 3 nodes, 2 edges)
    >>> [edge.source for edge in circuit.into(b)], len(circuit.filter(min_weight=1.0).edges)
    (['embedding@1'], 1)
    """

    nodes: tuple[Node, ...]
    """Firings of heads, other components, and the answer."""
    edges: tuple[Edge, ...]
    """Causal: the signals that join them, each seen by taking it away, and what the answer was made of."""
    tokens: tuple[str, ...] = ()
    """[T]: the prompt's tokens as text."""
    token_ids: tuple[int, ...] = ()
    """[T]: the same as ids."""
    prompt: str | None = None
    """The prompt as text; None if token ids were given."""
    answer: str | None = None
    """The answer's token; None for a circuit of a probability."""
    wrong: str | None = None
    """The token it is compared with; None: the mean token."""
    answer_id: int | None = None
    """The answer's token id."""
    wrong_id: int | None = None
    """The other token's id."""
    mode: str = "exact"
    """How it was traced: ``exact`` or ``published``."""
    model: str = ""
    """The model's name."""
    weight_hash: str = ""
    """The digest of the model's weights: another model's circuit is refused."""
    seconds: float = 0.0
    """How long tracing took; of a batch, the prompt's share."""
    counterfactuals: tuple[Counterfactual, ...] = ()
    """Per firing and side: attention with and without its signals, predicted and (``verify=True``) observed."""
    notes: tuple[str, ...] = ()
    """Lines a reader should see: an answer that is not predicted, firings without a cause of allowed size."""
    difference: float | None = None
    """Logit of the answer minus that of wrong, or without wrong of the best other token, in the traced pass."""
    top: str | None = None
    """The token that pass makes most likely."""
    start: int = 0
    """The position id of the first token in that pass."""
    basis: BasisName = ABSOLUTE
    """What the channels of its edges are channels of."""
    accounts: tuple[Edge, ...] = ()
    """What MLPs owe to what they read. Never counted as causal; :meth:`causal` leaves them out."""
    names: KnownNames | None = field(default=None, compare=False, repr=False)
    """Names of heads and signals with their tests, where a run of names was given."""

    @cached_property
    def by_id(self) -> dict[str, Node]:
        """Every node by its id."""
        return {node.id: node for node in self.nodes}

    def node(self, id: str) -> Node:
        """A node by its id, such as ``L9H6@14<-3``."""
        if id not in self.by_id:
            near = [known for known in self.by_id if known.split("@")[0] == id.split("@")[0]][:4]
            hint = f": did you mean {', '.join(near)}?" if near else ""
            raise HeadwiseError(f"{id!r} is not a node of this circuit{hint}")
        return self.by_id[id]

    @property
    def answer_ids(self) -> AnswerIds:
        """What the circuit's answer is compared by."""
        if self.answer_id is None:
            raise HeadwiseError("this circuit names no answer: trace the prompt again")
        return AnswerIds(self.answer_id, self.wrong_id)

    @property
    def heads(self) -> tuple[Node, ...]:
        """The nodes that are firings of heads."""
        return tuple(node for node in self.nodes if node.kind == "head")

    def into(self, id: str, side: Side | None = None) -> tuple[Edge, ...]:
        """Edges into a node, of both sides or of one, heaviest first; those into an MLP are accounts."""
        self.node(id)
        found = (e for e in (*self.edges, *self.accounts) if e.target == id and side in (None, e.side))
        return tuple(sorted(found, key=lambda e: -e.weight))

    def signal(self, edge: Edge) -> Signal:
        """The signal of an edge: what its source wrote for its target."""
        source, target = self.by_id[edge.source], self.by_id[edge.target]
        return Signal(target.cell.head, edge.side, source.component, edge.channels)

    def signals(self, id: str, sides: Sides = "both") -> list[Signal]:
        """The signals that a head's node reads, heaviest first."""
        return [self.signal(edge) for edge in self.into(id, None if sides == "both" else sides)]

    def out_of(self, id: str) -> tuple[Edge, ...]:
        """Edges out of a node, accounts among them, heaviest first."""
        self.node(id)
        found = (e for e in (*self.edges, *self.accounts) if e.source == id)
        return tuple(sorted(found, key=lambda e: -e.weight))

    # --- smaller circuits ----------------------------------------------------------------------------------------

    def causal(self) -> Circuit:
        """The circuit without its accounts, and without what leads to the answer through them alone."""
        return self._reaching(self.edges, ()) if self.accounts else self

    def filter(
        self,
        *,
        min_weight: float = 0.0,
        sides: Collection[Side] = ("query", "key"),
        kinds: Collection[NodeKind] | None = None,
    ) -> Circuit:
        """Keep edges of at least this weight, on these sides, from sources of these kinds; edges into the answer stay
        whatever their weight. What no longer leads to the answer goes."""

        def stays(edge: Edge) -> bool:
            fits = edge.weight >= min_weight and edge.side in sides
            of_kind = kinds is None or self.by_id[edge.source].kind in kinds
            return of_kind and (fits or edge.target.startswith("answer"))

        return self._reaching(filter(stays, self.edges), filter(stays, self.accounts))

    def prune_tokens(self, positions: Iterable[int]) -> Circuit:
        """Leave out firings that read the given tokens (attention sinks: usually position 0) and what only fed them."""
        sinks = set(positions)
        gone = {n.id for n in self.nodes if n.kind == "head" and n.key in sinks}

        def stays(edge: Edge) -> bool:
            return edge.source not in gone and edge.target not in gone

        return self._reaching(filter(stays, self.edges), filter(stays, self.accounts))

    def between(self, source: str, target: str) -> Circuit:
        """The subgraph of all paths from one node to another."""
        for end in (source, target):
            self.node(end)
        every = (*self.edges, *self.accounts)
        inside = closure(source, every, forward=True) & closure(target, every, forward=False)
        return self._with(self.edges, self.accounts, inside)

    def _reaching(self, edges: Iterable[Edge], accounts: Iterable[Edge]) -> Circuit:
        edges, accounts = tuple(edges), tuple(accounts)
        ends = [n.id for n in self.nodes if n.kind == "answer"]
        alive = set(self.by_id)
        if ends:
            alive = set().union(*(closure(end, (*edges, *accounts), forward=False) for end in ends))
        return self._with(edges, accounts, alive)

    def _with(self, edges: Iterable[Edge], accounts: Iterable[Edge], nodes: set[str]) -> Circuit:
        def inside(chosen: Iterable[Edge]) -> tuple[Edge, ...]:
            return tuple(e for e in chosen if e.source in nodes and e.target in nodes)

        return replace(
            self,
            nodes=tuple(n for n in self.nodes if n.id in nodes),
            edges=inside(edges),
            accounts=inside(accounts),
            counterfactuals=tuple(c for c in self.counterfactuals if c.target in nodes),
        )

    def with_names(self, names: NamesLike) -> Circuit:
        """The same circuit with the names of its heads and signals, from the folder that ``headwise name`` made or from
        its result: on the page, in the file and in every export, each with its verdict and its evidence."""
        from headwise.circuits.named import with_names

        return with_names(self, names)

    # --- out of headwise -------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The circuit file's document (docs: The circuit file)."""
        from headwise.circuits.files import to_json

        return to_json(self)

    def save(self, path: Any) -> None:
        """Write versioned JSON; the same circuit gives the same bytes."""
        from headwise.circuits.files import save

        save(self, path)

    @staticmethod
    def load(path: Any, model: Any = None) -> Circuit:
        """Read a circuit; with ``model``, refuse the circuit of another model."""
        from headwise.circuits.files import load

        return load(path, model)

    def to_networkx(self) -> networkx.MultiDiGraph:
        """The same graph for networkx."""
        from headwise.circuits.export import to_networkx

        return to_networkx(self)

    def to_graphml(self, path: Any) -> None:
        """Write GraphML, which graph editors open."""
        from headwise.circuits.export import to_graphml

        to_graphml(self, path)

    def to_attribution_graph(self) -> dict[str, Any]:
        """The JSON that attribution-graph viewers read."""
        from headwise.circuits.export import to_attribution_graph

        return to_attribution_graph(self)

    def label(self, id: str) -> str:
        """A node's name with the tokens it belongs to."""
        node = self.node(id)
        if not self.tokens:
            return node.id
        if node.kind == "head":
            return f"{node.name} {self.tokens[node.query]!r} ← {self.tokens[node.key]!r}"
        if node.kind == "answer":
            return f"answer {self.answer!r}" if self.answer else "answer"
        return f"{node.name} {self.tokens[node.query]!r}"

    def __repr__(self) -> str:
        answer = (
            ""
            if self.answer is None
            else f"{self.answer!r}" + (f" over {self.wrong!r}" if self.wrong else "") + ", "
        )
        sizes = (
            counted(len(self.heads), "head firing"),
            counted(len(self.nodes), "node"),
            counted(len(self.edges), "edge"),
            *([counted(len(self.accounts), "account")] if self.accounts else []),
        )
        return f"Circuit({answer}{', '.join(sizes)})"

    def _repr_html_(self) -> str:
        from headwise.show.notebook import circuit

        return circuit(self)


def node_of(component: Component, position: int, attention: float | None = None) -> Node:
    """The node of a component that was read at a position."""
    if component.kind == "head":
        return Node.of(Cell(component.head, position, component.source), attention)
    return Node(component.kind, component.layer, None, position, position)
