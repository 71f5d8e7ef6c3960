"""The difference between two prompts as a value: one table with differences, and what patched passes say of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headwise.basis_names import BasisName
from headwise.circuits.counterfactual import Outcome
from headwise.tracing.mlps import SignedTotals
from headwise.types import Cell, Component, Head, Side
from headwise.why.proof import ControlTest, Word
from headwise.why.question import Answer, Question
from headwise.why.what import PlaceSplit

Which = Literal["here", "there"]


@dataclass(frozen=True, eq=False)
class OnePrompt:
    """One of two prompts, and the cell that is compared."""

    prompt: str | None
    """The prompt as text; None if token ids were given."""
    tokens: tuple[str, ...]
    """[T]: its tokens as text."""
    cell: Cell
    """The head, the position that attends and the one it attends to."""
    attention: float
    """The cell's softmax weight."""
    log_odds: float
    """log(A / (1 − A)) + log(keys − 1)."""
    keys: int
    """How many keys the row sees."""
    row: tuple[float, ...]
    """[T]: the whole row of attention."""
    place: PlaceSplit
    """Whether the token is read for what it is or for where it is."""
    predicted: str
    """The model's own first choice for the next token."""
    outcome: Outcome
    """The model as it is: attention, and the answer that both prompts are measured by."""


@dataclass(frozen=True)
class Both:
    """One number in both prompts."""

    here: float
    """In the prompt."""
    there: float
    """In the other one."""

    @property
    def difference(self) -> float:
        """Here less there."""
        return self.here - self.there

    def to_json(self) -> dict[str, float]:
        return {"here": self.here, "there": self.there, "difference": self.difference}


@dataclass(frozen=True)
class ChannelDifference:
    """One channel's part of the log-odds in both prompts."""

    channel: int
    """Its number."""
    log_odds: Both
    """Its part in both prompts."""
    stable: bool
    """Whether the channel stays what it is with other texts, so that its number means something."""


@dataclass(frozen=True)
class ReadDifference:
    """What an MLP had read, and its share of the MLP's part in both prompts."""

    here: Component | None
    """The writer that the MLP read here; None where it is in the other prompt alone."""
    there: Component | None
    """The one that stands for it there."""
    log_odds: Both
    """Its share in both prompts."""


@dataclass(frozen=True)
class WriterDifference:
    """One writer's part of the log-odds in both prompts, on one side: a row of the table.

    With neither ``here`` nor ``there`` it is all others together.
    """

    side: Side
    """The side that it wrote into."""
    here: Component | None
    """Who wrote here; None where the writer is in the other prompt alone."""
    there: Component | None
    """Who wrote there: for a head, reading the token that stands for the one it read here."""
    log_odds: Both
    """Its part in both prompts, over all channels."""
    channels: tuple[float, ...]
    """The difference in each channel of :attr:`PromptDifference.shown`."""
    count: int = 1
    """How many writers the row is for."""
    patched: bool = False
    """Whether it belongs to the writers that are patched."""
    through: tuple[ReadDifference, ...] = ()
    """For an MLP of the strongest: what it had read, the largest difference first."""

    @property
    def writer(self) -> Component | None:
        """Who wrote, here or there; None is all others together."""
        return self.here if self.here is not None else self.there


@dataclass(frozen=True, eq=False)
class Patch:
    """One prompt with what some writers wrote in the other one."""

    into: Which
    """The prompt that was run with it."""
    before: Outcome
    """This prompt as it is."""
    other: Outcome
    """The other prompt as it is: where everything would go if all of it followed."""
    after: Outcome
    """This prompt with the other one's signals put in."""
    predicted: float
    """The attention with them, by the algebra."""
    controls: tuple[ControlTest, ...]
    """As much of something else put in."""
    attention: Word
    """Whether the attention follows: ``value`` is the part of the difference in log-odds, ``p`` the largest of the
    controls'."""
    answer: Word
    """Whether the answer follows: ``value`` is the part of its difference in nats; None where the prompts hardly
    differ in it."""


@dataclass(frozen=True, eq=False)
class PromptDifference:
    """Why one head attends from one token to another in one prompt, and less or more so in another."""

    model: str
    """The model's name."""
    weight_hash: str
    """SHA-256 of its weights."""
    here: OnePrompt
    """The prompt."""
    there: OnePrompt
    """The other prompt."""
    alignment: dict[int, int]
    """Positions of the prompt, each with the position of the other one that stands for it."""
    question: Question
    """The cell that is compared, and how it was chosen."""
    answer: Answer
    """The answer that both prompts are measured by."""
    what: tuple[ChannelDifference, ...]
    """Every channel, the largest difference first, whatever its sign."""
    who: tuple[WriterDifference, ...]
    """Each side's writers with the largest differences, then all others together."""
    totals: dict[Side, SignedTotals]
    """What all writers of a side that make the difference larger bring, and what the others take."""
    whole: dict[Side, float]
    """The attention of the prompt that receives with all of one side put in: what the side makes of the difference."""
    side: Side | None
    """The side whose writers are patched; None where no set of writers takes half of the difference along."""
    into: Which
    """The prompt of the larger log-odds, which receives what was written in the other."""
    patch: Patch | None
    """The receiving prompt with the other one's signals put in."""
    back: Patch | None
    """The other way round: the same writers' signals put into the other prompt, for which they were not chosen."""
    error: float
    """How far the differences' sums are from the difference of the log-odds, at most."""
    basis: BasisName
    """What the channels are channels of."""
    seconds: float
    """How long it took."""
    start: int = 0
    """The position id of the first token, in both."""

    @property
    def head(self) -> Head:
        """The head that attends."""
        return self.here.cell.head

    @property
    def log_odds(self) -> Both:
        """The number that is explained."""
        return Both(self.here.log_odds, self.there.log_odds)

    @property
    def shown(self) -> tuple[ChannelDifference, ...]:
        """The channels that have a column of their own in the table."""
        return self.what[:SHOWN]

    @property
    def patched(self) -> tuple[WriterDifference, ...]:
        """The writers that are patched."""
        return tuple(row for row in self.who if row.patched)

    def of(self, side: Side) -> tuple[WriterDifference, ...]:
        """The rows of one side."""
        return tuple(row for row in self.who if row.side == side)

    @property
    def sentence(self) -> str:
        """What a person would say, made from the numbers."""
        from headwise.why.pair.sentence import sentence

        return sentence(self)

    def to_json(self) -> dict[str, Any]:
        """One document (docs: Why here, and not there?)."""
        from headwise.why.pair.document import to_json

        return to_json(self)

    def to_html(self) -> str:
        """One self-contained page with both prompts side by side."""
        from headwise.show.why.difference import difference_report

        return difference_report(self).html()

    def save_html(self, path: str | Path) -> Path:
        """Write the page; a reader never sees half of it."""
        from headwise.show.why.difference import difference_report

        return difference_report(self).write(path)

    def __repr__(self) -> str:
        return f"PromptDifference({self.head}: {self.sentence})"

    def _repr_html_(self) -> str:
        from headwise.show.notebook import prompt_difference

        return prompt_difference(self)


SHOWN = 8
"""Channels that go by their number; all others are one block."""
