"""Which model, and how the works' tasks are put to it: hub name, form of the prompts, and what it cannot do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.files import write_text
from headwise.model.loading.load import read_tokenizer
from headwise.tasks.answers.make import ANSWER_TASKS, make_answers
from headwise.tasks.labelled.make import BUILT_IN, make_task

_ANSWERS = {"ioi": "ioi", "greater-than": "greater-than", "pronouns": "pronouns", "facts": "facts"}
_PLAIN = {"binding": "binding", "filter": "filter", **_ANSWERS, "texts": "", "corpus": "", "order": "order"}
_CHAT = {**_PLAIN, "binding": "binding --format chat", "filter": "filter --format chat"}
_FEW = {**_PLAIN, "binding": "binding --format few-shot", "filter": "filter --format few-shot"}
_FEW_PROMPTS = 24
"""Enough to see whether a tokenizer can carry a task's words."""


@dataclass(frozen=True)
class Preset:
    """How the works' tasks are put to one model."""

    name: str
    """What it is called here."""
    model: str | None
    """A known name, a hub id or a folder; None is the default model."""
    tasks: Mapping[str, str] = field(default_factory=lambda: dict(_PLAIN))
    """The words of each task on the command line; a task that is not there is left out."""
    work: str = ""
    """Which of the works it is from."""
    cannot: Mapping[str, str] = field(default_factory=dict)
    """Tasks that its tokenizer cannot be asked, each with the reason."""


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("smollm2", None),
        Preset("gemma3-270m", "gemma3-270m"),
        Preset("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B-Instruct", _CHAT, "paper"),
        Preset("qwen3-4b-instruct", "Qwen/Qwen3-4B-Instruct-2507", _CHAT, "paper"),
        Preset("gpt2", "openai-community/gpt2", _FEW, "talk"),
        Preset("pythia-160m", "EleutherAI/pythia-160m", _FEW, "talk"),
        Preset("gemma-2-2b", "google/gemma-2-2b", _FEW, "talk"),
    )
}
"""The works' models, and ours."""


def preset_for(model: str | None) -> Preset:
    """The preset of a model, by its name here or on the hub; any other model is asked as the default one is."""
    if model is None:
        return PRESETS["smollm2"]
    found = PRESETS.get(model.lower()) or next((p for p in PRESETS.values() if p.model == model), None)
    if found is not None:
        return found
    if is_small(model):
        return Preset("small", model, {})
    return Preset(Path(model).name or model, model)


def is_small(model: str) -> bool:
    """Whether it is the small model that comes with headwise, which has a language of its own."""
    from headwise.toy.small_lm import DATA

    return Path(model).resolve() == DATA.resolve()


def askable(preset: Preset) -> Preset:
    """The preset without the tasks that its tokenizer refuses: a night's run must not end at the first of them."""
    tokenizer = read_tokenizer(preset.model)
    tried = {task: _refusal(words, tokenizer) for task, words in preset.tasks.items()}
    cannot = {task: why for task, why in tried.items() if why}
    return replace(preset, tasks={t: w for t, w in preset.tasks.items() if t not in cannot}, cannot=cannot)


def _refusal(words: str, tokenizer: Any) -> str:
    """Why a built-in task cannot be made of a few prompts; nothing if it can."""
    task, *options = shlex.split(words) or [""]
    given = {key.removeprefix("--"): value for key, value in zip(options[::2], options[1::2], strict=True)}
    try:
        if task in BUILT_IN:
            make_task(task, tokenizer, prompts=_FEW_PROMPTS, **given)
        elif task in ANSWER_TASKS:
            make_answers(task, tokenizer, prompts=_FEW_PROMPTS)
    except HeadwiseError as refusal:
        return str(refusal)
    return ""


def with_files(preset: Preset, folder: Path) -> Preset:
    """The preset with its tasks in files where the model has a language of its own; each is written once."""
    if preset.model is None or not is_small(preset.model):
        return preset
    from headwise.toy.language import sentences

    made = list({s.text: s for s in sentences(400, 0, "seeds")}.values())[:160]
    answers = [
        {
            "prompt": s.text,
            "answer": s.answer,
            "wrong": s.wrong,
            "labels": {"order": s.order, "wording": str(s.wording + 1)},
        }
        for s in made
    ]
    labelled = [
        {
            "prompt": _marked(s.text, s.answer, s.wrong),
            "positive": ["answer"],
            "negative": ["wrong"],
            "groups": {"answer": s.answer, "wording": str(s.wording + 1)},
            "feature": "object",
        }
        for s in made
    ]
    for name, lines in (("answers", answers), ("objects", labelled)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        file = folder / f"{name}.jsonl"
        if not file.exists():
            write_text(file, text)
    answer = str(folder / "answers.jsonl")
    return Preset(
        preset.name,
        preset.model,
        {
            "binding": f"{folder / 'objects.jsonl'} --hold-out answer",
            "ioi": answer,
            "texts": f"{answer} --threshold 0.1 --parked 0.1",
            "order": "order",
        },
    )


def _marked(text: str, answer: str, wrong: str) -> str:
    """The two people where they enter, marked.

    >>> _marked("then anna and ben went . ben gave it to", "anna", "ben")
    'then [[answer:anna]] and [[wrong:ben]] went . ben gave it to'
    """
    words = text.split(" ")
    for role, word in (("answer", answer), ("wrong", wrong)):
        words[words.index(word)] = f"[[{role}:{word}]]"
    return " ".join(words)
