"""The tasks by name, and whether a task that is named exists: known without any task, model or tensor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches

from headwise.errors import HeadwiseError
from headwise.strings import shortened

LABELLED = ("binding", "filter")
"""Prompts whose keys carry labels, for finding heads and features."""

ANSWERS = ("ioi", "greater-than", "pronouns", "facts")
"""Prompts with an answer, for tracing circuits."""


def check_task_name(name: str) -> None:
    """Refuse a task of labelled prompts that does not exist, before a model is loaded for it.

    >>> check_task_name("ioi")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: 'ioi' is a task with answers, but labelled prompts are needed here: write binding,
    filter, or the path of a .jsonl file
    """
    _check(name, LABELLED, ANSWERS, "is a task with answers, but labelled prompts are needed here")


def check_answer_task(name: str) -> None:
    """Refuse a task with answers that does not exist, before a model is loaded for it.

    >>> check_answer_task("pronoun")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: there is no task 'pronoun': did you mean 'pronouns'? (ioi, greater-than, pronouns,
    facts, or the path of a .jsonl file)
    """
    _check(name, ANSWERS, LABELLED, "is a task of labelled prompts, but prompts with answers are needed here")


def _check(name: str, known: Sequence[str], others: Sequence[str], confused: str) -> None:
    if name in known:
        return
    choices = f"{', '.join(known)}, or the path of a .jsonl file"
    if name in others:
        raise HeadwiseError(f"{name!r} {confused}: write {choices}")
    if not name.endswith((".jsonl", ".json")):
        near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? ({choices})" if near else f"write {choices}"
        raise HeadwiseError(f"there is no task {shortened(name)!r}: {hint}")
    if not os.path.isfile(name):
        raise HeadwiseError(f"there is no file {name!r}")
