"""What is known about one head, as values: where it looks, why, who shapes it, and what it does with what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from headwise.basis_names import BasisName
from headwise.contrast.roles import HeadRole
from headwise.known_names import KnownNames, NamesLike, channel_id, sink_id, writer_id
from headwise.sinks.find import PARKED
from headwise.types import Component, Estimate, Head, Side
from headwise.why.consequence import TokenEffect
from headwise.why.what import PlaceSplit

SCHEMA = 1


@dataclass(frozen=True)
class CellInContext:
    """One cell and the tokens around it."""

    text: int
    """The number of its text."""
    tokens: tuple[str, ...]
    """The tokens around the two."""
    destination: int
    """Which of them attends."""
    source: int
    """Which of them it attends to."""
    value: float
    """The cell's attention; of a writer or a channel, how strongly it acts there (in logits)."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "tokens": list(self.tokens)}


@dataclass(frozen=True)
class SinkPlace:
    """A position that is a sink of many texts."""

    position: int
    """Where it is."""
    share: float
    """In which share of the texts it is a sink."""
    received: float
    """The mean attention that it receives over heads and rows away from it."""


@dataclass(frozen=True)
class Decile:
    """A tenth of the rows, by the attention of their strongest cell off the sinks."""

    low: float
    """The least attention in it."""
    high: float
    """The most."""
    cells: tuple[CellInContext, ...]
    """Some of its cells, drawn at random."""

    def to_json(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "cells": [one.to_json() for one in self.cells]}


@dataclass(frozen=True)
class TokenShare:
    """A token and its share of the attention."""

    token: str
    """The token as text."""
    share: float
    """Of the attention of all rows' strongest cells."""
    frequency: float
    """Of all tokens of the texts: a head that does not care would give this."""


@dataclass(frozen=True)
class DistanceShare:
    """How much of the attention goes so many positions back."""

    low: int
    """From so many positions back."""
    high: int | None
    """To so many; None is any number more."""
    share: float
    """Of the attention of all rows' strongest cells."""


@dataclass(frozen=True)
class Looks:
    """Where the head looks: of every row that sees enough keys, the strongest cell that is on no sink."""

    rows: int
    """How many rows there are."""
    most: float
    """The largest attention of them all."""
    strongest: tuple[CellInContext, ...]
    """The strongest cells, at most one per text."""
    deciles: tuple[Decile, ...]
    """Tenths of the rows, the strongest first."""
    to: tuple[TokenShare, ...]
    """The tokens that it attends to, by their share of the attention."""
    of: tuple[TokenShare, ...]
    """The tokens that attend."""
    distances: tuple[DistanceShare, ...]
    """How far back; the shares sum to one."""

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "most": self.most,
            "strongest": [one.to_json() for one in self.strongest],
            "deciles": [one.to_json() for one in self.deciles],
            "to": [asdict(one) for one in self.to],
            "from": [asdict(one) for one in self.of],
            "distances": [asdict(one) for one in self.distances],
        }


@dataclass(frozen=True)
class PlaceHabit:
    """Place or content, over the explained cells: mean parts of the log-odds, with their signs."""

    content: Estimate
    """What the token is, wherever it is."""
    place: Estimate
    """Where it is, whatever it is."""
    interaction: Estimate
    """What only both together make."""
    level: Estimate
    """All logits together; 0 without a soft-cap."""
    reasons: Mapping[str, float]
    """In which share of the cells each part helps most; the shares sum to one."""

    @property
    def reason(self) -> str:
        """The part that helps most in most cells."""
        return max(self.reasons, key=lambda name: self.reasons[name])

    def to_json(self) -> dict[str, Any]:
        names = ("content", "place", "interaction", "level")
        return {name: getattr(self, name).to_json() for name in names} | {"reasons": dict(self.reasons)}


