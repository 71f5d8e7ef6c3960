"""All run folders of an app: those that were named on the command line, then those of the studies begun in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headwise.app import wire_runs as wire
from headwise.app.again import RunCircuit
from headwise.app.runs import Run
from headwise.app.studies import BegunStudy, Studies
from headwise.app.tables import tables_of
from headwise.app.watch import FolderWatch
from headwise.app.wire import RunFolderEntry
from headwise.circuits.circuit import Circuit
from headwise.contrast.bank import FeatureBank, banks_of, features_of
from headwise.errors import HeadwiseError, WrongField
from headwise.model.model import Model
from headwise.survey.records import CircuitRun
from headwise.tasks.names import ANSWERS, LABELLED
from headwise.types import Head

FOLDER = "headwise-studies"
"""Where studies are kept unless another folder is named; it is made with the first of them."""


class Shelf:
    """What the routes about runs work with. A folder keeps its number as long as the app runs."""

    def __init__(
        self,
        named: Sequence[Run],
        studies: Path | None,
        model: str | None,
        weight_hash: str = "",
        loading: Sequence[str] = (),
    ) -> None:
        self.named, self.weight_hash = tuple(named), weight_hash
        self._watch: FolderWatch | None = None
        self.studies = Studies(Path(FOLDER) if studies is None else studies, model, loading)

    def watch(self, tell: Callable[[], None]) -> None:
        """Tell from now on whenever a folder is finished, or a study begins or ends."""
        self._watch = FolderWatch(self._looks, tell)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self.studies.close()

    def _looks(self) -> object:
        """What changes when a list of these folders would: cheap enough to be asked every second."""
        return [run.stamp for run in self.runs], [study.running for study in self.studies]

    def use(self, model: str | None, weight_hash: str) -> None:
        """From now on studies are begun with this model, and runs fit it or not."""
        self.studies.model, self.weight_hash = model, weight_hash

    @property
    def runs(self) -> list[Run]:
        return [*self.named, *(study.run for study in self.studies)]

    def run(self, index: int) -> Run:
        """A run folder by its place in the list."""
        runs = self.runs
        if not 0 <= index < len(runs):
            raise HeadwiseError(f"there is no run folder {index}: there are {len(runs)}")
        return runs[index]

    def banks(self, indices: Sequence[int], model: Model) -> list[FeatureBank]:
        """Banks of features by the places of their folders; those of another model are refused."""
        return banks_of([self.run(index).path for index in indices], model) if indices else []

    def entries(self) -> tuple[RunFolderEntry, ...]:
        names = [*(run.path.name for run in self.named), *(study.id for study in self.studies)]
        return tuple(
            self._entry(i, run, name) for i, (run, name) in enumerate(zip(self.runs, names, strict=True))
        )

    def seen(self) -> wire.RunList:
        """Every folder, and what becomes of every study."""
        begun: list[BegunStudy | None] = [*(None for _ in self.named), *self.studies]
        return wire.RunList(
            runs=tuple(
                self._seen(i, run, study) for i, (run, study) in enumerate(zip(self.runs, begun, strict=True))
            ),
            answer_tasks=ANSWERS,
            labelled_tasks=LABELLED,
            folder=str(self.studies.folder),
        )

    def _seen(self, index: int, run: Run, study: BegunStudy | None) -> wire.RunSeen:
        return wire.RunSeen(
            entry=self._entry(index, run, run.path.name if study is None else study.id),
            path=str(run.path),
            finished=run.finished if study is None else study.finished,
            model=run.model,
            tables=tuple(tables_of(run)),
            study=None if study is None else study.entry(),
        )

    def begin(self, asked: wire.StudyAsked) -> wire.StudyEntry:
        self._require_known(asked)
        return self.studies.begin(asked).entry()

    def go_on(self, name: str) -> wire.StudyEntry:
        study = self.studies.get(name)
        self._require_known(study.asked)
        self.studies.go_on(study)
        return study.entry()

    def stop(self, name: str) -> wire.StudyEntry:
        study = self.studies.get(name)
        self.studies.stop(study)
        return study.entry()

    def _require_known(self, asked: wire.StudyAsked) -> None:
        """A study reads no folder but those of this list, whatever its file says."""
        if not isinstance(asked, wire.FamiliesStudy):
            return
        known = {str(run.path) for run in self.runs}
        strange = [one for one in asked.runs if one not in known]
        if strange:
            raise HeadwiseError(
                f"{strange[0]!r} is not among the run folders of this app: name it when the app is started"
            )

    def circuit(self, index: int, number: int) -> RunCircuit:
        """A circuit of a run: of one prompt of many, or the one that was traced whole."""
        run = self.run(index)
        file = run.file("circuit.json")
        if file is not None:
            return RunCircuit(Circuit.load(file))
        found = CircuitRun.load(run.path)
        if not 0 <= number < found.prompts.num_rows:
            raise HeadwiseError(f"the run has no prompt {number}: it has {found.prompts.num_rows}")
        return RunCircuit(found.circuit(number), found.config["tau"], tabled=True)

    def _entry(self, index: int, run: Run, name: str) -> RunFolderEntry:
        fits = run.finished and run.weight_hash == self.weight_hash
        return RunFolderEntry(index=index, name=name, kind=run.kind, pages=run.pages, fits=fits)


def refused_by(banks: Sequence[FeatureBank], head: Head) -> dict[str, Any] | None:
    """What the core says of a head that no bank has features of, and the heads that they have them of."""
    if not banks or any(head in bank.heads for bank in banks):
        return None
    try:
        features_of(banks, head)
    except WrongField as error:
        return {"error": str(error), "where": error.where, "choices": list(error.choices)}
    return None
