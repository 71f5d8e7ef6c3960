"""The tasks with answers, by name: ``ioi``, ``greater-than``, ``pronouns``, ``facts``, or your own file."""

from __future__ import annotations

import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.model.prompts import require_tokenizer
from headwise.tasks.answers.facts import facts
from headwise.tasks.answers.greater_than import greater_than
from headwise.tasks.answers.ioi import ioi
from headwise.tasks.answers.pronouns import pronouns
from headwise.tasks.answers.types import AnswerSet, read_answers

ANSWER_TASKS: dict[str, Callable[..., AnswerSet]] = {
    "ioi": ioi,
    "greater-than": greater_than,
    "pronouns": pronouns,
    "facts": facts,
}


def check_answer_task(name: str) -> None:
    """Refuse a task that does not exist, before a model is loaded for it.

    >>> check_answer_task("pronoun")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: there is no task 'pronoun': did you mean 'pronouns'? (ioi, greater-than, pronouns,
    facts, or the path of a .jsonl file)
    """
    if name in ANSWER_TASKS:
        return
    if not name.endswith((".jsonl", ".json")):
        near = get_close_matches(name.lower(), ANSWER_TASKS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        known = f"{', '.join(ANSWER_TASKS)}, or the path of a .jsonl file"
        raise HeadwiseError(
            f"there is no task {name!r}: " + (f"{hint}({known})" if hint else f"write {known}")
        )
    if not os.path.isfile(name):
        raise HeadwiseError(f"there is no file {name!r}")


def make_answers(
    task: str | Path | AnswerSet, tokenizer: Any, *, prompts: int | None = None, seed: int = 0
) -> AnswerSet:
    """The prompts of a task by name or of a JSONL file by path; a set is returned as it is."""
    if isinstance(task, AnswerSet):
        return task
    require_tokenizer(tokenizer, "tasks are text and cannot be read by it")
    text = str(task)
    check_answer_task(text)
    if text in ANSWER_TASKS:
        return ANSWER_TASKS[text](tokenizer, prompts=prompts, seed=seed)
    return read_answers(text, tokenizer, prompts)
