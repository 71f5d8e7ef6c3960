"""The works' models: each preset's tasks put to a tokenizer of its kind, and its studies to its architecture."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kinds import KINDS, tokenizer_of_kind, write_kind

from headwise.cli.main import main
from headwise.research import presets
from headwise.research import reproduce as module
from headwise.research.presets import PRESETS, askable
from headwise.research.report import reproduced_report
from headwise.research.reproduce import reproduce
from headwise.research.studies import STUDIES
from headwise.tasks.answers.make import ANSWER_TASKS, make_answers
from headwise.tasks.labelled.filter import filter
from headwise.tasks.labelled.make import make_task

OF_WORKS = [name for name, preset in PRESETS.items() if preset.work]


def test_every_model_of_the_works_has_its_kind() -> None:
    assert set(KINDS) == set(OF_WORKS)


@pytest.mark.parametrize("name", OF_WORKS)
def test_a_tokenizer_of_its_kind_can_be_asked_what_the_preset_asks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tokenizer_of_kind(name)
    monkeypatch.setattr(presets, "read_tokenizer", lambda model: tokenizer)
    found = askable(PRESETS[name])
    # Groups of three digits leave no year that could be asked about.
    refused = {"greater-than"} if name == "llama-3.1-8b-instruct" else set()
    assert set(found.cannot) == refused
    assert set(found.tasks) == set(PRESETS[name].tasks) - refused
    first = tokenizer.bos_token_id
    for task in ("binding", "filter"):
        form = found.tasks[task].split()[-1]
        made = make_task(task, tokenizer, prompts=24, format=form)
        for example in made.scan.examples:
            assert (example.tokens[0] == first) == (first is not None)
            # Not even a chat template that writes the first token itself puts two of them.
            assert first is None or list(example.tokens).count(first) == 1
            text = tokenizer.decode(list(example.tokens))
            assert ("<|im_start|>assistant" in text or "assistant<|end_header_id|>" in text) == (
                form == "chat"
            )
            assert all(0 < key < example.query for key in example.keys)
    for task in ANSWER_TASKS.keys() - refused:
        assert len(make_answers(task, tokenizer, prompts=6).prompts) == 6


def test_a_chat_is_asked_in_as_many_wordings_and_tested_in_others() -> None:
    tokenizer = tokenizer_of_kind("qwen3-4b-instruct")
    made = filter(tokenizer, prompts=200, test=100, scan=100, format="chat")

    def worded(examples: Any) -> dict[str, set[str]]:
        """What comes before the list, by the name of the wording."""
        texts: dict[str, set[str]] = {}
        for one in examples:
            text = tokenizer.decode(list(one.tokens[: min(one.keys)]))
            texts.setdefault(one.groups["template"], set()).add(text.rpartition(":")[0])
        return texts

    fitted, tested = worded(made.scan.examples), worded(made.test.examples)
    assert len(fitted) == len(tested) == 12
    assert all(len(texts) == 1 for texts in (*fitted.values(), *tested.values()))
    said = [set.union(*some.values()) for some in (fitted, tested)]
    assert len(said[0]) == len(said[1]) == 12 and not said[0] & said[1]


def in_this_process(words: list[str], *, said: Any, printed: Any) -> Any:
    """A study's command without a process of its own: starting one takes longer than these models do."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    said.write(err.getvalue().encode())
    printed.write(out.getvalue().encode())

    class Ended:
        def wait(self) -> int:
            return code

    return Ended()


@pytest.mark.cluster
@pytest.mark.parametrize("name", OF_WORKS)
def test_the_studies_of_a_work_run_on_its_architecture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work: Any = PRESETS[name].work
    of_model = tuple(study for study in STUDIES[work] if study.model)
    parts = tuple(
        part
        for part in module.PARTS[work]
        if {*part.studies} <= {study.name for study in of_model} and part.only in ("", name)
    )
    monkeypatch.setitem(STUDIES, work, of_model)
    monkeypatch.setitem(module.PARTS, work, parts)
    monkeypatch.setitem(PRESETS, name, replace(PRESETS[name], model=str(write_kind(name, tmp_path / name))))
    monkeypatch.setattr(module, "begin_command", in_this_process)
    found = reproduce(work, name, out=tmp_path / "run", quick=True)
    # Random weights may park their attention nowhere, and attend to no key of a list.
    allowed = ("there is no sink", "swapping whole keys changes nothing", "greater-than")
    left = [one for one in found.parts if one.reading is None]
    assert all(any(said in one.why_not for said in allowed) for one in left)
    assert len(left) < len(found.parts) / 2
    assert reproduced_report(found).write(tmp_path / "report.html").stat().st_size > 10_000
