"""What page and server say to each other about studies, run folders and their tables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from headwise.app.wire import RunFolderEntry, SeedNumber, TokenText, WholeText
from headwise.tasks.names import ANSWERS, LABELLED
from headwise.validation import Row, Shape

PromptCount = Annotated[int, Field(ge=2, le=1_000_000)]
AnswerTaskName = Annotated[str, StringConstraints(pattern=rf"\A({'|'.join(ANSWERS)})\z")]
LabelledTaskName = Annotated[str, StringConstraints(pattern=rf"\A({'|'.join(LABELLED)})\z")]
SubjectNames = Annotated[
    str,
    StringConstraints(pattern=r"\A(all heads|L[0-9]{1,4}H[0-9]{1,4}(,\s?L[0-9]{1,4}H[0-9]{1,4}){0,99})\z"),
]
FolderPath = Annotated[str, StringConstraints(min_length=1, max_length=4000)]

# --- studies ---------------------------------------------------------------------------------------------------------


class TraceStudy(Shape):
    """The whole circuit of one prompt."""

    kind: Literal["trace"]
    text: WholeText
    chat: bool = False
    answer: TokenText | None = None
    wrong: TokenText | None = None


class CircuitsStudy(Shape):
    """The circuits of many prompts of a task."""

    kind: Literal["circuits"]
    task: AnswerTaskName
    prompts: PromptCount | None = None
    seed: SeedNumber = 0


class FeaturesStudy(Shape):
    """The heads and features of a task."""

    kind: Literal["features"]
    task: LabelledTaskName
    prompts: PromptCount | None = None
    seed: SeedNumber = 0


class SinksStudy(Shape):
    """Where heads rest, and what makes them."""

    kind: Literal["sinks"]
    prompts: PromptCount | None = None
    seed: SeedNumber = 0


class FamiliesStudy(Shape):
    """What the circuits of runs share; the folders are those that the app was given or has made."""

    kind: Literal["families"]
    runs: Annotated[Row[FolderPath], Field(min_length=1, max_length=20)]
    seed: SeedNumber = 0


class NamesStudy(Shape):
    """What heads respond to, in words."""

    kind: Literal["name"]
    source: SubjectNames
    texts: Annotated[int, Field(ge=2, le=1_000_000)] = 1500


StudyAsked = TraceStudy | CircuitsStudy | FeaturesStudy | SinksStudy | FamiliesStudy | NamesStudy


class AnyStudy(Shape):
    """A study to begin."""

    study: Annotated[StudyAsked, Field(discriminator="kind")]


class StudyToContinue(Shape):
    """A study that was left is to go on; the address names it."""


class StudyEntry(Shape):
    """What becomes of a study."""

    id: str
    kind: str
    about: str
    """The command, without the model."""
    trace: TraceStudy | None
    """The prompt of a circuit that is traced whole."""
    state: Literal["running", "finished", "stopped", "failed"]
    stage: str | None
    done: int | None
    total: int | None
    left: str | None
    """How long it will still take, in words."""
    said: str | None
    """The last line of its log, where it runs or failed."""


# --- run folders -----------------------------------------------------------------------------------------------------


class TableEntry(Shape):
    """A table of a run folder."""

    name: str
    rows: int


class RunSeen(Shape):
    """A run folder with its tables, and the study that makes it, if it was begun here."""

    entry: RunFolderEntry
    path: str
    finished: bool
    model: str | None
    tables: Row[TableEntry]
    study: StudyEntry | None


class RunList(Shape):
    """All run folders: those of the command line first, then those of studies."""

    runs: Row[RunSeen]
    answer_tasks: Row[str]
    labelled_tasks: Row[str]
    folder: str
    """Where studies are kept."""


class ColumnSeen(Shape):
    """A column of a table."""

    name: str
    number: bool
    meaning: str


class RowSeen(Shape):
    """A row, and the place in the app that it speaks of."""

    cells: Row[str | int | float | bool | None]
    place: dict[str, str]
    """Fields of the address: prompt, answers, head, query and key, as far as the row tells."""


class TableSeen(Shape):
    """A piece of a table."""

    columns: Row[ColumnSeen]
    rows: Row[RowSeen]
    total: int
    matching: int
    start: int
