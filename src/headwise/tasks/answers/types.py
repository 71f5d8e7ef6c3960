"""Prompts with a right and a wrong answer, each one token: what a circuit is traced for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import torch

from headwise.errors import HeadwiseError
from headwise.randomness import keyed
from headwise.tasks.answers.lines import AnswerLine
from headwise.tasks.lines import read_objects
from headwise.tokens import shown, single_token
from headwise.validation import quoted

PROMPTS = 300
"""How many prompts a built-in task makes unless told."""
_TRIES = 200

Drawn = TypeVar("Drawn")
Word = TypeVar("Word")


@dataclass(frozen=True)
class AnswerPrompt:
    """A prompt and the token that should follow it, with a wrong one to compare with and labels to group by.

    >>> AnswerPrompt("When Mary and John went home, John waved to", " Mary", " John", {"order": "ABBA"}, 1, 2).answer
    ' Mary'
    """

    prompt: str
    answer: str
    wrong: str | None
    labels: Mapping[str, str]
    answer_id: int
    wrong_id: int | None = None


@dataclass(frozen=True)
class AnswerSet:
    """The prompts of one task for one tokenizer; ``settings`` say how they were made, ``notes`` what to know."""

    name: str
    prompts: tuple[AnswerPrompt, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the prompts: other prompts under the same name are another set."""
        rows = [(p.prompt, p.answer_id, p.wrong_id, sorted(p.labels.items())) for p in self.prompts]
        return sha256(repr(rows).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.prompts)

    def __repr__(self) -> str:
        return f"AnswerSet({self.name!r}, {len(self)} prompts)"


# --- what a tokenizer makes of words -------------------------------------------------------------------------------


def following(tokenizer: Any, prompt: str, text: str) -> tuple[int, ...] | None:
    """The tokens of ``text`` where it continues ``prompt``; None if the two grow together or a word is unknown.

    Reading both together is what the model sees, whatever the tokenizer does with a leading space.
    """
    before, both = list(tokenizer(prompt).input_ids), list(tokenizer(prompt + text).input_ids)
    if both[: len(before)] != before or len(both) == len(before):
        return None
    unknown = getattr(tokenizer, "unk_token_id", None)
    return None if unknown is not None and unknown in both else tuple(both[len(before) :])


