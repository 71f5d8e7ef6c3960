"""Rules: predicates joined by *and* and *or*, which can be asked of any text and read as plain English.

A rule holds where one of its conjunctions does. A :class:`Name` is a rule in words: what the destination is, what the
source is, how the two relate, and all of it as one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from headwise.errors import HeadwiseError
from headwise.naming.cells import Cells
from headwise.naming.predicates.lexicon import NOTHING, Lexicon
from headwise.naming.predicates.library import by_id
from headwise.naming.predicates.predicate import Places, Predicate, Slot
from headwise.naming.texts import Texts
from headwise.naming.wording import described, either, stated
from headwise.validation import Row, Sha256, Shape, check

ANYTHING = "anything"
"""What a slot says that no predicate speaks of."""
POSITIONAL = ("relation distance", "destination absolute", "source absolute")
"""Types of predicates that name a position or a distance."""
IDENTITY = ("destination token", "source token", "destination word", "source word")


@dataclass(frozen=True, eq=False)
class Literal:
    """A predicate, affirmed or denied."""

    predicate: Predicate
    negated: bool = False

    @property
    def id(self) -> str:
        """
        >>> Literal(by_id("source.comma"), negated=True).id
        'not source.comma'
        """
        return f"{'not ' * self.negated}{self.predicate.id}"

    def at(self, places: Places) -> np.ndarray:
        """[cells] bool: where it is true."""
        return self.predicate.ask(places) ^ self.negated


Conjunction = tuple[Literal, ...]


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule: one or more conjunctions of literals; it holds where one of them does.

    >>> rule = Rule.parse([["source.category=name", "source.pair=2"]])
    >>> print(rule)
    the source is the second name of a pair joined by *and*
    >>> print(Rule.parse([["destination.comma", "relation.after-copy"]]))
    the destination is a comma and the source follows an earlier copy of the destination
    >>> Rule.from_json(rule.to_json()) == rule
    True
    """

    conjunctions: tuple[Conjunction, ...]

    def __post_init__(self) -> None:
        if not self.conjunctions or not all(self.conjunctions):
            raise HeadwiseError(
                "a rule has at least one conjunction of at least one predicate: this one is empty"
            )

    @classmethod
    def parse(cls, conjunctions: Sequence[Sequence[str]], lexicon: Lexicon = NOTHING) -> Rule:
        """A rule from ids of predicates, ``not`` before those that are denied."""
        return cls(
            tuple(
                tuple(
                    Literal(by_id(one.removeprefix("not "), lexicon), one.startswith("not "))
                    for one in all_of
                )
                for all_of in conjunctions
            )
        )

    def holds(self, texts: Texts, cells: Cells) -> np.ndarray:
        """[cells] bool: where the rule is true."""
        places = Places(texts, cells)
        found = np.zeros(len(cells), dtype=bool)
        for all_of in self.conjunctions:
            found |= np.logical_and.reduce([one.at(places) for one in all_of])
        return found

    def can_turn(self, texts: Texts, cells: Cells) -> np.ndarray:
        """[cells] bool: where other words could make the rule false, or true, although both tokens stay in place."""
        places = Places(texts, cells)
        held = np.zeros(len(cells), dtype=bool)
        possible = np.zeros(len(cells), dtype=bool)
        for all_of in self.conjunctions:
            fixed = [one for one in all_of if one.predicate.kind in POSITIONAL]
            placed = np.logical_and.reduce(
                [np.ones(len(cells), dtype=bool), *(one.at(places) for one in fixed)]
            )
            possible |= placed
            held |= placed & (len(fixed) == len(all_of))
        return possible & ~held

    @property
    def literals(self) -> tuple[Literal, ...]:
        """All literals of all conjunctions."""
        return tuple(one for all_of in self.conjunctions for one in all_of)

    @property
    def ids(self) -> tuple[tuple[str, ...], ...]:
        """The ids of the literals, conjunction by conjunction."""
        return tuple(tuple(one.id for one in all_of) for all_of in self.conjunctions)

    @property
    def is_positional(self) -> bool:
        """Whether it names a position or a distance."""
        return any(one.predicate.kind in POSITIONAL for one in self.literals)

    @property
    def is_identity(self) -> bool:
        """Whether every conjunction rests on one token or word by itself."""
        return all(
            any(one.predicate.kind in IDENTITY and not one.negated for one in all_of)
            for all_of in self.conjunctions
        )

    @property
    def name(self) -> Name:
        """The rule in words."""
        return Name.of(self)

    def to_json(self) -> dict[str, Any]:
        """The ids of its predicates, and digests of the word lists that are not headwise's own."""
        lists = {
            one.predicate.id.partition("=")[2]: one.predicate.digest
            for one in self.literals
            if one.predicate.digest
        }
        found: dict[str, Any] = {"any": [list(all_of) for all_of in self.ids]}
        return {**found, "lists": dict(sorted(lists.items()))} if lists else found

    @classmethod
    def from_json(cls, data: Any, lexicon: Lexicon = NOTHING, where: str = "rule") -> Rule:
        """A rule from its JSON form; word lists from outside must be at hand in ``lexicon``, and the same."""
        read = check(_RuleShape, data, where)
        rule = cls.parse(read.any, lexicon)
        for name, digest in read.lists.items():
            if name not in lexicon.lists or lexicon.digest_of(name) != digest:
                raise HeadwiseError(
                    f"{where}: the word list {name!r} is not the one the rule was found with: give that"
                )
        return rule

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rule) and self.ids == other.ids

    def __hash__(self) -> int:
        return hash(self.ids)

    def __str__(self) -> str:
        return self.name.text

    def __repr__(self) -> str:
        return f"Rule({' | '.join(' & '.join(all_of) for all_of in self.ids)})"


