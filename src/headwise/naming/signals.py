"""What a name is about: a head, a writer of its query or keys, a signal, a channel, a feature, or its sink.

    L23H3                    the head's attention itself
    L23H3 sink               how much of it goes to the first token
    L23H3 key MLP18          all that MLP 18 writes into the head's keys (no basis is in it)
    L23H3 key ch2 MLP18 ++   what it writes along channel 2, where query and key are both positive
    L23H3 ch2 ++             the channel, whoever writes into it
    L23H3 feature colour     a feature of a bank

A channel (u, v) is the same channel as (−u, −v), so cells where both factors are positive and cells where both are
negative are two hypotheses. They are never pooled: a *pole* says which one is meant, by the sign of the query's factor
and the sign of the key's, centred over the visible keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from headwise.errors import HeadwiseError
from headwise.strings import shortened
from headwise.types import Component, Head, Side

Level = Literal["head", "sink", "writer", "signal", "channel", "feature"]
Pole = Literal["++", "--", "+-", "-+"]
POLES: tuple[Pole, ...] = ("++", "--", "+-", "-+")
"""Query's sign, key's sign: the first two attract attention, the others repel it."""
ATTRACTING: tuple[Pole, ...] = ("++", "--")

_CHANNELS = re.compile(r"ch([0-9]{1,6}(?:\+[0-9]{1,6})*)")
_FORMS = "L23H3, 'L23H3 sink', 'L23H3 key MLP18', 'L23H3 key ch2 MLP18 ++' or 'L23H3 ch2 ++'"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a name is about: its identity, and nothing measured.

    >>> Subject.parse("23.3 key ch2+5 MLP18 −−")
    L23H3 key ch2+5 MLP18 --
    >>> [Subject.parse(text).level for text in ("L2H3", "L2H3 sink", "L2H3 query MLP1", "L2H3 ch4 +-")]
    ['head', 'sink', 'writer', 'channel']
    """

    head: Head
    """The head that reads."""
    side: Side | None = None
    """Whether the writer enters its query or its keys; None without a writer."""
    writer: Component | None = None
    """Who writes, whatever token it read; None: everybody."""
    channels: tuple[int, ...] = ()
    """The channels, the leading one first; none: all of them, in no basis."""
    pole: Pole | None = None
    """Which signs are meant; None where there are no channels."""
    feature: str | None = None
    """The name of a feature of a bank."""
    sink: bool = False
    """Whether only the first token is looked at, which is otherwise left out."""

    @property
    def level(self) -> Level:
        """Which kind of thing it is."""
        if self.feature is not None:
            return "feature"
        if self.channels:
            return "channel" if self.writer is None else "signal"
        return "writer" if self.writer is not None else "sink" if self.sink else "head"

    @property
    def own_slot(self) -> Side:
        """Whose token an own-slot negative varies: the side that the signal enters; a sink is left to its queries."""
        if self.sink:
            return "query"
        return self.side or "key"

    @property
    def channel(self) -> Subject:
        """The same channels and pole, whoever writes into them."""
        return Subject(self.head, channels=self.channels, pole=self.pole)

    def poles(self) -> list[Subject]:
        """Itself, or one for each attracting pole where channels come without one."""
        if not self.channels or self.pole is not None:
            return [self]
        return [replace(self, pole=pole) for pole in ATTRACTING]

    @classmethod
    def parse(cls, text: str) -> Subject:
        """Read what :func:`str` writes; the order of side, channels and writer does not matter.

        >>> Subject.parse("L2H3 key nobody")
        Traceback (most recent call last):
        ...
        headwise.errors.HeadwiseError: 'nobody' in 'L2H3 key nobody' is not a side, a channel (ch2), a writer ...
        """
        first, *rest = text.split() or [""]
        head = Head.parse(first)
        if rest[:1] == ["feature"] and len(rest) > 1:
            return cls(head, feature=" ".join(rest[1:]))
        side: Side | None = None
        writer, channels, pole, sink = None, (), None, False
        for part in rest:
            signs = part.replace("−", "-")
            if part in ("query", "key"):
                side = part
            elif part == "sink":
                sink = True
            elif match := _CHANNELS.fullmatch(part):
                channels = tuple(map(int, match[1].split("+")))
            elif signs in POLES:
                pole = signs
            else:
                writer = _writer(part, text)
        made = cls(head, side, writer, channels, pole, sink=sink)
        made._checked(text)
        return made

    def _checked(self, text: str) -> None:
        given = shortened(text)
        if self.writer is not None and self.side is None:
            raise HeadwiseError(f"{given!r} does not say which side {self.writer} enters: add query or key")
        if self.side is not None and self.writer is None and not self.channels:
            raise HeadwiseError(
                f"{given!r} names a side and no writer: add one, such as '{self.head} {self.side} MLP0'"
            )
        if self.pole is not None and not self.channels:
            raise HeadwiseError(
                f"{given!r} has a pole and no channel: poles are signs of a channel's factors"
            )
        if len(set(self.channels)) < len(self.channels):
            raise HeadwiseError(f"{given!r} names a channel twice")
        if self.sink and (self.writer is not None or self.channels):
            raise HeadwiseError(f"{given!r} is not a sink's control: write '{self.head} sink'")
        if self.writer is not None and self.writer.layer >= self.head.layer:
            raise HeadwiseError(
                f"{given!r} cannot be: {self.writer} writes after {self.head} has read; name a layer below it"
            )

    def __str__(self) -> str:
        if self.feature is not None:
            return f"{self.head} feature {self.feature}"
        parts = [
            str(self.head),
            # a channel belongs to no side: whoever wrote it, query and key are both in it
            self.side if self.writer is not None else None,
            f"ch{'+'.join(map(str, self.channels))}" if self.channels else None,
            None if self.writer is None else self.writer.name,
            self.pole,
            "sink" if self.sink else None,
        ]
        return " ".join(part for part in parts if part)

    __repr__ = __str__


def _writer(part: str, text: str) -> Component:
    try:
        found = Component.parse(part)
    except HeadwiseError:
        raise HeadwiseError(
            f"{shortened(part)!r} in {shortened(text)!r} is not a side, a channel (ch2), a writer (MLP18) or a "
            f"pole (++): write {_FORMS}"
        ) from None
    # a name holds for a writer wherever it reads
    return replace(found, source=-1)
