"""The stages of a study: each a job over chunks of prompts, by one engine, kept in the run's folder if there is one.

    run = Stages(engine_for(model, workers), folder, stages(progress))
    parts = run("circuits", UseJob(), cut(prompts, 8))

A stage may begin with what earlier ones found: that too is the same after any interruption.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headwise.progress import Begin, stages
from headwise.scale.disk import disk_trouble_told
from headwise.scale.engines import Engine, Item, Job, Made, ThisProcess
from headwise.scale.folder import RunFolder
from headwise.scale.mapping import map_chunks
from headwise.scale.values import value_bytes, value_from, values_bytes, values_from
from headwise.scale.work import Chunk

if TYPE_CHECKING:
    from headwise.model.model import Model

Value = TypeVar("Value")


class Stages:
    """Goes through the stages of one study, one after the other."""

    def __init__(self, engine: Engine, folder: RunFolder | None = None, begin: Begin | None = None) -> None:
        self.engine, self.folder, self.begin = engine, folder, begin or stages(None)
        self.number = 0
        self.done = 0

    @classmethod
    def here(cls, model: Model) -> Stages:
        """In this process, keeping nothing."""
        return cls(ThisProcess(model))

    def __call__(self, name: str, job: Job[Item, Made], chunks: Sequence[Chunk[Item]]) -> list[Made]:
        """What the job makes of each chunk: read where it is kept already, else made and kept."""
        keeper = self.folder.keeper(self.number) if self.folder else None
        self.number += 1
        tick, parts = self.begin(name, sum(len(chunk) for chunk in chunks)), list[Made]()
        with closing(map_chunks(job, chunks, engine=self.engine, keeper=keeper, tick=tick)) as made:
            for part in made:
                parts.append(part)
                self.done += 1
        return parts

    def trouble_told(self) -> AbstractContextManager[None]:
        """Errors of the folder's disk as one line that says what is kept."""
        if self.folder is None:
            return nullcontext()
        return disk_trouble_told(self.folder.path, lambda: f"{self.done} finished parts of the work are kept")


class ValueJob:
    """The bytes of a job that makes one value of a chunk."""

    kind: ClassVar[Any]

    def to_bytes(self, made: Any, /) -> bytes:
        return value_bytes(made)

    def from_bytes(self, content: bytes, /) -> Any:
        return value_from(self.kind, content)


class ValuesJob:
    """The bytes of a job that makes a list of values of one kind."""

    kind: ClassVar[Any]

    def to_bytes(self, made: list[Any], /) -> bytes:
        return values_bytes(made)

    def from_bytes(self, content: bytes, /) -> list[Any]:
        return values_from(self.kind, content)


def batched(batches: Sequence[Sequence[Item]]) -> list[Chunk[Item]]:
    """Batches that are made already, as chunks.

    >>> batched(["ab", "c"])
    [Chunk(start=0, items=('a', 'b')), Chunk(start=2, items=('c',))]
    """
    chunks, start = [], 0
    for batch in batches:
        chunks.append(Chunk(start, tuple(batch)))
        start += len(batch)
    return chunks