class _RuleShape(Shape):
    any: Row[Row[str]] = Field(min_length=1, max_length=8)
    lists: dict[str, Sha256] = Field(default_factory=dict)


@dataclass(frozen=True)
class Name:
    """What a signal responds to, in words: slot by slot, and as one sentence.

    >>> Rule.parse([["source.category=name", "not source.seen"]]).name.source
    'a name that has not occurred before'
    """

    destination: str
    source: str
    relation: str
    text: str
    rule: Rule | None = None
    """The rule that it was printed from; None for a name that somebody wrote."""
    by: str = "rules"
    """Who gave it: ``rules``, or the name of a language model."""

    @classmethod
    def of(cls, rule: Rule) -> Name:
        """The name that a rule prints as."""
        slots = {slot: either([_slot(all_of, slot) for all_of in rule.conjunctions]) for slot in SLOTS}
        text = either([_sentence(all_of) for all_of in rule.conjunctions], whole=True)
        return cls(**slots, text=text, rule=rule)

    def to_json(self) -> dict[str, Any]:
        """Slots and sentence, and the rule if there is one."""
        found: dict[str, Any] = {
            "destination": self.destination,
            "source": self.source,
            "relation": self.relation,
            "text": self.text,
        }
        return {**found, "rule": self.rule.to_json()} if self.rule else found

    def __str__(self) -> str:
        return self.text


SLOTS: tuple[Slot, ...] = ("destination", "source", "relation")


def _phrases(all_of: Conjunction, slot: Slot) -> list[tuple[Any, bool]]:
    return [(one.predicate.phrase, one.negated) for one in all_of if one.predicate.slot == slot]


def _slot(all_of: Conjunction, slot: Slot) -> str:
    phrases = _phrases(all_of, slot)
    return described(phrases) if phrases else ANYTHING


def _sentence(all_of: Conjunction) -> str:
    parts = [stated(slot, _phrases(all_of, slot)) for slot in SLOTS]
    return " and ".join(part for part in parts if part)
