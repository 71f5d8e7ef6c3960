"""A judge: a language model that says of which cells a name is true, if it passed an exam first.

Batches hold positives and negatives in a number that chance decides, so their composition gives nothing away. An answer
that cannot be read counts against the name: as *no* for a positive and as *yes* for a negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from headwise.errors import HeadwiseError
from headwise.naming.cells import Cells
from headwise.naming.llm.chat import Bill, Chat
from headwise.naming.llm.prompts import judge_prompt, read_labels, read_share, yes_no_prompt
from headwise.naming.rules import Name, Rule
from headwise.naming.texts import Texts
from headwise.randomness import keyed
from headwise.strings import percent

BATCH = 10
"""Cells that are judged together."""
ANSWER = 8
"""Tokens of the answer per cell."""
PASS = 0.80
"""Balanced accuracy that a judge needs in the exam."""
EXAM: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("source.comma",),),
    (("source.capitalised",),),
    (("source.class=article",),),
    (("destination.class=preposition",),),
    (("relation.distance=1",),),
    (("relation.same-word",),),
    (("source.number",),),
    (("source.in-brackets",),),
)
"""Rules whose truth the code knows."""
QUESTIONS = 10
"""Cells of each kind per rule in the exam."""


class Judge(Protocol):
    """Anything that says of which cells a name is true."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def said(self, name: Name, texts: Texts, cells: Cells, /) -> list[bool | None]:
        """Yes or no per cell of a batch; None where nothing could be read."""
        ...

    def bill(self, name: Name, texts: Texts, cells: Cells, /) -> Bill:
        """About what asking about a batch costs."""
        ...


@dataclass(frozen=True)
class WritingJudge:
    """A judge that writes a line per cell, all cells of a batch in one question."""

    chat: Chat

    @property
    def name(self) -> str:
        return self.chat.name

    def said(self, name: Name, texts: Texts, cells: Cells) -> list[bool | None]:
        answer = self.chat.ask(judge_prompt(name, texts, cells), tokens=ANSWER * len(cells))
        return read_labels(answer, len(cells))

    def bill(self, name: Name, texts: Texts, cells: Cells) -> Bill:
        return Bill.of([judge_prompt(name, texts, cells)], ANSWER * len(cells))


@dataclass(frozen=True)
class ScoredJudge:
    """A judge that writes nothing: how likely *yes* is beside *no* decides, one question per cell."""

    chat: Chat
    """Answers a question with P(yes) / (P(yes) + P(no)), as a number."""

    @property
    def name(self) -> str:
        return self.chat.name

    def said(self, name: Name, texts: Texts, cells: Cells) -> list[bool | None]:
        asked = [yes_no_prompt(name, texts, *cell) for cell in cells.rows()]
        shares = [read_share(self.chat.ask(prompt, tokens=1)) for prompt in asked]
        return [None if share is None else share > 0.5 for share in shares]

    def bill(self, name: Name, texts: Texts, cells: Cells) -> Bill:
        return Bill.of([yes_no_prompt(name, texts, *cell) for cell in cells.rows()], 1)


@dataclass(frozen=True, eq=False)
class JudgeLabels:
    """What a judge said of cells."""

    yes: np.ndarray
    """[cells] bool: what it said, and the worst where nothing could be read."""
    parsed: np.ndarray
    """[cells] bool: whether its answer could be read."""


def label(
    judge: Judge, name: Name, texts: Texts, cells: Cells, expected: np.ndarray, *, seed: int = 0
) -> JudgeLabels:
    """Ask of which cells the name is true. ``expected`` is not shown; it says what the worst answer would be."""
    yes, parsed = ~expected.astype(bool), np.zeros(len(cells), dtype=bool)
    for batch in batches(len(cells), seed):
        for at, said in zip(batch.tolist(), judge.said(name, texts, cells[batch]), strict=True):
            if said is not None:
                yes[at], parsed[at] = said, True
    return JudgeLabels(yes, parsed)


def batches(cells: int, seed: int) -> Iterator[np.ndarray]:
    """Cells in a random order, some at a time: how many positives a batch has is left to chance."""
    order = torch.randperm(cells, generator=keyed(seed, "judge")).numpy()
    for start in range(0, cells, BATCH):
        yield order[start : start + BATCH]


def bill(judge: Judge, name: Name, texts: Texts, cells: Cells, seed: int = 0) -> Bill:
    """About what judging a name at these cells costs."""
    return sum((judge.bill(name, texts, cells[batch]) for batch in batches(len(cells), seed)), Bill(0, 0, 0))


# --- the exam --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exam:
    """How a judge did on names whose truth the code knows."""

    balanced_accuracy: float
    """Mean of the shares of cells that it got right, of those where a name is true and of those where it is not."""
    questions: int
    """Cells that it was asked about."""
    unread: int
    """Answers that could not be read; each counts as wrong."""

    @property
    def passed(self) -> bool:
        """Whether the judge may judge."""
        return self.balanced_accuracy >= PASS

    def require(self, judge: str) -> None:
        """Refuse a judge that failed, in one line."""
        if not self.passed:
            raise HeadwiseError(
                f"the judge {judge!r} failed its exam (balanced accuracy {percent(self.balanced_accuracy)}, "
                f"{percent(PASS)} are needed; {self.unread} of {self.questions} answers could not be read): "
                "use a stronger model, or names by rules"
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "balanced_accuracy": self.balanced_accuracy,
            "questions": self.questions,
            "unread": self.unread,
        }


class ExamQuestion(NamedTuple):
    """A rule, cells where it is true and cells where it is not, and which are which."""

    rule: Rule
    cells: Cells
    holds: np.ndarray


def exam_of(texts: Texts, cells: Cells, questions: int = QUESTIONS) -> list[ExamQuestion]:
    """Library rules, each with some of the cells where it is true and some where it is not."""
    made = []
    for rule in map(Rule.parse, EXAM):
        holds = rule.holds(texts, cells)
        chosen = np.concatenate([np.flatnonzero(holds == value)[:questions] for value in (True, False)])
        made.append(ExamQuestion(rule, cells[chosen], holds[chosen]))
    held = np.concatenate([one.holds for one in made])
    if held.all() or not held.any():
        raise HeadwiseError("these texts have no cells to examine a judge on: give more or longer texts")
    return made


def examined(
    judge: Judge,
    texts: Texts,
    cells: Cells,
    *,
    questions: int = QUESTIONS,
    seed: int = 0,
    tick: Callable[[int], None] = lambda _: None,
) -> Exam:
    """Put library rules in words and ask of which cells they are true; ``cells`` are any cells of the texts.

    A judge that cannot pass any more is asked no further.
    """
    asked = exam_of(texts, cells, questions)
    held = np.concatenate([one.holds for one in asked])
    right = np.ones(len(held), dtype=bool)
    unread = done = 0
    for number, one in enumerate(asked):
        said = label(judge, one.rule.name, texts, one.cells, one.holds, seed=seed + number)
        right[done : done + len(one.cells)] = said.yes == one.holds
        done, unread = done + len(one.cells), unread + int((~said.parsed).sum())
        tick(1)
        if _balanced(right, held) < PASS:
            break
    return Exam(_balanced(right[:done], held[:done]), done, unread)


def _balanced(right: np.ndarray, held: np.ndarray) -> float:
    shares = [float(right[held == value].mean()) for value in (True, False) if (held == value).any()]
    return float(np.mean(shares))