@dataclass(frozen=True)
class WriterHabit:
    """A writer that shapes the head's query or keys, over the explained cells."""

    side: Side
    """The side that it writes into."""
    writer: Component
    """Who writes, whatever token it read."""
    often: Estimate
    """In which share of the cells it is among the three largest of its side."""
    log_odds: Estimate
    """Its mean part of the log-odds."""
    strongest: tuple[CellInContext, ...] = ()
    """Where it acts most strongly in all texts."""

    def signal(self, head: Head) -> str:
        """What it is as ``headwise name`` writes it."""
        return writer_id(head, self.side, self.writer)

    def to_json(self) -> dict[str, Any]:
        return {
            "side": self.side,
            "writer": self.writer.name,
            "often": self.often.to_json(),
            "log_odds": self.log_odds.to_json(),
            "strongest": [one.to_json() for one in self.strongest],
        }


@dataclass(frozen=True)
class ChannelHabit:
    """A stable channel of the head, over the explained cells."""

    channel: int
    """Its number."""
    pole: str
    """The signs of query and key with which it attracts attention more often: ``++`` or ``--``."""
    often: Estimate
    """In which share of the cells it is among the three largest stable channels."""
    log_odds: Estimate
    """Its mean part of the log-odds."""
    strongest: tuple[CellInContext, ...] = ()
    """Where it acts most strongly in all texts."""

    def signal(self, head: Head) -> str:
        """What it is as ``headwise name`` writes it."""
        return channel_id(head, (self.channel,), self.pole)

    def to_json(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "pole": self.pole,
            "often": self.often.to_json(),
            "log_odds": self.log_odds.to_json(),
            "strongest": [one.to_json() for one in self.strongest],
        }


@dataclass(frozen=True)
class RaisedToken:
    """A token that the head raises in several cells."""

    token: str
    """The token as text."""
    cells: int
    """In how many of the explained cells it is among the tokens raised most."""


@dataclass(frozen=True)
class Does:
    """What the head does with what it reads, directly: over the explained cells."""

    copies: Estimate
    """In which share the token that was read is among the tokens raised most."""
    foretells: Estimate | None
    """In which share the token that really follows the query is among them; None where none follows."""
    raised: tuple[RaisedToken, ...]
    """The tokens that are raised most often."""

    def to_json(self) -> dict[str, Any]:
        return {
            "copies": self.copies.to_json(),
            "foretells": None if self.foretells is None else self.foretells.to_json(),
            "raised": [asdict(one) for one in self.raised],
        }


