"""A line of a file of prompts with answers: its shape, known without any model or tensor."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from headwise.tasks.lines import Labels, PromptText, Text, read_objects
from headwise.validation import Shape


class AnswerLine(Shape):
    prompt: PromptText
    answer: Text
    wrong: Text | None = None
    labels: Labels = Field(default_factory=dict)


def check_answer_lines(path: str | Path) -> None:
    """Refuse a file whose lines are not prompts with answers; which tokens those are, only a tokenizer can tell."""
    read_objects(Path(path), AnswerLine, lambda line: line)
