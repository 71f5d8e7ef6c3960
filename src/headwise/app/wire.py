"""What page and server say to each other. ``tools/make_wire.py`` makes the page's types from these shapes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from headwise.basis_names import BasisKind
from headwise.validation import Index, Row, Shape, ShortText

WholeText = Annotated[str, StringConstraints(max_length=400_000)]
PromptId = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{32}\z")]
TabId = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{16}\z")]
JobId = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{16}\z")]
HeadName = Annotated[str, StringConstraints(pattern=r"\AL[0-9]{1,4}H[0-9]{1,4}\z")]
NodeId = Annotated[str, StringConstraints(min_length=1, max_length=40)]
TokenText = Annotated[str, StringConstraints(min_length=1, max_length=400)]
Threshold = Annotated[float, Field(gt=0, le=1)]
"""What attention must fall below without its cause."""
DrawCount = Annotated[int, Field(ge=1, le=9999)]
PositionPair = Annotated[Row[Index], Field(min_length=2, max_length=2)]
SeedNumber = Annotated[int, Field(ge=0, lt=2**53)]

# --- what the page asks ----------------------------------------------------------------------------------------------


class TypedText(Shape):
    """A prompt while it is typed: only its tokens are wanted."""

    text: WholeText
    chat: bool = False


class PromptRequest(Shape):
    """A prompt to be read: its text or its token ids."""

    tab: TabId
    text: WholeText | None = None
    token_ids: Row[Index] | None = None
    chat: bool = False
    basis: BasisKind = "singular"


class ModelRequest(Shape):
    """Another model to work with, by its name in the app's list."""

    tab: TabId
    job: JobId
    name: Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class LongText(Shape):
    """A prompt that is too long for an address."""

    text: WholeText


class CellRequest(Shape):
    """A cell to be explained; what is left out is found."""

    tab: TabId
    job: JobId
    """The page names its jobs: what is told of one may arrive before the answer to the request."""
    prompt: PromptId
    head: HeadName | None = None
    query: Index | None = None
    key: Index | None = None
    answer: TokenText | None = None
    wrong: TokenText | None = None
    address: Annotated[str, StringConstraints(max_length=20_000)] = ""
    """Where the page is: the place to offer to another tab, should this one be closed."""
    features: Row[Index] = ()
    """Run folders, by their place in the list of those that were named on the command line."""
    names: Index | None = None
    """A run folder of names, likewise."""
    tau: Threshold | None = None
    draws: DrawCount = 999
    seed: SeedNumber = 0


class CellNamed(Shape):
    """A cell as a person writes it: positions are numbers or the text of their tokens."""

    prompt: PromptId
    head: ShortText | None = None
    query: ShortText | None = None
    key: ShortText | None = None


class DifferenceRequest(Shape):
    """Two prompts whose difference is to be explained; what is left out is found."""

    tab: TabId
    prompt: PromptId
    other: PromptId
    head: HeadName | None = None
    query: Index | None = None
    key: Index | None = None
    answer: TokenText | None = None
    wrong: TokenText | None = None
    align: Annotated[Row[PositionPair], Field(max_length=400)] = ()
    """Positions of the prompt, each with that of the other one that stands for it; those not named are found."""
    draws: DrawCount = 999
    seed: SeedNumber = 0


class WalkRequest(Shape):
    """A circuit as far as it was opened, from the answer or from a cell."""

    tab: TabId
    job: JobId | None = None
    """The name by which it can be saved."""
    prompt: PromptId
    answer: TokenText | None = None
    wrong: TokenText | None = None
    root: NodeId | None = None
    opened: Annotated[Row[NodeId], Field(max_length=400)] = ()


# --- what the server says --------------------------------------------------------------------------------------------


class Refusal(Shape):
    """Every error: one line, what to do about it, and the field that caused it, where these are known."""

    error: str
    hint: str | None = None
    where: str | None = None
    choices: Row[str] = ()
    """What could be given there instead."""


class SelfCheck(Shape):
    """One comparison with the model's own pass."""

    name: str
    error: float
    allowed: float


class RunFolderEntry(Shape):
    """A run folder: one that was named on the command line, or that of a study."""

    index: int
    name: str
    kind: str | None
    """What was studied in it; None where that cannot be read."""
    pages: Row[str]
    fits: bool
    """Whether it is a finished run of the model that the app has loaded."""


class NumberMeaning(Shape):
    """What a number is and how to read it, its formula, and where it comes from."""

    says: str
    formula: str
    source: str


class TermMeaning(Shape):
    """A word of an explanation."""

    term: str
    formula: str
    words: str


class PageGlossary(Shape):
    """What the numbers of a page mean, by the names that it gives them, and how to read an explanation."""

    numbers: dict[str, NumberMeaning]
    terms: Row[TermMeaning]
    captions: dict[str, str]


class AppState(Shape):
    """What the app is working with."""

    version: str
    model: str
    weight_hash: str
    chosen: str
    """The model's name in the list of those that the app may load."""
    models: Row[str]
    layers: int
    heads: int
    context: int | None
    has_chat: bool
    device: str
    threads: int
    self_check: Row[SelfCheck]
    runs: Row[RunFolderEntry]
    glossary: PageGlossary
    examples: Row[Row[str]]
    """Prompts to begin with: what each is about, and its text."""
    keys: Row[Row[str]]
    """What each key does."""


class KeptText(Shape):
    """A prompt that is kept on this machine, and its SHA-256, by which an address names it."""

    digest: str
    text: str


class TokenList(Shape):
    """The tokens of a text."""

    tokens: Row[str]


class TokenChance(Shape):
    """A next token and its probability."""

    token: str
    p: float


class PromptRead(Shape):
    """A prompt that was read."""

    id: str
    tokens: Row[str]
    ids: Row[int]
    answer: Row[TokenChance]
    context_left: int | None
    basis: BasisKind


class MarkedCell(Shape):
    """A cell that ``explain`` would choose."""

    head: str
    query: int
    key: int


class HeadStatistics(Shape):
    """One number per head of this prompt, and of the model's habits on random tokens once they are measured."""

    highest: Row[float]
    entropy: Row[float]
    resting: Row[float]
    brings: Row[float]
    roles: Row[str | None] | None
    habits: dict[str, Row[float]]


class HeadsSeen(Shape):
    """All heads of a prompt."""

    layers: int
    heads: int
    side: int
    """Pixels of a thumbnail."""
    statistics: HeadStatistics
    sinks: Row[int]
    marked: Row[MarkedCell]


class PlaceSaid(Shape):
    """The same without the app."""

    command: str
    python: str


class CellMeant(Shape):
    """The cell that is meant, as far as it was named."""

    head: str | None
    query: int | None
    key: int | None


class Begun(Shape):
    """A job that was begun; what becomes of it is told in the stream of events."""

    job: str
    ahead: int
    """How many come before it."""


class LeftJob(Shape):
    """An explanation that a tab asked for which was closed since."""

    job: str
    about: str
    address: str
    """Where that tab was."""
    done: bool
    error: str | None
    """Why it gave nothing, where it failed."""


class JobList(Shape):
    """What is offered to whoever comes."""

    jobs: Row[LeftJob]
