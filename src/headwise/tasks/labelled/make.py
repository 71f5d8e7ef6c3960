"""The tasks of labelled prompts, by name: ``binding``, ``filter``, or your own file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.tasks.labelled.binding import binding, contrast_names
from headwise.tasks.labelled.filter import category_names, filter
from headwise.tasks.labelled.jsonl import read_jsonl
from headwise.tasks.labelled.types import Task, TaskMaker
from headwise.tasks.names import check_task_name

BUILT_IN: dict[str, TaskMaker] = {"binding": binding, "filter": filter}
_OF_FILES = ("seed", "hold_out")
_VALUES: dict[str, Callable[[Any], Any]] = {"categories": category_names, "contrasts": contrast_names}


def make_task(name: str | Path | Task, tokenizer: Any, **options: Any) -> Task:
    """A built-in task by name, a JSONL file by path, or a task as it is; options that are None are left out."""
    if isinstance(name, Task):
        return name
    given = {key: value for key, value in options.items() if value is not None}
    text = str(name)
    check_task_options(text, given)
    if text in BUILT_IN:
        return BUILT_IN[text](tokenizer, **given)
    check_task_name(text)
    return read_jsonl(text, tokenizer, **given)


def check_task_options(name: str, given: Mapping[str, Any]) -> None:
    """Refuse options that a task does not take, before a model is loaded for it.

    >>> check_task_options("binding", {"pairs": 9, "categories": 5})
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: the task 'binding' does not take categories=: leave it out
    """
    taken = signature(BUILT_IN[name]).parameters if name in BUILT_IN else _OF_FILES
    for option, value in given.items():
        if option not in taken:
            what = f"the task {name!r} does" if name in BUILT_IN else "prompts of your own do"
            raise HeadwiseError(f"{what} not take {option}=: leave it out")
        if option in _VALUES:
            _VALUES[option](value)
