"""Studies that are begun in the app: ``headwise …`` commands of their own, each in a folder that outlives the app.

    DIR/20261117-125501-sinks/study.json   what was asked: enough to begin again where it was left
                              log.txt      what the command said
                              run/         the run folder, which every study continues by itself

What is on disk is what counts: an app that is started again finds every study, and continues those that were not
finished. A study ends with the app that began it, so nothing works on unseen.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headwise import jsons
from headwise.app import wire_runs as wire
from headwise.app.runs import Run
from headwise.errors import HeadwiseError
from headwise.files import write_json, write_text
from headwise.scale.commands import begin_command, end_command
from headwise.strings import printable, shortened
from headwise.validation import check

ASKED, LOG, RUN, PROMPT = "study.json", "log.txt", "run", "prompt.txt"
TAIL = 4000
"""Bytes at the end of the log that are looked at."""
_PROGRESS = re.compile(r"headwise: (.{1,200}?): (\d{1,12}) of (\d{1,12}) \w+(?:, (.{1,40}) left)?")
_STAGE = re.compile(r"headwise: (.{1,200})")
_NAME = re.compile(r"\d{8}-\d{6}-[a-z]{1,12}(-\d{1,4})?")


@dataclass(eq=False)
class BegunStudy:
    """One study: its folder, what was asked, and its process while there is one."""

    path: Path
    asked: wire.StudyAsked
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False
    """Whether its process was ended on purpose."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def run(self) -> Run:
        return Run(self.path / RUN)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def finished(self) -> bool:
        """A run says so itself, and its page is written after it; a single circuit is its page."""
        page = {"trace": "circuit.html", "name": "names.html", "circuits": None}.get(
            self.asked.kind, "report.html"
        )
        return (page is None or (self.path / RUN / page).is_file()) and (
            self.asked.kind == "trace" or self.run.finished
        )

    def entry(self) -> wire.StudyEntry:
        """What becomes of it."""
        log = self._log()
        told = [_PROGRESS.fullmatch(line) for line in log]
        last = next((found for found in reversed(told) if found), None)
        stage = next((found[1] for line in reversed(log) if (found := _STAGE.fullmatch(line))), None)
        failed = self.process is not None and self.process.poll() not in (None, 0) and not self.stopped
        state = (
            "running" if self.running else "finished" if self.finished else "failed" if failed else "stopped"
        )
        return wire.StudyEntry(
            id=self.id,
            kind=self.asked.kind,
            about=self.about,
            trace=self.asked if isinstance(self.asked, wire.TraceStudy) else None,
            state=state,
            stage=None if last is None else last[1],
            done=None if last is None else int(last[2]),
            total=None if last is None else int(last[3]),
            left=None if last is None else last[4],
            said=shortened(stage, 300) if stage is not None and state in ("running", "failed") else None,
        )

    def _log(self) -> list[str]:
        try:
            with (self.path / LOG).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                return [printable(line) for line in file.read().decode("utf-8", "replace").splitlines()]
        except OSError:
            return []

    @property
    def about(self) -> str:
        """What was asked, in a line."""
        if isinstance(self.asked, wire.TraceStudy):
            return f"trace {shortened(printable(self.asked.text), 80)!r}"
        return " ".join(shortened(printable(word), 60) for word in self.arguments()[:-2])

    def arguments(self) -> list[str]:
        """The command, without ``headwise`` and the model."""
        asked, out = self.asked, str(self.path / RUN)
        if isinstance(asked, wire.TraceStudy):
            given = {"answer": asked.answer, "wrong": asked.wrong}
            named = [f"--{name}={value}" for name, value in given.items() if value is not None]
            chat = ["--chat"] if asked.chat else []
            files = ["--save", f"{out}/circuit.json", "--html", f"{out}/circuit.html"]
            return ["trace", *named, *chat, f"--prompt-file={self.path / PROMPT}", *files]
        if isinstance(asked, wire.FamiliesStudy):
            return ["families", *asked.runs, "--seed", str(asked.seed), "--out", out]
        if isinstance(asked, wire.NamesStudy):
            return ["name", asked.source, "--texts", str(asked.texts), "--out", out]
        task = [] if isinstance(asked, wire.SinksStudy) else [asked.task]
        size = [] if asked.prompts is None else ["--prompts", str(asked.prompts)]
        return [asked.kind, *task, *size, "--seed", str(asked.seed), "--out", out]


class Studies:
    """All studies of one folder."""

    def __init__(self, folder: Path, model: str | None, loading: Sequence[str] = ()) -> None:
        """``loading`` is how the model is loaded, in words of the command line."""
        self.folder, self.model, self.loading = folder.absolute(), model, tuple(loading)
        self._lock = threading.Lock()
        self._known: dict[str, BegunStudy] = {}
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if (found := _found(path)) is not None:
                self._known[found.id] = found

    def __iter__(self) -> Iterator[BegunStudy]:
        with self._lock:
            return iter(list(self._known.values()))

    def get(self, name: str) -> BegunStudy:
        if name not in self._known:
            raise HeadwiseError(f"there is no study {shortened(printable(name), 60)!r}: it was taken away")
        return self._known[name]

    def begin(self, asked: wire.StudyAsked) -> BegunStudy:
        """A new study in a folder of its own."""
        with self._lock:
            path = self._place(asked.kind)
            try:
                path.mkdir(parents=True)
                write_json(path / ASKED, asked.model_dump())
                if isinstance(asked, wire.TraceStudy):
                    # The line break at the end of a file is not part of a prompt.
                    write_text(path / PROMPT, asked.text + "\n")
            except OSError as error:
                raise HeadwiseError(
                    f"{str(path)!r} cannot be written ({error.strerror or error}): start the app with another "
                    "folder for studies"
                ) from None
            study = self._known[path.name] = BegunStudy(path, asked)
        self.go_on(study)
        return study

    def _place(self, kind: str) -> Path:
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{kind}"
        taken = [self.folder / name, *(self.folder / f"{name}-{i}" for i in range(2, 1000))]
        return next(path for path in taken if path.name not in self._known and not path.exists())

    def go_on(self, study: BegunStudy) -> None:
        """Begin or continue: the same command, which finds in its folder what is done already."""
        with study.lock:
            if study.running or study.finished:
                return
            model = [] if self.model is None else ["--model", self.model]
            study.stopped = False
            with (study.path / LOG).open("ab") as log:
                study.process = begin_command([*study.arguments(), *model, *self.loading], said=log)

    def stop(self, study: BegunStudy) -> None:
        """End its process; what is done stays."""
        with study.lock:
            if study.process is None or not study.running:
                return
            study.stopped = True
            end_command(study.process)

    def close(self) -> None:
        for study in self:
            self.stop(study)


def _found(path: Path) -> BegunStudy | None:
    """A study that was left there; what is none is left alone."""
    if not _NAME.fullmatch(path.name) or path.is_symlink() or not (path / ASKED).is_file():
        return None
    try:
        data = jsons.read(path / ASKED, "a study", "begin it again")
        return BegunStudy(path.absolute(), check(wire.AnyStudy, {"study": data}, ASKED).study)
    except HeadwiseError:
        return None