@dataclass(frozen=True)
class ExplainedCell:
    """One cell with its account: the same numbers that an explanation of it has."""

    cell: CellInContext
    """The cell and its attention."""
    query: int
    """The position that attends, in its text."""
    key: int
    """The position that it attends to."""
    log_odds: float
    """log(A / (1 − A)) + log(keys − 1): what place and content, writers and channels sum to."""
    place: PlaceSplit
    """Its log-odds by place and content."""
    raised: tuple[TokenEffect, ...]
    """The tokens that it raises most."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.cell.to_json(),
            "position": [self.query, self.key],
            "log_odds": self.log_odds,
            "place": self.place.to_json(),
            "raised": [asdict(one) for one in self.raised],
        }


@dataclass(frozen=True)
class Account:
    """Why the head attends where it does, over cells of its strongest tenth, one per text."""

    cells: tuple[ExplainedCell, ...]
    """The cells."""
    place: PlaceHabit
    """Place or content."""
    writers: tuple[WriterHabit, ...]
    """Who shapes its query, then its keys; of each side those that do so most often."""
    channels: tuple[ChannelHabit, ...]
    """Its stable channels that count most often."""
    does: Does
    """What it does with what it reads."""

    def of(self, side: Side) -> tuple[WriterHabit, ...]:
        """The writers of one side."""
        return tuple(one for one in self.writers if one.side == side)

    def to_json(self) -> dict[str, Any]:
        return {
            "cells": [one.to_json() for one in self.cells],
            "place": self.place.to_json(),
            "writers": [one.to_json() for one in self.writers],
            "channels": [one.to_json() for one in self.channels],
            "does": self.does.to_json(),
        }


@dataclass(frozen=True, kw_only=True)
class HeadPortrait:
    """Everything known about one head."""

    head: Head
    """The head."""
    model: str
    """The model's name."""
    weight_hash: str
    """The digest of its weights."""
    corpus: str
    """The texts that were read, by name."""
    texts: int
    """How many texts."""
    tokens: int
    """How many tokens they have together."""
    basis: BasisName
    """What its channels are channels of."""
    role: HeadRole | None
    """What it does on random tokens that are read twice; None for a model that is too small for that."""
    on_sinks: Estimate | None
    """Its mean attention on sinks, over texts; None where no text has one."""
    sinks: tuple[SinkPlace, ...]
    """Where these texts have sinks most often."""
    looks: Looks
    """Where it looks beside sinks."""
    account: Account | None
    """Why, and what it does then; None for a head that never attends beyond sinks."""
    picture: tuple[str, ...]
    """Its attention over the first tokens of one text, a row per query: two hexadecimal digits per key, the square root
    of the attention from 00 to ff."""

    @property
    def kind(self) -> str:
        """Its role in a word or two: on random tokens, else ``rests on sinks`` or what makes it attend."""
        if self.role is not None and self.role.role is not None and self.role.role != "first token":
            return self.role.role
        if self.account is None or (self.on_sinks is not None and self.on_sinks.low > PARKED):
            return "rests on sinks"
        return {"content": "by content", "place": "by place"}.get(self.account.place.reason, "by both")

    @property
    def subjects(self) -> list[str]:
        """What of it may have a name, as ``headwise name`` writes it."""
        found = [str(self.head), sink_id(self.head)]
        if self.account is not None:
            some = (*self.account.writers, *self.account.channels)
            found += [one.signal(self.head) for one in some]
        return found

    def known(self, names: NamesLike | None) -> KnownNames | None:
        """Names that fit: of this model, and those of channels only in this basis."""
        return None if names is None else KnownNames.of(names).fit(self.model, self.weight_hash, self.basis)

    def to_json(self, names: NamesLike | None = None) -> dict[str, Any]:
        """One document; with names, those of what it mentions."""
        known = self.known(names)
        return {
            "schema": SCHEMA,
            "kind": "head",
            "head": str(self.head),
            "model": self.model,
            "weight_hash": self.weight_hash,
            "corpus": self.corpus,
            "texts": self.texts,
            "tokens": self.tokens,
            "basis": self.basis.to_json(),
            "described": self.kind,
            "role": None if self.role is None else self.role.to_json(),
            "on_sinks": None if self.on_sinks is None else self.on_sinks.to_json(),
            "sinks": [asdict(one) for one in self.sinks],
            "looks": self.looks.to_json(),
            "account": None if self.account is None else self.account.to_json(),
            "picture": list(self.picture),
            **({} if known is None else {"names": known.to_json(self.subjects)}),
        }

    def with_strongest(self, cells: Mapping[str, tuple[CellInContext, ...]]) -> HeadPortrait:
        """The same with the strongest cells of its writers and channels, by what they are."""
        if self.account is None:
            return self

        def placed(one: Any) -> Any:
            return replace(one, strongest=cells.get(one.signal(self.head), ()))

        account = replace(
            self.account,
            writers=tuple(map(placed, self.account.writers)),
            channels=tuple(map(placed, self.account.channels)),
        )
        return replace(self, account=account)

    def _repr_html_(self) -> str:
        from headwise.show.notebook import head_portrait

        return head_portrait(self)

    def __repr__(self) -> str:
        why = (
            ""
            if self.account is None
            else f", {self.account.place.reason} in {len(self.account.cells)} cells"
        )
        return f"HeadPortrait({self.head} of {self.model!r}: {self.kind}{why})"
