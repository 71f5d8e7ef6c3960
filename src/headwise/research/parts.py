"""What a work says, the study that tests it, and how its result is read.

A *work* is one of the two works that headwise stands on: the paper (contrastive covariances in QK space) and the talk
(attention from first principles). A *part* is one figure, table or claim of a work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headwise.jsons import read

Work = Literal["paper", "talk"]


@dataclass(frozen=True)
class ResearchStudy:
    """One headwise command with a folder of its own.

    In its words, ``{binding}``, ``{filter}`` and ``{ioi}`` are the tasks that suit the model, and ``{circuits}`` is the
    folder of the study of that name.
    """

    name: str
    words: str
    """Without ``headwise``, model, folder and workers."""
    quick: str
    """The same at a size of seconds or minutes."""
    model: bool = True
    """Whether it is about the model; toys are not."""
    workers: bool = False
    """Whether several processes can share it."""


@dataclass(frozen=True)
class ResearchReading:
    """What came out for one part."""

    here: str
    """The numbers, in a line."""
    supported: bool | None
    """Whether the work's claim holds here; None where nothing is claimed that could fail."""
    rule: str = ""
    """What decided it."""


class StudyLeftOut(Exception):
    """A reading asked for a study that was left out."""

    def __init__(self, study: str) -> None:
        super().__init__(study)
        self.study = study


@dataclass(frozen=True)
class ResearchRuns:
    """The finished studies: what each command printed, by the study's name."""

    folder: Path
    documents: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, study: str) -> Any:
        if study not in self.documents:
            raise StudyLeftOut(study)
        return self.documents[study]

    def rows(self, study: str, table: str) -> list[dict[str, Any]]:
        """A table of a study's run folder."""
        if study not in self.documents:
            raise StudyLeftOut(study)
        import pyarrow.parquet as pq

        return pq.read_table(self.folder / study / f"{table}.parquet").to_pylist()


@dataclass(frozen=True)
class ResearchPart:
    """One figure, table or claim of a work."""

    work: Work
    place: str
    """Where the work says it: ``Figure 2``, or a slide's title."""
    says: str
    """The claim, in our words."""
    number: str
    """The work's own number, or that it gives none."""
    studies: tuple[str, ...]
    """The studies that it is read from; the first one has the figure."""
    read: Callable[[ResearchRuns], ResearchReading]
    figure: str = ""
    """How the caption of its figure in the study's report begins."""
    only: str = ""
    """The preset that it is about, if the work shows it for one model apart: others leave it out."""


def printed_document(file: Path) -> Any:
    """What a study's command printed."""
    return read(file, "a study's result", "delete it, and the study is made again")
