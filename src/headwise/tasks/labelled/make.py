"""The tasks of labelled prompts, by name: ``binding``, ``filter``, or your own file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.tasks.labelled.binding import binding
from headwise.tasks.labelled.filter import filter
from headwise.tasks.labelled.jsonl import read_jsonl
from headwise.tasks.labelled.types import Task, TaskMaker
from headwise.tasks.names import check_task_name

BUILT_IN: dict[str, TaskMaker] = {"binding": binding, "filter": filter}


def make_task(name: str | Path | Task, tokenizer: Any, **options: Any) -> Task:
    """A built-in task by name, a JSONL file by path, or a task as it is; options that are None are left out."""
    if isinstance(name, Task):
        return name
    given = {key: value for key, value in options.items() if value is not None}
    text = str(name)
    if text in BUILT_IN:
        try:
            return BUILT_IN[text](tokenizer, **given)
        except TypeError as error:
            wrong = str(error).rsplit("'", 2)
            if "unexpected keyword" not in str(error):
                raise
            raise HeadwiseError(f"the task {text!r} has no option {wrong[-2]!r}") from None
    check_task_name(text)
    return read_jsonl(text, tokenizer, **{k: v for k, v in given.items() if k in ("seed", "hold_out")})
