"""What a head does as a habit, as values: where it looks, why, who shapes it, and what it does with what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headwise.known_names import channel_id, writer_id
from headwise.types import Component, Estimate, Head, Side
from headwise.why.consequence import TokenEffect
from headwise.why.what import PlaceSplit


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
class MovedToken:
    """A token that the head raises, or lowers, in some cells."""

    token: str
    """The token as text."""
    cells: int
    """In how many of the explained cells it is among the five tokens moved most."""


@dataclass(frozen=True)
class Does:
    """What the head does with what it reads, directly: over the explained cells."""

    copies: Estimate
    """In which share the token that was read is among the five tokens raised most."""
    suppresses: Estimate
    """In which share it is among the five lowered most."""
    foretells: Estimate | None
    """In which share the token that really follows the query is among the five raised most; None where none follows."""
    raised: tuple[MovedToken, ...]
    """The tokens that are raised most often."""
    lowered: tuple[MovedToken, ...]
    """The tokens that are lowered most often."""

    def to_json(self) -> dict[str, Any]:
        return {
            "copies": self.copies.to_json(),
            "suppresses": self.suppresses.to_json(),
            "foretells": None if self.foretells is None else self.foretells.to_json(),
            "raised": [asdict(one) for one in self.raised],
            "lowered": [asdict(one) for one in self.lowered],
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
    lowered: tuple[TokenEffect, ...]
    """The tokens that it lowers most."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.cell.to_json(),
            "position": [self.query, self.key],
            "log_odds": self.log_odds,
            "place": self.place.to_json(),
            "raised": [asdict(one) for one in self.raised],
            "lowered": [asdict(one) for one in self.lowered],
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
