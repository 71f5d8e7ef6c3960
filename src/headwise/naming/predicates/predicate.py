"""A predicate: a question about cells with a yes or no answer, and the words it adds to a name.

Most ask something of one token (*is it a comma?*). Such a :class:`Property` is stated once and used for both the
destination and the source; the others are relations between the two.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from headwise.naming.cells import Cells
from headwise.naming.texts import Texts

Slot = Literal["destination", "source", "relation"]
PhraseForm = Literal["noun", "adjective", "clause", "frame", "sentence"]


@dataclass(frozen=True)
class Phrase:
    """How a predicate sounds, affirmed and denied.

    A *noun* is said with its article (``a name``), an *adjective* without (``capitalised``), a *clause* as what follows
    "that" (``begins a word``), a *frame* has a gap for the noun (``the second {} of a pair``), and a *sentence* is
    whole (``the source is the previous token``).
    """

    form: PhraseForm
    yes: str
    no: str
    """The denial: a clause, or a sentence where :attr:`form` is ``sentence``."""


def noun(words: str) -> Phrase:
    """
    >>> noun("a comma").no
    'is not a comma'
    """
    return Phrase("noun", words, f"is not {words}")


def adjective(words: str) -> Phrase:
    """
    >>> adjective("capitalised").no
    'is not capitalised'
    """
    return Phrase("adjective", words, f"is not {words}")


def clause(yes: str, no: str) -> Phrase:
    """A clause with its denial."""
    return Phrase("clause", yes, no)


def frame(words: str) -> Phrase:
    """
    >>> frame("the second {} of a pair joined by *and*").no
    'is not the second of a pair joined by *and*'
    """
    return Phrase("frame", words, f"is not {words.replace('{} ', '')}")


def sentence(yes: str, no: str) -> Phrase:
    """A whole sentence with its denial."""
    return Phrase("sentence", yes, no)


@dataclass(frozen=True, eq=False)
class Places:
    """Cells of some texts, with the places of both tokens among all tokens: found once, asked by every predicate."""

    texts: Texts
    cells: Cells

    @cached_property
    def destination(self) -> np.ndarray:
        """[cells]: where the destinations are."""
        return self.texts.destinations(self.cells)

    @cached_property
    def source(self) -> np.ndarray:
        """[cells]: where the sources are."""
        return self.texts.sources(self.cells)

    @cached_property
    def start(self) -> np.ndarray:
        """[cells]: where the cells' texts begin."""
        return self.texts.starts[self.cells.text]

    @cached_property
    def earlier(self) -> np.ndarray:
        """[cells]: whether the source comes before the destination, and is not the destination itself."""
        return self.source < self.destination


Ask: TypeAlias = Callable[[Places], np.ndarray]
Mask: TypeAlias = Callable[[Texts], np.ndarray]
"""A question about single tokens: [tokens] bool."""


@dataclass(frozen=True, eq=False)
class Property:
    """Something that is true or false of every token of every text."""

    id: str
    kind: str
    """What type of question it is: the more of a type there are, the more it costs to pick one."""
    phrase: Phrase
    mask: Mask
    positional: bool = False
    digest: str = ""


@dataclass(frozen=True, eq=False)
class Predicate:
    """Something that is true or false of every cell."""

    id: str
    """``slot.what``, or ``slot.what=value`` where one question is asked of many values."""
    slot: Slot
    kind: str
    phrase: Phrase
    ask: Ask
    positional: bool = False
    """Whether its answer can follow from the two positions alone, whatever the text is."""
    digest: str = ""
    """SHA-256 of the word list that it goes by, where that is not headwise's own."""
    cost: float = 0.0
    """Nats: the logarithm of how many predicates of its type a search chooses from, and of how many types."""

    def holds(self, texts: Texts, cells: Cells) -> np.ndarray:
        """[cells] bool: where it is true."""
        return self.ask(Places(texts, cells))

    def __repr__(self) -> str:
        return f"Predicate({self.id!r}, cost={self.cost:.2f})"


def of_token(slot: Slot, what: Property) -> Predicate:
    """A property, asked of the destination or of the source."""

    def ask(places: Places) -> np.ndarray:
        return what.mask(places.texts)[places.destination if slot == "destination" else places.source]

    kind = f"{slot} {what.kind}"
    return Predicate(f"{slot}.{what.id}", slot, kind, what.phrase, ask, what.positional, what.digest)


TYPES = 32
"""About as many types as there are; a search that picks a predicate first picks its type."""


def priced(predicates: Iterable[Predicate]) -> tuple[Predicate, ...]:
    """The predicates, each at what it takes to point at it: the type, and which of that type."""
    found = tuple(predicates)
    sizes = Counter(one.kind for one in found)
    return tuple(replace(one, cost=math.log(TYPES) + math.log(sizes[one.kind])) for one in found)
