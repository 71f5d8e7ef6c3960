"""The tasks with answers, by name: ``ioi``, ``greater-than``, ``pronouns``, ``facts``, or your own file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwise.tasks.answers.facts import facts
from headwise.tasks.answers.greater_than import greater_than
from headwise.tasks.answers.ioi import ioi
from headwise.tasks.answers.pronouns import pronouns
from headwise.tasks.answers.types import AnswerSet, read_answers
from headwise.tasks.names import check_answer_task
from headwise.tokens import require_tokenizer

ANSWER_TASKS: dict[str, Callable[..., AnswerSet]] = {
    "ioi": ioi,
    "greater-than": greater_than,
    "pronouns": pronouns,
    "facts": facts,
}


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
