"""Names by a language model: one that passed its exam explains explored cells and judges test cells.

Everything that is asked goes through here: what it will cost is told and capped first, the exam comes before the
corpus passes through the model under study, and answers are kept until the run is finished, so that one that was
interrupted asks nothing twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.naming.cells import Cells
from headwise.naming.examine import BANDS, SHOWN, Cases, TriedName
from headwise.naming.llm.chat import Bill, Chat, Endpoint, Remembered
from headwise.naming.llm.choice import LlmChoice
from headwise.naming.llm.explainer import ANSWER, NEGATIVES, POSITIVES, explained
from headwise.naming.llm.judge import Exam, Judge, ScoredJudge, WritingJudge, bill, exam_of, examined, label
from headwise.naming.llm.prompts import explain_prompt
from headwise.naming.reservoir import KEPT
from headwise.naming.result import ANSWERS, Words
from headwise.naming.rules import Name
from headwise.naming.statistics import too_rare
from headwise.progress import notice
from headwise.randomness import keyed
from headwise.scale.disk import Interrupted
from headwise.strings import counted

if TYPE_CHECKING:
    from headwise.naming.texts import Texts
    from headwise.scale.stages import Stages

BAND = 20
"""Cells of each band that are judged."""
EXAM_CELLS = 4000
"""Random cells that the exam is drawn from."""
FOLDER = "answers"
"""Kept answers of an unfinished run, in its work folder."""
_LONG = Name("a" * 90, "a" * 90, "a" * 90, "a" * 250)
"""A name as long as names are, for an estimate of costs."""


@dataclass(frozen=True)
class LlmNamer:
    """A language model that may name: who explains, who judges, and how the judge did in its exam."""

    explainer: Chat
    judge: Judge
    exam: Exam
    seed: int

    def tried(self, cases: Cases, numbers: Sequence[int]) -> Iterator[TriedName]:
        """A name and its test for each of some subjects, in their order."""
        for number in numbers:
            yield TriedName(None, too_rare()) if cases.is_rare(number) else self._tried(cases, number)

    def _tried(self, cases: Cases, number: int) -> TriedName:
        kept = cases.explore.kept("positive", number)
        positives = cases.cells(cases.explore, "positive", number)
        scores = kept.score[cases.read_as(kept.cells).text >= 0]
        negatives = cases.explored_negatives(number)
        found = explained(self.explainer, cases.texts, positives, scores, negatives, seed=self.seed)
        if found.name is None:
            return TriedName(None, None, unread=int(not found.parsed))
        name = found.name
        words = Words(
            destination=name.destination,
            source=name.source,
            relation=name.relation,
            text=name.text,
            rule=(),
            falsified_by=found.falsified_by,
        )
        cells, expected = _judged_cells(cases, number)
        said = label(self.judge, name, cases.texts, cells, expected, seed=self.seed)
        known = dict(zip(cells.rows(), said.yes.tolist(), strict=True))
        holds = partial(_looked_up, known)
        unread = int((~said.parsed).sum())
        return TriedName(words, **cases.tested(number, holds), holds=holds, unread=unread)


def _looked_up(known: dict[tuple[int, int, int], bool], cells: Cells) -> np.ndarray:
    return np.array([known[cell] for cell in cells.rows()], dtype=bool)


def _judged_cells(cases: Cases, number: int) -> tuple[Cells, np.ndarray]:
    """Every test cell that a name is asked of, once, and whether the subject acts there."""
    acting = Cells.joined(
        [
            *(cases.cells(cases.test, kind, number) for kind in ("positive", *BANDS)),
            cases.cells(cases.test, "strongest", number)[:SHOWN],
        ]
    )
    idle = Cells.joined(
        [
            cases.cells(cases.test, kind, number)
            for kind in dict.fromkeys((*cases.negatives, "matched", "near"))
        ]
    )
    rows = dict.fromkeys(idle.rows(), False) | dict.fromkeys(acting.rows(), True)
    return Cells.of(rows), np.array(list(rows.values()), dtype=bool)


def read_for_llm(cases: Cases, other: np.ndarray | None = None) -> Cases:
    """Cases as a language model is shown them.

    It cannot be told to leave positions out of its names, and cells of the swapped control keep theirs. There, a
    positive is therefore held against cells at the same two positions: who names a position tells none from the other.
    """
    if other is None:
        return replace(cases, most=BAND)
    return replace(cases, most=BAND, other=other, negatives=("matched", "matched"))


@contextmanager
def asking(
    choice: LlmChoice, texts: Texts, explore: np.ndarray, subjects: int, families: int, seed: int, run: Stages
) -> Iterator[LlmNamer]:
    """A language model that passed its exam, for as long as it is asked.

    What is to be asked is told and capped before anything is sent. Once the exam is passed, trouble with the model
    leaves the run's folder to be continued.
    """
    folder = None if run.folder is None else run.folder.work / FOLDER
    cells = _random_cells(texts, explore, seed)
    with ExitStack() as stack:
        chat, judge, where = _opened(choice, folder, stack)
        planned = _planned(judge, texts, cells, subjects, families)
        at = "on" if choice.base_url is None else "at"
        notice(
            f"{chat.name!r} {at} {where} is asked up to {counted(planned.questions, 'question')} "
            f"(about {planned.sent:,} tokens); {_leaves(choice, where)}"
        )
        planned.require(choice.cap, where)
        try:
            tick = run.begin("exam", len(exam_of(texts, cells)))
            exam = examined(judge, texts, cells, seed=seed, tick=tick)
            exam.require(chat.name)
        except HeadwiseError:
            _forget(folder)  # who is refused leaves nothing behind
            raise
        with _kept(folder):
            yield LlmNamer(chat, judge, exam, seed)
    if run.folder is not None and folder is not None:
        run.folder.write_bytes(ANSWERS, _collected(folder))
        _forget(folder)


@contextmanager
def _kept(folder: Path | None) -> Iterator[None]:
    """Trouble with the model, told as an interruption: a run folder with answers in it is there to be continued."""
    try:
        yield
    except Interrupted:
        raise
    except HeadwiseError as error:
        if folder is None:
            raise
        answers = counted(sum(1 for _ in folder.rglob("*.json")), "answer is", "answers are")
        raise Interrupted(f"{error}; {answers} kept: run the same again to continue") from None


def _forget(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _opened(choice: LlmChoice, folder: Path | None, stack: ExitStack) -> tuple[Chat, Judge, str]:
    """Who explains, who judges, and on which machine."""

    def kept(chat: Chat) -> Chat:
        return chat if folder is None else Remembered(chat, folder)

    if choice.kind == "transformers":
        from headwise.naming.llm.scored import TransformersChat, YesNo, answer_tokens

        loaded = TransformersChat.load(choice.llm)
        answer_tokens(loaded)
        return kept(loaded), ScoredJudge(kept(YesNo(loaded))), choice.place
    if choice.base_url is not None:
        endpoint = Endpoint(choice.base_url, choice.llm, cap=choice.cap)
        return kept(endpoint), WritingJudge(kept(endpoint)), endpoint.host
    from headwise.naming.llm.local import served

    endpoint = stack.enter_context(served(choice.llm))
    return kept(endpoint), WritingJudge(kept(endpoint)), choice.place


def _leaves(choice: LlmChoice, where: str) -> str:
    return "nothing leaves this machine" if choice.is_local else f"texts of the corpus are sent to {where}"


def _planned(judge: Judge, texts: Texts, cells: Cells, subjects: int, families: int) -> Bill:
    """About what the exam and all names cost: random cells are as long as those of subjects, or longer."""
    exam = sum((bill(judge, one.rule.name, texts, one.cells) for one in exam_of(texts, cells)), Bill(0, 0, 0))
    shown = [cells[at : at + POSITIVES + NEGATIVES] for at in range(0, 400, POSITIVES + NEGATIVES)]
    asked = Bill.of(
        [explain_prompt(texts, one[:POSITIVES], [10] * POSITIVES, one[POSITIVES:]) for one in shown], ANSWER
    )
    judged = bill(judge, _LONG, texts, cells[:400])
    per_name = 4 * KEPT["test"] + BAND * (len(BANDS) + 1) + SHOWN
    return exam + (asked.times(1 / len(shown)) + judged.times(per_name / 400)).times(subjects * families)


def _random_cells(texts: Texts, numbers: np.ndarray, seed: int) -> Cells:
    """Cells of explored texts at any place, the first token left out."""
    drawn = torch.rand(3, EXAM_CELLS, generator=keyed(seed, "exam"), dtype=torch.float64).numpy()
    text = numbers[(drawn[0] * len(numbers)).astype(int)]
    destination = 1 + (drawn[1] * (texts.lengths[text] - 1)).astype(int)
    return Cells(text, destination, 1 + (drawn[2] * destination).astype(int))


def _collected(folder: Path) -> bytes:
    """All kept answers in one file, in the order of what they answer."""
    lines = []
    for file in sorted(folder.rglob("*.json"), key=lambda file: file.name):
        kept = jsons.read(file, "a kept answer", "delete it")
        lines.append(jsons.dumps({"question_sha256": file.stem, **kept}, indent=None))
    return "".join(f"{line}\n" for line in lines).encode()
