"""Every figure and table of a work, by headwise's own commands, one after the other; interrupted, it continues.

OUT/binding/        the run folder of the study *binding*, with its report
OUT/binding.json    what its command printed: the study is finished
OUT/binding.txt     what its command said
OUT/reproduced.json claim by claim: what the work says, what came out, whether it holds
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.files import write_json
from headwise.progress import Progress, stages
from headwise.research.paper import PAPER
from headwise.research.parts import (
    ResearchPart,
    ResearchReading,
    ResearchRuns,
    ResearchStudy,
    StudyLeftOut,
    Work,
    printed_document,
)
from headwise.research.place import begin_folder
from headwise.research.presets import Preset, askable, preset_for, with_files
from headwise.research.studies import STUDIES
from headwise.research.talk import TALK
from headwise.scale.commands import begin_command, end_command
from headwise.strings import shortened

PARTS: dict[Work, tuple[ResearchPart, ...]] = {"paper": PAPER, "talk": TALK}
FILE = "reproduced.json"
SCHEMA = 1
REFUSED = 2
"""The exit status of a command that said in one line why it cannot be done."""


@dataclass(frozen=True)
class ReproducedPart:
    """One part of the work, and what came out."""

    part: ResearchPart
    """What the work says, and where."""
    reading: ResearchReading | None
    """What came out here; None if it was left out."""
    why_not: str
    """Why it was left out, if it was."""
    commands: tuple[str, ...]
    """The commands that made it."""

    def to_json(self) -> dict[str, Any]:
        """One row of the table."""
        found = self.reading
        return {
            "place": self.part.place,
            "says": self.part.says,
            "number": self.part.number,
            "here": None if found is None else found.here,
            "supported": None if found is None else found.supported,
            "rule": None if found is None else found.rule,
            "left_out": self.why_not or None,
            "studies": list(self.part.studies),
            "commands": list(self.commands),
        }


@dataclass(frozen=True)
class Reproduced:
    """A whole work: its parts in its order."""

    work: Work
    """Which of the two."""
    model: str
    """The model it was made with."""
    quick: bool
    """Whether at the small size."""
    parts: tuple[ReproducedPart, ...]
    """In the work's order."""
    folder: Path
    """Where the studies are."""

    @property
    def supported(self) -> int:
        """How many claims hold here."""
        return sum(one.reading is not None and one.reading.supported is True for one in self.parts)

    @property
    def claims(self) -> int:
        """How many could fail."""
        return sum(one.reading is not None and one.reading.supported is not None for one in self.parts)

    def to_json(self) -> dict[str, Any]:
        """The document beside the report."""
        return {
            "schema": SCHEMA,
            "kind": "reproduced",
            "work": self.work,
            "model": self.model,
            "quick": self.quick,
            "claims": self.claims,
            "supported": self.supported,
            "parts": [one.to_json() for one in self.parts],
        }


def reproduce(
    work: Work,
    model: str | None = None,
    *,
    out: str | Path,
    quick: bool = False,
    engine: Sequence[str] = (),
    loading: Sequence[str] = (),
    progress: Progress | None = None,
) -> Reproduced:
    """Make every figure and table of a work again, and read off whether what it says holds here.

    Parameters
    ----------
    work:
        ``paper`` or ``talk``.
    model:
        A preset (:data:`~headwise.research.presets.PRESETS`), a hub id or a folder; None is the default model.
    out:
        The folder of all studies. The same call continues there.
    quick:
        Everything at a small size: minutes instead of a night.
    engine:
        Words for every study that several processes can share, such as ``--workers 2``.
    loading:
        Words for every study that loads the model, such as ``--dtype=bfloat16``.
    progress:
        Told of every study.

    Returns
    -------
    Reproduced
        Part by part: what the work says, what came out, and whether that supports it.
    """
    if work not in PARTS:
        raise HeadwiseError(f"there is no work {work!r}: write paper or talk")
    folder = Path(out)
    preset = preset_for(model)
    begin_folder(folder, {"work": work, "model": preset.name, "quick": quick})
    preset = askable(with_files(preset, folder))
    begin = stages(progress)
    documents: dict[str, Any] = {}
    commands: dict[str, str] = {}
    left: dict[str, str] = {}
    for number, study in enumerate(STUDIES[work], 1):
        words = study_words(study, preset, folder, quick=quick, engine=engine, loading=loading)
        if isinstance(words, Missing):
            left[study.name] = words.why
            continue
        begin(f"{study.name} ({number} of {len(STUDIES[work])})", 1)
        made = _made(study.name, words, folder)
        if isinstance(made, Missing):
            left[study.name] = made.why
            continue
        commands[study.name] = "headwise " + shlex.join(words)
        documents[study.name] = made
    runs = ResearchRuns(folder, documents)
    found = Reproduced(
        work,
        preset.name,
        quick,
        tuple(_read(part, runs, commands, left, preset) for part in PARTS[work]),
        folder,
    )
    write_json(folder / FILE, found.to_json())
    return found


