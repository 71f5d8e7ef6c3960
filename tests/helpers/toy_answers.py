"""Prompts that the small trained model of the package answers, as a JSONL file of answers."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import headwise
from headwise.model.model import Model
from headwise.scale.folder import WORK
from headwise.scale.work import CHUNKS
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet
from headwise.toy.language import sentences
from headwise.toy.small_lm import DATA

COUNT = 50


@lru_cache(maxsize=1)
def small_model() -> Model:
    return headwise.load(DATA, check=False)


def answer_lines(count: int) -> list[dict[str, Any]]:
    """Different sentences with their answers and labels."""
    found = {s.text: s for s in sentences(2 * count, 0, "answers")}
    assert len(found) >= count
    return [
        {
            "prompt": s.text,
            "answer": s.answer,
            "wrong": s.wrong,
            "labels": {"order": s.order, "wording": str(s.wording + 1)},
        }
        for s in list(found.values())[:count]
    ]


def small_ioi(model: Model, count: int, salt: str) -> AnswerSet:
    """Sentences of the small model's own language, with whom it should name."""

    def token(word: str) -> int:
        return model.tokenizer.convert_tokens_to_ids(word)

    made = (
        AnswerPrompt(s.text, s.answer, s.wrong, {"order": s.order}, token(s.answer), token(s.wrong))
        for s in sentences(count, 0, salt)
    )
    return AnswerSet("small-ioi", tuple(made))


def labelled_lines() -> list[dict[str, Any]]:
    """The same sentences as a file of labelled prompts."""
    lines: list[dict[str, Any]] = []
    for number, one in enumerate(answer_lines(10)):
        words = one["prompt"].split(" ")
        words[1], words[3] = f"[[right:{words[1]}]]", f"[[wrong:{words[3]}]]"
        groups = {"number": str(number)}
        lines.append(
            {"prompt": " ".join(words), "positive": ["right"], "negative": ["wrong"], "groups": groups}
        )
    return lines


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines) + "\n")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def kept(folder: Path) -> list[str]:
    """The chunks that an unfinished run keeps."""
    return sorted(p.name for p in (folder / WORK).glob(CHUNKS))