def single_words(tokenizer: Any, words: Iterable[str]) -> list[str]:
    """The words that are one token of their own after a space."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    start, found = len(tokenizer("the").input_ids), []
    for word in dict.fromkeys(words):
        ids = list(tokenizer(f"the {word}").input_ids)
        if len(ids) == start + 1 and ids[-1] != unknown:
            found.append(word)
    return found


def answer_prompt(
    tokenizer: Any, prompt: str, answer: str, wrong: str, labels: Mapping[str, str], *, first: bool = False
) -> AnswerPrompt | None:
    """The prompt with its answers as tokens; None if this tokenizer cannot carry it.

    Both answers must be one token that follows the prompt, or with ``first`` begin with one, and differ in it.
    """
    found = [following(tokenizer, prompt, text) for text in (answer, wrong)]
    if any(ids is None or (len(ids) > 1 and not first) for ids in found):
        return None
    answer_id, wrong_id = (ids[0] for ids in found if ids is not None)
    if answer_id == wrong_id:
        return None
    texts = [
        text if len(ids) == 1 else shown(tokenizer, ids)[0]
        for text, ids in zip((answer, wrong), found, strict=True)
        if ids is not None
    ]
    return AnswerPrompt(prompt, texts[0], texts[1], dict(labels), answer_id, wrong_id)


# --- making sets ---------------------------------------------------------------------------------------------------


class Draws:
    """Random choices that depend on a name alone, so that a larger set begins with the smaller one."""

    def __init__(self, seed: int, *labels: object) -> None:
        self.generator = keyed(seed, *labels)

    def choose(self, words: Sequence[Word]) -> Word:
        return words[int(torch.randint(len(words), (1,), generator=self.generator))]

    def two(self, words: Sequence[Word]) -> tuple[Word, Word]:
        """Two different ones."""
        first, second = torch.randperm(len(words), generator=self.generator)[:2].tolist()
        return words[first], words[second]

    def shuffled(self, words: Sequence[Word]) -> list[Word]:
        return [words[i] for i in torch.randperm(len(words), generator=self.generator).tolist()]


def draw_set(
    name: str,
    cells: Sequence[Drawn],
    prompts: int | None,
    make: Callable[[Drawn, int, int], AnswerPrompt | None],
    *,
    seed: int,
    why_none: str,
) -> AnswerSet:
    """``prompts`` spread evenly over the cells, in turn, so that the first of them are a fair sample of all.

    ``make(cell, number, attempt)`` draws one prompt of a cell, or gives None where the tokenizer cannot carry it.
    A prompt that was there already is drawn anew as long as new ones are to be had.
    """
    wanted = PROMPTS if prompts is None else prompts
    if wanted < 1:
        raise HeadwiseError(f"{wanted} prompts cannot be traced: give 1 or more")
    usable = [cell for cell in cells if any(make(cell, 0, attempt) is not None for attempt in range(12))]
    if not usable:
        raise HeadwiseError(f"the task {name!r} has no usable prompt for this model's tokenizer: {why_none}")
    notes = []
    if len(usable) < len(cells):
        notes.append(
            f"{len(cells) - len(usable)} of {len(cells)} wordings cannot be used with this tokenizer"
        )
    made: list[AnswerPrompt] = []
    seen: set[str] = set()
    repeated = 0
    spent: set[Drawn] = set()
    """Cells that have nothing new to give: not worth another search."""
    for number in range(wanted):
        cell, place = usable[number % len(usable)], number // len(usable)
        best = None
        for attempt in range(1 if cell in spent else _TRIES):
            found = make(cell, place, attempt)
            if found is not None and found.prompt not in seen:
                best = found
                break
            best = best or found
        else:
            spent.add(cell)
        best = best or next(f for attempt in range(12) if (f := make(cell, 0, attempt)) is not None)
        repeated += best.prompt in seen
        seen.add(best.prompt)
        made.append(best)
    if repeated:
        notes.append(
            f"{repeated} prompts are repeated: the task has only {len(seen)} different ones for this tokenizer"
        )
    return AnswerSet(name, tuple(made), {"prompts": wanted, "seed": seed}, tuple(notes))


# --- your own ------------------------------------------------------------------------------------------------------


def read_answers(path: str | Path, tokenizer: Any, prompts: int | None = None) -> AnswerSet:
    """Your own prompts from JSONL, one per line; all bad lines are reported at once.

        {"prompt": "When Mary and John went home, John waved to", "answer": " Mary", "wrong": " John",
         "labels": {"order": "ABBA", "wording": "1"}}

    ``wrong`` and ``labels`` may be left out. With ``prompts``, the first so many are taken.
    """
    path = Path(path)
    if prompts is not None and prompts < 1:
        raise HeadwiseError(f"{prompts} prompts cannot be traced: give 1 or more")
    found = read_objects(path, AnswerLine, lambda line: _prompt(line, tokenizer))[:prompts]
    if not found:
        raise HeadwiseError(f"{str(path)!r} has no prompts: write one JSON object per line")
    repeated = len(found) - len({p.prompt for p in found})
    notes = (f"{repeated} prompts are repeated in the file",) if repeated else ()
    return AnswerSet(path.stem, tuple(found), {"prompts": len(found)}, notes)


def _prompt(line: AnswerLine, tokenizer: Any) -> AnswerPrompt:
    answer_id = single_token(tokenizer, line.answer, "answer")
    wrong_id = None if line.wrong is None else single_token(tokenizer, line.wrong, "wrong")
    if answer_id == wrong_id:
        raise HeadwiseError(f"answer and wrong are the same token {quoted(line.wrong)}")
    return AnswerPrompt(line.prompt, line.answer, line.wrong, line.labels, answer_id, wrong_id)
