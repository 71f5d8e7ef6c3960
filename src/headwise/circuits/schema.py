"""What a circuit file may hold: the shape of each field, how its parts belong together, and the model it must fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from headwise.circuits.circuit import ABSOLUTE, Circuit, Counterfactual, Edge, EdgeKind, Node, NodeKind
from headwise.errors import HeadwiseError
from headwise.known_names import NamesShape
from headwise.model.batch import checked_start
from headwise.scale.manifest import BasisShape
from headwise.tokens import NoTokenizer, shown, shown_after
from headwise.tracing.through import Unit
from headwise.types import Side
from headwise.validation import Index, Row, Sha256, Shape, unfit

if TYPE_CHECKING:
    from headwise.model.model import Model

SCHEMA = 1

Layer = Annotated[int, Field(ge=-1, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
# A softmax in floating point may pass 1 by a rounding error.
Attention = Annotated[float, Field(ge=0, le=1.001)]


class NodeShape(Shape):
    id: str
    kind: NodeKind
    layer: Layer
    head: Index | None
    query: Index
    key: Index
    attention: Attention | None
    names: Row[str] = ()

    @model_validator(mode="after")
    def _as_its_kind(self) -> Self:
        is_head = self.kind == "head"
        if is_head != (self.head is not None):
            raise unfit("head is null" if is_head else f"head is {self.head}, but the node is not one")
        # A head's offset has no layer, an MLP's has the MLP's.
        if (self.layer == -1) != (self.kind == "embedding") and (self.kind, self.layer) != ("offset", -1):
            raise unfit(f"layer is {self.layer}, which no node of kind {self.kind!r} has")
        if not is_head and (self.query != self.key or self.attention is not None):
            raise unfit(f"a node of kind {self.kind!r} has one position and no attention")
        if self.node.id != self.id:
            raise unfit(f"the id should be {self.node.id!r}")
        return self

    @property
    def node(self) -> Node:
        return Node(self.kind, self.layer, self.head, self.query, self.key, self.attention)


class EdgeShape(Shape):
    source: str
    target: str
    side: Side
    weight: float
    channels: Row[Index]
    strengths: Row[float] = ()
    signal: Row[float] | None = None
    kind: EdgeKind = "causal"
    unit: Unit | None = None
    names: Row[str] = ()

    @model_validator(mode="after")
    def _channels_agree(self) -> Self:
        if len(set(self.channels)) < len(self.channels):
            twice = next(c for i, c in enumerate(self.channels) if c in self.channels[:i])
            raise unfit(f"channel {twice} is listed twice")
        if self.strengths and len(self.strengths) != len(self.channels):
            raise unfit(f"there are {len(self.strengths)} strengths for {len(self.channels)} channels")
        return self

    @property
    def edge(self) -> Edge:
        return Edge(
            self.source,
            self.target,
            self.side,
            self.weight,
            self.channels,
            self.strengths,
            self.signal,
            self.unit if self.kind == "account" else None,
        )


class CounterfactualShape(Shape):
    target: str
    side: Literal["query", "key", "both"]
    removed: Count
    attention: Attention
    predicted: Attention
    edited: Attention | None
    controls: Row[Attention]


class ModelIdentity(Shape):
    name: str
    weight_hash: Sha256


class CircuitShape(Shape):
    """A whole file. Fields with a default are younger than the others: older files are without them."""

    schema_: Literal[1] = Field(alias="schema")
    kind: Literal["headwise-circuit"]
    model: ModelIdentity
    prompt: str | None
    tokens: Row[str]
    token_ids: Row[Index]
    start: Count = 0
    answer: str | None
    wrong: str | None
    answer_id: Index | None
    wrong_id: Index | None
    difference: float | None = None
    top: str | None = None
    mode: Literal["exact", "published"]
    basis: BasisShape | None = None
    nodes: Row[NodeShape]
    edges: Row[EdgeShape]
    counterfactuals: Row[CounterfactualShape]
    names: NamesShape | None = None
    notes: Row[str]
    seconds: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _parts_belong_together(self) -> Self:
        length = len(self.token_ids)
        if not length:
            raise unfit("token_ids is empty")
        if len(self.tokens) != length:
            raise unfit(f"there are {len(self.tokens)} tokens for {length} token_ids")
        nodes: dict[str, NodeShape] = {}
        for node in self.nodes:
            if max(node.query, node.key) >= length:
                raise unfit(f"node {node.id!r} is outside the prompt, which has {length} tokens")
            if node.id in nodes:
                raise unfit(f"node {node.id!r} is listed twice")
            nodes[node.id] = node
        seen: set[str] = set()
        for number, edge in enumerate(self.edges):
            if reason := _misplaced(edge, nodes):
                raise unfit(f"edges[{number}]: {reason}")
            if edge.edge.id in seen:
                raise unfit(f"edges[{number}]: the {edge.side} edge from {edge.source!r} is listed twice")
            seen.add(edge.edge.id)
        return self

    def circuit(self) -> Circuit:
        return Circuit(
            nodes=tuple(one.node for one in self.nodes),
            edges=tuple(one.edge for one in self.edges if one.kind == "causal"),
            accounts=tuple(one.edge for one in self.edges if one.kind == "account"),
            tokens=self.tokens,
            token_ids=self.token_ids,
            prompt=self.prompt,
            answer=self.answer,
            wrong=self.wrong,
            answer_id=self.answer_id,
            wrong_id=self.wrong_id,
            mode=self.mode,
            model=self.model.name,
            weight_hash=self.model.weight_hash,
            seconds=self.seconds,
            counterfactuals=tuple(Counterfactual(**dict(one)) for one in self.counterfactuals),
            notes=self.notes,
            difference=self.difference,
            top=self.top,
            start=self.start,
            basis=ABSOLUTE if self.basis is None else self.basis.name,
            names=None if self.names is None else self.names.known(self.model.name, self.model.weight_hash),
        )


def _misplaced(edge: EdgeShape, nodes: dict[str, NodeShape]) -> str | None:
    """Why an edge cannot be between these nodes; a signal is written below its reader, at the position it reads."""
    for end in (edge.source, edge.target):
        if end not in nodes:
            return f"{end[:40]!r} is not one of the nodes"
    source, target = nodes[edge.source], nodes[edge.target]
    if edge.kind == "account":
        return _unaccountable(edge, source, target)
    if edge.unit not in (None, edge.edge.unit):
        return f"its unit is {edge.unit!r}, which an edge into {target.id!r} does not have"
    if target.kind not in ("head", "answer"):
        return f"the target {target.id!r} reads nothing"
    if source.layer >= target.layer:
        return f"{source.id!r} is not below {target.id!r}"
    if target.kind == "answer" and (edge.side != "query" or edge.channels):
        return "an edge into the answer is on the query side and has no channels"
    if target.kind == "head" and not edge.channels:
        return f"it has no channels into {target.id!r}"
    read = target.query if edge.side == "query" else target.key
    return None if source.query == read else f"{source.id!r} is not at position {read}, which is read"


def _unaccountable(edge: EdgeShape, source: NodeShape, target: NodeShape) -> str | None:
    """Why an account cannot be between these nodes: an MLP reads its own position, below it and in its own layer."""
    if target.kind != "mlp":
        return f"it is an account, but {target.id!r} is not an MLP"
    if edge.unit is None:
        return "an account has a unit: attention or answer"
    if edge.channels or edge.signal is not None:
        return "an account has neither channels nor a signal"
    beside = source.kind in ("head", "bias", "offset") and source.layer == target.layer
    if (source.layer >= target.layer and not beside) or (source.kind == "offset" and not beside):
        return f"{source.id!r} is not read by {target.id!r}"
    return None if source.query == target.query else f"{source.id!r} is not at position {target.query}"


def require_fit(circuit: Circuit, model: Model, what: str = "this circuit") -> None:
    """Refuse a circuit of other weights, or one that names a layer, head, channel, token or position which the model
    does not have: Python would take −1 for the last one and give a number for something that was never traced.
    """
    again = "load that model, or trace the prompt again"
    model.require(circuit.weight_hash, what, of=circuit.model, do=again)
    for name, token in (("answer_id", circuit.answer_id), ("wrong_id", circuit.wrong_id)):
        if token is not None and not 0 <= token < model.vocabulary:
            raise HeadwiseError(f"{what}: {name} {token} is not among the model's {model.vocabulary} tokens")
    try:
        checked_start(model, circuit.start, [len(model.prompt_ids(circuit.token_ids))])
    except HeadwiseError as error:
        raise HeadwiseError(f"{what}: {error}") from None
    for node in circuit.nodes:
        last = model.n_layers if node.kind == "answer" else model.n_layers - 1
        if not (-1 <= node.layer <= last and 0 <= (node.head or 0) < model.n_heads):
            raise HeadwiseError(
                f"{what}: node {node.id!r} is not in {model.name!r}, which has {model.n_layers} layers of "
                f"{model.n_heads} heads"
            )
        if not (0 <= node.query < len(circuit.token_ids) and 0 <= node.key < len(circuit.token_ids)):
            raise HeadwiseError(
                f"{what}: node {node.id!r} is outside the prompt, which has {len(circuit.token_ids)} tokens"
            )
    for edge in (*circuit.edges, *circuit.accounts):
        require_edge(edge, circuit, model, what)


def require_edge(edge: Edge, circuit: Circuit, model: Model, what: str = "this circuit") -> None:
    """Refuse an edge that is not between the circuit's nodes or not in the channels of the head that reads it."""
    for end in (edge.source, edge.target):
        if end not in circuit.by_id:
            raise HeadwiseError(f"{what}: edge {edge.id!r} names {end!r}, which is not one of its nodes")
    if edge.side not in ("query", "key"):
        raise HeadwiseError(f"{what}: side {edge.side!r} of an edge is neither 'query' nor 'key'")
    wrong = [c for c in edge.channels if not isinstance(c, int) or not 0 <= c < model.d_head]
    if wrong or len(set(edge.channels)) < len(edge.channels):
        reason = f"channel {wrong[0]}" if wrong else "one channel twice"
        raise HeadwiseError(
            f"{what}: edge {edge.id!r} has {reason}; a head has channels 0 to {model.d_head - 1}"
        )
    if edge.signal is not None and len(edge.signal) != model.d_head:
        raise HeadwiseError(
            f"{what}: the signal of edge {edge.id!r} has {len(edge.signal)} numbers, but d_head is {model.d_head}"
        )