@dataclass(frozen=True)
class Missing:
    """A study that this model cannot be asked."""

    why: str


def study_words(
    study: ResearchStudy,
    preset: Preset,
    folder: Path,
    *,
    quick: bool,
    engine: Sequence[str] = (),
    loading: Sequence[str] = (),
) -> list[str] | Missing:
    """The study's command, without ``headwise``; or why there is none."""
    words: list[str] = []
    for word in (study.quick if quick else study.words).split(" "):
        if not word.startswith("{"):
            words.append(word)
            continue
        name = word.strip("{}")
        if name == "circuits":
            words.append(str(folder / name))
        elif name in preset.tasks:
            words += shlex.split(preset.tasks[name])
        elif name in preset.cannot:
            return Missing(f"{preset.name} cannot be asked {name}: {preset.cannot[name]}")
        else:
            return Missing(f"{preset.name} has no task {name}")
    if words[0] == "features" and words[1].endswith(".jsonl"):
        words = _without_sizes(words)
    if study.model and preset.model is not None:
        words += ["--model", preset.model]
    if study.model:
        words += loading
    return [*words, *(engine if study.workers else ()), "--out", str(folder / study.name)]


def _without_sizes(words: Sequence[str]) -> list[str]:
    """A file of labelled prompts is taken whole.

    >>> _without_sizes(["features", "a.jsonl", "--prompts", "90", "--draws", "100"])
    ['features', 'a.jsonl', '--draws', '100']
    """
    kept = list(words)
    for option in ("--prompts", "--scan", "--test"):
        if option in kept:
            at = kept.index(option)
            del kept[at : at + 2]
    return kept


def _made(name: str, words: Sequence[str], folder: Path) -> Any:
    """What the study's command printed, now or before; or why this model was refused, which ends no other study."""
    file, log = folder / f"{name}.json", folder / f"{name}.txt"
    kept = printed_document(file) if file.is_file() else None
    if kept is not None and kept.get("command") == list(words):
        return kept["document"]
    if kept is not None:
        raise HeadwiseError(
            f"{str(file)!r} is of another command ({shortened(shlex.join(kept.get('command') or []), 80)}): "
            "give another folder"
        )
    part = folder / f"{name}.part"
    with log.open("ab") as said, part.open("wb") as printed:
        process = begin_command([*words, "--json"], said=said, printed=printed)
        try:
            code = process.wait()
        except BaseException:
            end_command(process)
            raise
    if code:
        part.unlink()
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["nothing"]
        told = shortened(lines[-1].removeprefix("headwise: "), 300)
        if code == REFUSED:
            return Missing(told)
        raise HeadwiseError(f"the study {name} ended with {code}: {told} (see {str(log)!r})")
    document = printed_document(part)
    write_json(file, {"command": list(words), "document": document})
    part.unlink()
    return document


def _read(
    part: ResearchPart,
    runs: ResearchRuns,
    commands: Mapping[str, str],
    left: Mapping[str, str],
    preset: Preset,
) -> ReproducedPart:
    if part.only and part.only != preset.name:
        return ReproducedPart(part, None, f"it is about another model, {part.only}", ())
    made = tuple(commands[name] for name in part.studies if name in commands)
    if not made:
        return ReproducedPart(part, None, left[part.studies[0]], ())
    try:
        return ReproducedPart(part, part.read(runs), "", made)
    except StudyLeftOut as one:
        return ReproducedPart(part, None, left[one.study], ())
