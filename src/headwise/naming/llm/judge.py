"""A judge: a language model that says of which cells a name is true, if it passed an exam first.

Batches hold positives and negatives in a number that chance decides, so their composition gives nothing away. An answer
that cannot be read counts against the name: as *no* for a positive and as *yes* for a negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from headwise.errors import HeadwiseError
from headwise.naming.cells import Cells
from headwise.naming.llm.chat import Bill, Chat
from headwise.naming.llm.prompts import judge_prompt, read_labels
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


@dataclass(frozen=True, eq=False)
class JudgeLabels:
    """What a judge said of cells."""

    yes: np.ndarray
    """[cells] bool: what it said, and the worst where nothing could be read."""
    parsed: np.ndarray
    """[cells] bool: whether its answer could be read."""


def label(
    chat: Chat, name: Name, texts: Texts, cells: Cells, expected: np.ndarray, *, seed: int = 0
) -> JudgeLabels:
    """Ask of which cells the name is true. ``expected`` is not shown; it says what the worst answer would be."""
    yes, parsed = ~expected.astype(bool), np.zeros(len(cells), dtype=bool)
    for batch in batches(len(cells), seed):
        answer = chat.ask(judge_prompt(name, texts, cells[batch]), tokens=ANSWER * len(batch))
        for at, said in zip(batch.tolist(), read_labels(answer, len(batch)), strict=True):
            if said is not None:
                yes[at], parsed[at] = said, True
    return JudgeLabels(yes, parsed)


def batches(cells: int, seed: int) -> Iterator[np.ndarray]:
    """Cells in a random order, some at a time: how many positives a batch has is left to chance."""
    order = torch.randperm(cells, generator=keyed(seed, "judge")).numpy()
    for start in range(0, cells, BATCH):
        yield order[start : start + BATCH]


def bill(names: Sequence[tuple[Name, Cells]], texts: Texts, seed: int = 0) -> Bill:
    """About what judging these names would cost."""
    prompts = [
        judge_prompt(name, texts, cells[batch])
        for name, cells in names
        for batch in batches(len(cells), seed)
    ]
    return Bill.of(prompts, ANSWER * BATCH)


@dataclass(frozen=True)
class Exam:
    """How a judge did on names whose truth the code knows."""

    balanced_accuracy: float
    questions: int
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


def examined(chat: Chat, texts: Texts, cells: Cells, *, questions: int = QUESTIONS, seed: int = 0) -> Exam:
    """Put library rules in words and ask of which cells they are true; ``cells`` are any cells of the texts."""
    right: dict[bool, list[bool]] = {True: [], False: []}
    unread = 0
    for number, ids in enumerate(EXAM):
        rule = Rule.parse(ids)
        holds = rule.holds(texts, cells)
        chosen = np.concatenate([np.flatnonzero(holds == value)[:questions] for value in (True, False)])
        if not len(chosen):
            continue
        said = label(chat, rule.name, texts, cells[chosen], holds[chosen], seed=seed + number)
        unread += int((~said.parsed).sum())
        for value, correct in zip(holds[chosen].tolist(), (said.yes == holds[chosen]).tolist(), strict=True):
            right[value].append(correct)
    if not right[True] or not right[False]:
        raise HeadwiseError("these texts have no cells to examine a judge on: give more or longer texts")
    accuracy = 0.5 * float(np.mean(right[True])) + 0.5 * float(np.mean(right[False]))
    return Exam(accuracy, len(right[True]) + len(right[False]), unread)


def agreement(one: np.ndarray, other: np.ndarray) -> float:
    """Cohen's κ of two labellings of the same cells; 1 where both are the same throughout.

    >>> round(agreement(np.array([1, 1, 0, 0], bool), np.array([1, 0, 0, 0], bool)), 2)
    0.5
    """
    agreed = float((one == other).mean())
    chance = float(one.mean() * other.mean() + (1 - one.mean()) * (1 - other.mean()))
    return 1.0 if chance >= 1 else (agreed - chance) / (1 - chance)
