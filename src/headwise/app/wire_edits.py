"""What page and server say to each other about the bench, and about taking a screen along."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from headwise.app.wire import (
    DrawCount,
    HeadName,
    NodeId,
    PositionPair,
    PromptId,
    SeedNumber,
    TabId,
    Threshold,
    TokenText,
    WholeText,
)
from headwise.validation import Index, Row, Shape

WriterName = Annotated[str, StringConstraints(pattern=r"\A[A-Za-z]{1,12}[0-9]{0,4}(H[0-9]{1,4})?\z")]
FeatureText = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Dose = Annotated[float, Field(ge=-1, le=1)]
"""How much of it leaves: 1 is all, 0.5 half; -1 puts as much in once more."""

ForwardDose = Annotated[float, Field(ge=0, le=1)]
"""A dose of what cannot be done the other way round."""


class NamedWriter(Shape):
    """A writer as a table names it."""

    writer: WriterName
    reads: Index | None = None


class NamedSignal(Shape):
    """A writer as a table names it, in some channels of the head that reads it."""

    writer: WriterName
    reads: Index | None = None
    channels: Annotated[Row[Index], Field(min_length=1, max_length=1024)]


AnyWriter = NamedWriter | NamedSignal


class RemoveWriters(Shape):
    """Take what whole writers wrote from the query or the keys of the cell."""

    kind: Literal["remove"]
    side: Literal["query", "key"]
    writers: Annotated[Row[NamedWriter], Field(min_length=1, max_length=200)]
    dose: Dose = 1.0


class RemoveSignals(Shape):
    """Take what writers wrote into some channels from the query or the keys of the cell."""

    kind: Literal["signals"]
    side: Literal["query", "key"]
    signals: Annotated[Row[NamedSignal], Field(min_length=1, max_length=200)]
    dose: Dose = 1.0


class RemoveChannels(Shape):
    """Take whole channels, whoever wrote into them, from the query or the keys of the cell."""

    kind: Literal["channels"]
    side: Literal["query", "key"]
    channels: Annotated[Row[Index], Field(min_length=1, max_length=1024)]
    dose: Dose = 1.0


class RemoveFeature(Shape):
    """Take a named feature from the query or the keys of the cell."""

    kind: Literal["feature"]
    side: Literal["query", "key"]
    feature: FeatureText
    dose: Dose = 1.0


class SwapKeys(Shape):
    """Exchange the key of the cell with that of another token, all of it or inside a named feature."""

    kind: Literal["swap"]
    other: Index
    feature: FeatureText | None = None
    dose: ForwardDose = 1.0


class RemoveEdge(Shape):
    """Take an edge of a circuit away: a signal into another cell, for that head alone or for all above it."""

    kind: Literal["edge"]
    head: HeadName
    query: Index
    key: Index
    side: Literal["query", "key"]
    signal: NamedSignal
    scope: Literal["local", "global"] = "local"
    dose: Dose = 1.0


class SilenceHead(Shape):
    """Let a head write nothing at a position, or at all."""

    kind: Literal["silence"]
    head: HeadName
    position: Index | None = None
    dose: Dose = 1.0


class CutCell(Shape):
    """Take the cell's own attention, and share it out among the other tokens."""

    kind: Literal["cut"]
    dose: ForwardDose = 1.0


class PatchHead(Shape):
    """Let a head write at a position what it writes there in another prompt of as many tokens."""

    kind: Literal["patch"]
    head: HeadName
    position: Index
    source: PromptId
    dose: ForwardDose = 1.0


AnyEdit = Annotated[
    RemoveWriters
    | RemoveSignals
    | RemoveChannels
    | RemoveFeature
    | SwapKeys
    | RemoveEdge
    | SilenceHead
    | CutCell
    | PatchHead,
    Field(discriminator="kind"),
]


class EditPlan(Shape):
    """What to change in the running model, and the cell and answer that are watched."""

    tab: TabId
    prompt: PromptId
    head: HeadName
    query: Index
    key: Index
    answer: TokenText | None = None
    wrong: TokenText | None = None
    edits: Annotated[
        Row[AnyEdit],
        Field(min_length=1, max_length=50),
    ]
    features: Row[Index] = ()
    """Run folders of the named features, as in a request for a cell."""
    dose: ForwardDose = 1.0
    """Of everything; every edit's own is multiplied by it."""
    draws: DrawCount = 999
    seed: SeedNumber = 0


class PlaceAsked(Shape):
    """What is on a screen, to be had as a command and as Python."""

    screen: Literal["prompt", "heads", "cell", "circuit", "compare", "runs"]
    text: WholeText
    chat: bool = False
    head: HeadName | None = None
    query: Index | None = None
    key: Index | None = None
    answer: TokenText | None = None
    wrong: TokenText | None = None
    features: Row[Index] = ()
    names: Index | None = None
    edits: Annotated[Row[AnyEdit], Field(max_length=50)] = ()
    dose: ForwardDose = 1.0
    other: WholeText = ""
    align: Annotated[Row[PositionPair], Field(max_length=400)] = ()
    root: NodeId | None = None
    opened: Annotated[Row[NodeId], Field(max_length=400)] = ()
    """Of a circuit: the cell where it begins, and the boxes that were opened."""
    run: Index | None = None
    tau: Threshold | None = None
    draws: DrawCount = 999
    seed: SeedNumber = 0


class OutcomeSeen(Shape):
    """What the model does in one state."""

    attention: float
    probability: float
    lead: float
    log_probability: float


class DrawnSpread(Shape):
    """Mean of some draws, and where 90 % of them lie."""

    mean: float
    low: float
    high: float


class ControlSeen(Shape):
    """One kind of control: the cell's attention, and the change of the answer."""

    name: str
    text: str
    draws: int
    attention: DrawnSpread
    attention_p: float | None
    """How likely a control takes as much attention; None where attention was not what was edited."""
    tried: int
    change: DrawnSpread
    p: float
    """How likely a control changes the answer as much."""


class TokenChange(Shape):
    """A next token before and after."""

    token: str
    before: float
    after: float


class ClaimSeen(Shape):
    """What a test says: its null, how often that was drawn, p, q over its group, and whether the claim holds."""

    null: str
    draws: int
    p: float
    q: float
    group: str
    supported: bool


class EditSeen(Shape):
    """Before, predicted, observed, and as much of something else."""

    before: OutcomeSeen
    predicted: float | None
    """The cell's attention by the algebra; None where an edit reaches it through the whole model."""
    after: OutcomeSeen
    change: float
    measured_by: Literal["log_probability", "lead"]
    controls: Row[ControlSeen]
    claim: ClaimSeen | None
    """That the answer changes by more than chance; None where nothing could be changed instead."""
    top: Row[TokenChange]
