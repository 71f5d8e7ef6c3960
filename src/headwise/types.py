"""The nouns of the house, as small frozen value types: each is defined once and means the same in every room.

A *head* has *cells* (one query, one key). *Components* write into the residual stream; what one of them writes into
some channels of one side of a head is a *signal*, and a signal that a search took away is *removed*, with what that
did. A *subspace* is part of a head's query or key space. An *estimate* is a mean with its interval, a *claim* what a
test says of it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.head_names import layer_and_head, not_a_head
from headwise.strings import shortened
from headwise.subspace import Subspace as Subspace

Side = Literal["query", "key"]
Sides = Literal["query", "key", "both"]
"""Which sides of a cell an edit touched."""


@dataclass(frozen=True, order=True, slots=True)
class Head:
    """One attention (query) head.

    >>> Head(9, 6)
    L9H6
    >>> Head.parse("9.6") == Head.parse("a9.h6") == Head.parse("L9H6")
    True
    """

    layer: int
    """Its layer, from 0."""
    index: int
    """Its number among the query heads of that layer, from 0."""

    @classmethod
    def parse(cls, text: HeadLike) -> Head:
        """Read ``L9H6``, ``9.6``, ``a9.h6`` or a pair of numbers.

        >>> Head.parse((9, 6))
        L9H6
        >>> Head.parse("head nine")
        Traceback (most recent call last):
        ...
        headwise.errors.HeadwiseError: 'head nine' is not a head: write it as L9H6, 9.6 or a9.h6
        """
        if isinstance(text, Head):
            return text
        if isinstance(text, str):
            return cls(*layer_and_head(text))
        if _is_pair(text):
            return cls(operator.index(text[0]), operator.index(text[1]))
        raise not_a_head(repr(text))

    def __str__(self) -> str:
        return f"L{self.layer}H{self.index}"

    __repr__ = __str__


HeadLike = Head | str | tuple[int, int]
"""A head as users write it: itself, its name, or layer and index."""


def head_list(heads: Any) -> list[HeadLike]:
    """One head or several, as a list.

    >>> head_list("L9H6"), head_list((9, 6)), head_list([(9, 6), "1.2"])
    (['L9H6'], [(9, 6)], [(9, 6), '1.2'])
    """
    if isinstance(heads, str | Head) or _is_pair(heads):
        return [heads]
    if not isinstance(heads, Iterable):
        raise HeadwiseError(f"{shortened(repr(heads))} is not a head or a list of heads: write it as L9H6")
    return list(heads)


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(hasattr(one, "__index__") and not isinstance(one, bool) for one in value)
    )


class Cell(NamedTuple):
    """One cell of a pattern: a head at a query (destination) position, and the key (source) position it reads.

    >>> Cell(Head(9, 6), 14, 3)
    L9H6@14<-3
    >>> Cell(Head(9, 6), 14, 3) < Cell(Head(9, 6), 14, 4) < Cell(Head(10, 0), 2, 1)
    True
    """

    head: Head
    """The head that attends."""
    query: int
    """The position that attends (the destination)."""
    key: int
    """The position it attends to (the source)."""

    def at(self, side: Side) -> int:
        """The position whose query (or key) a side speaks of."""
        return self.query if side == "query" else self.key

    def __str__(self) -> str:
        return f"{self.head}@{self.query}<-{self.key}"

    __repr__ = __str__


ComponentKind = Literal["embedding", "head", "mlp", "bias", "offset"]
_LAYER_KINDS: dict[str, ComponentKind] = {"MLP": "mlp", "bias": "bias", "offset": "offset"}
_LAYER_NAME = re.compile(r"(MLP|bias|offset)([0-9]{1,9})")


@dataclass(frozen=True, order=True, slots=True)
class Component:
    """One writer into the residual stream.

    ``head`` is what one head carried from one source token; ``bias`` is a layer's attention output bias, with the
    value bias folded in (attention rows sum to one, so it does not depend on the token read); ``offset`` is what a
    reader's own constants add: in a head's q/k space the norm's shift and the query or key bias, and with a layer all
    biases of that layer's MLP and the shifts of its norms.

    >>> Component("head", 3, 1, source=7), Component("mlp", 2), Component("embedding"), Component("offset", 2)
    (L3H1<-7, MLP2, embedding, offset2)
    """

    kind: ComponentKind
    """What it is: ``embedding``, ``head``, ``mlp``, ``bias`` or ``offset``."""
    layer: int = -1
    """Its layer, from 0; -1 where it belongs to none."""
    index: int = -1
    """The number of its head in the layer; -1 for all other kinds."""
    source: int = -1
    """The position that the head read; -1 for all other kinds, and for a head whatever it read."""

    @property
    def head(self) -> Head:
        """The head, for a component of kind ``head``."""
        if self.kind != "head":
            raise HeadwiseError(f"{self} is not a head")
        return Head(self.layer, self.index)

    @property
    def name(self) -> str:
        """The component whatever token it read: ``L9H6``, ``MLP2``, ``bias3``, ``offset2``, ``embedding``."""
        if self.kind == "head":
            return str(self.head)
        if self.kind == "mlp":
            return f"MLP{self.layer}"
        if self.kind == "bias":
            return f"bias{self.layer}"
        if self.kind == "offset" and self.layer >= 0:
            return f"offset{self.layer}"
        return self.kind

    @classmethod
    def parse(cls, text: str) -> Component:
        """Read a component's name, with or without the token it read.

        >>> [Component.parse(name) for name in ("L9H6", "L9H6<-3", "MLP2", "bias3", "embedding")]
        [L9H6, L9H6<-3, MLP2, bias3, embedding]
        >>> Component.parse("layer nine")
        Traceback (most recent call last):
        ...
        headwise.errors.HeadwiseError: 'layer nine' is not a component: write L9H6, L9H6<-3, MLP2, bias3 or embedding
        """
        if text == "embedding" or text == "offset":
            return cls(text)
        if match := _LAYER_NAME.fullmatch(text):
            return cls(_LAYER_KINDS[match[1]], int(match[2]))
        name, arrow, source = text.partition("<-")
        try:
            head = Head.parse(name)
            if arrow and not (source.isascii() and source.isdigit() and len(source) <= 9):
                raise HeadwiseError(source)
        except HeadwiseError:
            raise HeadwiseError(
                f"{shortened(text)!r} is not a component: write L9H6, L9H6<-3, MLP2, bias3 or embedding"
            ) from None
        return cls("head", head.layer, head.index, int(source) if arrow else -1)

    def __str__(self) -> str:
        return self.name + (f"<-{self.source}" if self.source >= 0 else "")

    __repr__ = __str__


@dataclass(frozen=True, order=True, slots=True)
class Signal:
    """What one component writes into some channels of one side of a head: which signal it is, and nothing else.

    >>> Signal(Head(9, 6), "key", Component("mlp", 2), (3, 17))
    MLP2 -> L9H6 key [3, 17]
    """

    head: Head
    """The head that reads it."""
    side: Side
    """Whether it enters the head's query or its key."""
    writer: Component
    """The component that writes it."""
    channels: tuple[int, ...]
    """The channels of the head that it is written into, by number."""

    def __str__(self) -> str:
        return f"{self.writer} -> {self.head} {self.side} [{', '.join(map(str, self.channels))}]"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Removed:
    """A signal that a search took away from one cell, and what that did."""

    signal: Signal
    """Which signal it is."""
    attribution: float
    """Its part of the attention by integrated gradients: the order of removal."""
    drop: float
    """The attention that its removal took; a side's drops sum to the whole fall."""
    strengths: tuple[float, ...] = ()
    """What the writer wrote along each channel, at the query or at the key's token: its coordinate over the basis's
    unit (in the singular basis the product with u_k or v_k)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval. ``n`` values were averaged, of ``clusters`` units that were resampled.

    One cluster has no interval: both ends are the mean, ``ci`` is None and nothing is excluded.

    >>> Estimate(0.5, 0.4, 0.6, n=40, clusters=10).to_json()
    {'mean': 0.5, 'ci': [0.4, 0.6], 'n': 40, 'clusters': 10}
    """

    mean: float
    """The mean of the values."""
    low: float
    """The lower end of the 95 % interval."""
    high: float
    """Its upper end."""
    n: int
    """How many values were averaged."""
    clusters: int
    """How many units that belong together (prompts, wordings, entities, pairs) were resampled for the interval."""

    def excludes(self, value: float) -> bool:
        """Whether the interval lies wholly on one side of a value; one cluster excludes nothing."""
        return self.clusters > 1 and (self.low > value or self.high < value)

    @property
    def ci(self) -> list[float] | None:
        """Both ends of the interval; None where there is none."""
        return [self.low, self.high] if self.clusters > 1 else None

    def to_json(self) -> dict[str, Any]:
        """The mean, its interval as ``ci``, and what it was taken over."""
        return {"mean": self.mean, "ci": self.ci, "n": self.n, "clusters": self.clusters}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a test says: which null it was held against, and whether the claim is supported.

    >>> Claim("labels shuffled within prompts", 999, 0.001, 0.004, "all heads of the model", True)
    supported: p 0.001, q 0.004 against labels shuffled within prompts
    """

    LEVEL: ClassVar = 0.05
    """The share of false claims among those called supported that is put up with (false discovery rate)."""

    null: str
    """The null by name: what was drawn where nothing is there."""
    draws: int
    """How many times it was drawn; 0 for a test that needs no draws."""
    p: float
    """How often the null does at least as much, the observed counted among its draws."""
    q: float
    """The same, corrected together with the other tests of ``group`` (Benjamini–Hochberg)."""
    group: str
    """Which tests were corrected together."""
    supported: bool
    """Whether the claim holds: q ≤ 0.05, and all else that the claim asks for."""

    @classmethod
    def alone(cls, p: float, *, null: str, draws: int, group: str, fit: bool = True) -> Claim:
        """The claim of a single test, which needs no correction.

        Parameters
        ----------
        p:
            Its p-value.
        null:
            What it was compared with.
        draws:
            How many draws of the null there were.
        group:
            The claims that it was corrected with, which here is itself.
        fit:
            Whether all else is met that the claim asks for.
        """
        return cls(null, draws, p, p, group, bool(p <= cls.LEVEL and fit))

    def to_json(self) -> dict[str, Any]:
        """Every field by its name."""
        return {name: getattr(self, name) for name in ("null", "draws", "p", "q", "group", "supported")}

    def __repr__(self) -> str:
        said = "supported" if self.supported else "not supported"
        return f"{said}: p {self.p:.3g}, q {self.q:.3g} against {self.null}"


@dataclass(frozen=True)
class AnswerIds:
    """The token that answers a prompt, and the one it is compared with (None: the mean of all tokens).

    >>> logits = torch.tensor([[2.0, 0.5, -1.0]])
    >>> AnswerIds(0, 1).difference(logits).tolist(), AnswerIds(0, None).difference(logits).tolist()
    ([1.5], [1.5])
    """

    token: int
    wrong: int | None

    def difference(self, logits: Tensor) -> Tensor:
        """By how much the answer leads: logits [..., vocabulary] -> [...]."""
        against = (
            logits.mean(-1, dtype=torch.float64).to(logits.dtype)
            if self.wrong is None
            else logits[..., self.wrong]
        )
        return logits[..., self.token] - against

    def likelihood(self, logits: Tensor) -> Tensor:
        """The answer's probability: logits [..., vocabulary] -> [...]."""
        return (logits[..., self.token] - logits.logsumexp(-1)).exp()