def require_prompt(circuit: Circuit, model: Model, what: str) -> None:
    """Refuse words that are not those of the token ids: the picture would show others than were read."""
    if isinstance(model.tokenizer, NoTokenizer):
        return
    ids = list(circuit.token_ids)
    if circuit.prompt is not None and (read := model.prompt_ids(circuit.prompt)) != ids:
        raise HeadwiseError(
            f"{what}: token_ids are not those of the prompt (from position {_differ(read, ids)} on): trace it again"
        )
    if (words := shown(model.tokenizer, ids)) != circuit.tokens:
        first = _differ(words, circuit.tokens)
        raise HeadwiseError(
            f"{what}: tokens are not those of token_ids (from position {first} on): trace it again"
        )
    for name in ("answer", "wrong"):
        token, said = getattr(circuit, f"{name}_id"), getattr(circuit, name)
        if token is not None and said is not None:
            word = shown_after(model.tokenizer, ids, token)
            # An answer of several tokens has them all in its text, and the id of the first.
            if said != word and not said.startswith(f"{word} / "):
                raise HeadwiseError(
                    f"{what}: {name} is {said!r}, but {name}_id {token} is {word!r}: trace it again"
                )


def _differ(first: Sequence[object], second: Sequence[object]) -> int:
    """Where two sequences begin to differ."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
