"""Sparsity over checkpoints: the same cells in all of them, from local folders, told in terminal, JSON and page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import headwise
from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.show.sparsity.course import course_figure, course_report
from headwise.sparsity.course import SparsityCourse, find_sparsity_course
from headwise.sparsity.nulls import ALL_FIVE, NULLS
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet
from headwise.toy.language import sentences
from headwise.toy.small_lm import DATA


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped checkpoint with the weights of all its matrices drawn anew, as before training."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = tmp_path_factory.mktemp("checkpoints") / "step0"
    model = AutoModelForCausalLM.from_pretrained(DATA)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() > 1:
                value.copy_(0.05 * torch.randn(value.shape, generator=generator))
    model.save_pretrained(place)
    AutoTokenizer.from_pretrained(DATA).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def task() -> AnswerSet:
    tokenizer = headwise.load(DATA).tokenizer

    def token(word: str) -> int:
        return tokenizer.convert_tokens_to_ids(word)

    made = [
        AnswerPrompt(s.text, s.answer, s.wrong, {"order": s.order}, token(s.answer), token(s.wrong))
        for s in sentences(8, 0, "course")
    ]
    return AnswerSet("small-ioi", tuple(made))


@pytest.fixture(scope="module")
def found(untrained: Path, task: AnswerSet) -> SparsityCourse:
    return find_sparsity_course([untrained, DATA], task, prompts=8, rotations=4)


def test_the_same_cells_are_followed_and_held_against_every_null(found: SparsityCourse) -> None:
    first, last = found.checkpoints
    assert first.weight_hash != last.weight_hash and set(first.heads) == set(last.heads)
    assert last.attention.mean > first.attention.mean
    assert last.sparsity.mean < first.sparsity.mean and last.needed.mean < first.needed.mean
    for name in ("isotropic", "matched", "turned"):  # the others lack a value where a query has no such key
        fall = found.falls[name]
        gap = last.nulls[name].mean - last.sparsity.mean - (first.nulls[name].mean - first.sparsity.mean)
        assert fall.mean == pytest.approx(gap, abs=1e-9)
    assert set(found.falls) == set(NULLS) and found.sparser.null == ALL_FIVE
    assert found.sparser.supported == (found.sparser.p <= 0.05)


def test_a_checkpoint_twice_is_no_course(task: AnswerSet) -> None:
    same = find_sparsity_course([DATA, DATA], task, prompts=8, rotations=2)
    assert all(fall.mean == 0 for fall in same.falls.values()) and not same.sparser.supported
    assert same.checkpoints[0].to_json() == same.checkpoints[1].to_json()


def test_the_page_shows_every_checkpoint(found: SparsityCourse) -> None:
    traces: Any = course_figure(found).data
    drawn = {(t.name, t.yaxis): t for t in traces}
    assert list(drawn["channels", "y"].y) == [p.sparsity.mean for p in found.checkpoints]
    assert list(drawn["rotated", "y2"].y) == [p.control_needed.mean for p in found.checkpoints]
    page = course_report(found).html()
    assert (
        all(Path(p.name).name in page for p in found.checkpoints) and "does attention become sparse" in page
    )


def test_the_command_writes_a_course(
    untrained: Path, task: AnswerSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "task.jsonl"
    lines = [{"prompt": p.prompt, "answer": p.answer, "wrong": p.wrong} for p in task.prompts[:4]]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    series = ["--checkpoints", str(untrained), "--checkpoints", str(DATA)]
    asked = [
        "sparsity",
        str(file),
        *series,
        "--prompts",
        "4",
        "--rotations",
        "2",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [p["name"] for p in document["checkpoints"]] == [str(untrained), str(DATA)]
    stored = json.loads((tmp_path / "run" / "course.json").read_text())
    assert stored["checkpoints"] == document["checkpoints"] and (tmp_path / "run" / "report.html").exists()
    assert main(["sparsity", str(file), *series, "--model", str(DATA)]) == 2
    assert "--model is not used with --checkpoints" in capsys.readouterr().err


def test_an_untrained_last_checkpoint_or_a_single_one_is_refused(untrained: Path, task: AnswerSet) -> None:
    with pytest.raises(HeadwiseError, match="at least two checkpoints"):
        find_sparsity_course([DATA], task)
