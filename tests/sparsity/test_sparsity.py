"""Relative attention over channels for a task's heads: the batched way against the one-cell way, and the control."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import prompts_of, tiny
from toy_answers import contents, kept, small_ioi

import headwise
from headwise.bases.cell import split_cell
from headwise.bases.relative import channels_needed, sparsity
from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.sparsity.cells import PromptCell, split_cells
from headwise.sparsity.result import SparsityResult
from headwise.sparsity.study import choose, find_sparsity, reconstruction
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet
from headwise.toy.small_lm import DATA
from headwise.types import Cell, Head


@pytest.fixture(scope="module")
def small() -> Model:
    """The trained checkpoint that ships with the package: it names the indirect object."""
    return headwise.load(DATA)


@pytest.fixture(scope="module")
def task(small: Model) -> AnswerSet:
    return small_ioi(small, 12, "sparsity")


@pytest.fixture(scope="module")
def study(small: Model, task: AnswerSet) -> SparsityResult:
    return find_sparsity(small, task, prompts=12, rotations=6)


# --- cells --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "qwen3", "gemma2"])
def test_batched_cells_equal_the_one_cell_way(name: str) -> None:
    model = tiny(name)
    prompts = prompts_of(9, 7, 9)
    cells = [
        PromptCell(0, Cell(Head(1, 2), 8, 7)),
        PromptCell(1, Cell(Head(1, 2), 6, 5)),
        PromptCell(2, Cell(Head(3, 0), 5, 5)),
        PromptCell(2, Cell(Head(1, 2), 2, 1)),
        PromptCell(1, Cell(Head(3, 0), 3, 2)),
    ]
    found = split_cells(model, prompts, cells, rotations=3)
    assert sorted(found) == [Head(1, 2), Head(3, 0)]
    for head, split in found.items():
        mine = sorted((c for c in cells if c.cell.head == head), key=lambda c: c.prompt)
        assert split.prompts.tolist() == [c.prompt for c in mine]
        for i, (prompt, cell) in enumerate(mine):
            slow = split_cell(model, prompts[prompt], head, cell.query, cell.key, frame="absolute")
            torch.testing.assert_close(split.relative[i], slow.relative, atol=1e-5, rtol=1e-4)
            assert float(split.attention[i]) == pytest.approx(slow.attention, abs=1e-6)
            assert float(split.sparsity[i]) == pytest.approx(float(sparsity(split.relative[i])), abs=1e-12)
            assert int(split.needed[i]) == int(channels_needed(split.relative[i]))


def test_rotations_keep_every_sum_and_differ_from_one_another() -> None:
    model = tiny("llama", torch.float64)
    cells = [PromptCell(0, Cell(Head(2, 1), d, s)) for d in (5, 8) for s in (0, 3)]
    split = split_cells(model, prompts_of(9), cells, rotations=4)[Head(2, 1)]
    assert split.error < 1e-9 and split.rotation_error < 1e-9
    for draw in split.control:
        torch.testing.assert_close(draw.sum(-1), split.relative.sum(-1), atol=1e-9, rtol=1e-9)
    assert not torch.allclose(split.control[0], split.control[1])


def test_one_channel_is_as_sparse_as_can_be_and_rotation_destroys_it() -> None:
    """A query along one singular direction: one channel does it all; turned, many do."""
    model = tiny("gpt2", torch.float64)
    channels = headwise.Basis.of(model, "L1H1")
    width = model.d_head
    q = channels.key_map[0] * 1.0
    keys = torch.randn(width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    split = channels.split(q, keys)
    assert float(sparsity(split)) == pytest.approx(1 / width, abs=1e-9)
    turned = channels.rotated(torch.Generator().manual_seed(1)).split(q, keys)
    assert float(sparsity(turned)) > 1.5 / width
    assert float(turned.sum()) == pytest.approx(float(split.sum()), abs=1e-9)


def test_reconstruction_starts_at_all_and_ends_at_nothing() -> None:
    values = torch.randn(40, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64).abs()
    curve = reconstruction(values)
    assert len(curve) == 17 and curve[0] == 1.0 and curve[-1] == 0.0
    assert all(a >= b for a, b in pairwise(curve))


# --- the study ----------------------------------------------------------------------------------------------------


def test_the_shipped_model_uses_fewer_channels_than_rotated_ones(study: SparsityResult) -> None:
    overall = study.overall
    assert study.traced >= 8 and study.prompts == 12
    assert study.error < 1e-9 and study.rotation_error < 1e-9
    assert overall.difference.high < 0
    assert overall.sparsity.mean < overall.control.mean
    assert overall.difference.mean == pytest.approx(overall.sparsity.mean - overall.control.mean, abs=1e-9)
    for head in study.heads:
        assert head.sparsity.low <= head.sparsity.mean <= head.sparsity.high
        assert head.in_circuit >= 1 and head.cells >= head.in_circuit


def test_two_wordings_are_two_units_however_many_prompts_they_have(small: Model, task: AnswerSet) -> None:
    labelled = [replace(p, labels={"wording": str(i % 2)}) for i, p in enumerate(task.prompts)]
    found = find_sparsity(small, replace(task, prompts=tuple(labelled)), prompts=8, rotations=1)
    assert found.clusters == "wording" and found.overall.sparsity.clusters == 2
    assert not any(one.claim.supported for one in (*found.heads, found.overall))


def test_every_head_is_held_against_five_nulls_and_the_old_control(study: SparsityResult) -> None:
    from headwise.show.sparsity.terminal import verdict

    document = study.to_json()
    assert document["clusters"] == "prompt"
    for one in (*document["heads"], document["overall"]):
        assert {null["name"] for null in one["nulls"]} <= {
            "isotropic",
            "matched",
            "unattended",
            "shuffled",
            "turned",
        }
        assert one["claim"]["p"] >= max(null["p"] for null in one["nulls"])
        assert one["claim"]["supported"] == (one["claim"]["q"] <= 0.05)
        assert "published control" in one["against_rotation"]["null"]
    assert document["heads"][0]["claim"]["group"] == "all heads of this study"
    # Sparser than rotated directions, and yet not more so than any stream through the same singular values.
    assert document["overall"]["against_rotation"]["supported"]
    assert len(study.supported) < sum(one.against_rotation.supported for one in study.heads)
    assert "published control" in verdict(study)


def test_prompts_are_all_accounted_for(study: SparsityResult) -> None:
    assert study.traced + study.wrong + study.empty == study.prompts
    assert sum(h.cells for h in study.heads) == study.overall.cells


def test_heads_can_be_named(small: Model, task: AnswerSet, study: SparsityResult) -> None:
    head = study.heads[0].head
    assert head is not None
    alone = find_sparsity(small, task, prompts=12, rotations=6, heads=str(head))
    assert [h.head for h in alone.heads] == [head]
    assert alone.heads[0].sparsity == study.heads[0].sparsity


def test_the_same_study_twice_is_the_same_document(
    small: Model, task: AnswerSet, study: SparsityResult
) -> None:
    first, again = study.to_json(), find_sparsity(small, task, prompts=12, rotations=6).to_json()
    for document in (first, again):
        document.pop("seconds")
    assert json.dumps(first) == json.dumps(again)


def test_heads_are_chosen_by_how_often_they_carry_the_answer_then_by_how_often_they_are_used() -> None:
    many = [Head(5, i) for i in range(9)]
    in_answer = Counter({head: 9 - i for i, head in enumerate(many)})
    in_circuit = Counter({Head(1, i): 20 - i for i in range(10)}) + in_answer
    chosen = choose(in_answer, in_circuit)
    assert chosen[:6] == many[:6]
    assert chosen[6:] == [Head(1, i) for i in range(6)]


def test_the_report_shows_both_pictures(study: SparsityResult, tmp_path: Path) -> None:
    from headwise.show.kit.terminal import console
    from headwise.show.sparsity.report import sparsity_report
    from headwise.show.sparsity.terminal import sparsity_table

    page = sparsity_report(study).write(tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('class="plot"') == 3 and "rotated directions" in page
    console().print(sparsity_table(study))


def test_unknown_heads_and_heads_without_cells_are_one_line(small: Model, task: AnswerSet) -> None:
    with pytest.raises(HeadwiseError, match="L9H0 does not exist"):
        find_sparsity(small, task, heads="L9H0")
    with pytest.raises(HeadwiseError, match=r"L0H0 is in none of the \d+ circuits") as caught:
        find_sparsity(small, task, heads="L0H0", prompts=4)
    assert "\n" not in str(caught.value)


def test_a_task_that_the_model_gets_wrong_is_one_line(small: Model, task: AnswerSet) -> None:
    swapped = tuple(
        AnswerPrompt(p.prompt, p.wrong or "", p.answer, {}, p.wrong_id or 0, p.answer_id)
        for p in task.prompts
    )
    with pytest.raises(HeadwiseError, match="none of the 4 prompts of 'swapped' has a circuit"):
        find_sparsity(small, AnswerSet("swapped", swapped[:4]))


def test_bad_commands_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    for arguments, said in (
        (["iou"], "there is no task 'iou'"),
        (["nothing.jsonl"], "there is no file 'nothing.jsonl'"),
        (["ioi", "--out", str(file)], "cannot be written"),
    ):
        assert main(["sparsity", *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


@pytest.mark.real
def test_the_default_model_on_indirect_objects(
    smollm2: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("headwise.model.loading.load.load", lambda _name=None: smollm2)
    arguments = [
        "sparsity",
        "ioi",
        "--prompts",
        "8",
        "--rotations",
        "3",
        "--json",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["error"] < 1e-9 and document["rotation_error"] < 1e-9
    assert document["overall"]["difference"]["ci"][1] < 0
    assert len(document["heads"]) == 12
    assert 1_000_000 < (tmp_path / "run" / "report.html").stat().st_size < 2_000_000


@pytest.mark.parametrize(("stage", "parts"), [("circuits", 1), ("channels", 3)])
@pytest.mark.slow
def test_an_interrupted_study_continues_to_the_same_bytes(
    small: Model, task: AnswerSet, tmp_path: Path, stage: str, parts: int
) -> None:
    def go(out: Path, progress: Any = None) -> SparsityResult:
        return find_sparsity(small, task, prompts=20, rotations=2, out=out, progress=progress)

    def stop(now: str, done: int, total: int) -> None:
        if now == stage and done >= 8:
            raise KeyboardInterrupt

    whole = go(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "run", stop)
    assert len(kept(tmp_path / "run")) == parts
    seen: list[int] = []
    go(tmp_path / "run", lambda now, done, total: seen.append(done) if now == stage else None)
    assert seen[:2] == [0, 8]
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    assert set(contents(tmp_path / "run")) == {"manifest.json", "sparsity.json", "result.safetensors"}
    # What goes through a file is what stays in memory.
    document = find_sparsity(small, task, prompts=20, rotations=2).to_json()
    assert {**document, "seconds": 0} == {**whole.to_json(), "seconds": 0}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    with pytest.raises(HeadwiseError, match="holds other files"):
        go(tmp_path / "mine")
    assert contents(tmp_path / "mine") == {"thesis.tex": b"mine"}


def test_wrong_answers_are_counted_by_the_logits(
    small: Model, task: AnswerSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the words of a note."""
    from dataclasses import replace

    from headwise.survey import chunks

    turned = [
        AnswerPrompt(p.prompt, p.wrong or "", p.answer, {}, p.wrong_id or 0, p.answer_id)
        for p in task.prompts[:3]
    ]
    real = chunks.trace
    monkeypatch.setattr(chunks, "trace", lambda *a, **k: [replace(c, notes=()) for c in real(*a, **k)])
    mixed = AnswerSet("mixed", (*turned, *task.prompts[3:12]))
    study = find_sparsity(small, mixed, prompts=12, rotations=1)
    assert study.wrong == 3


def test_a_result_comes_back_from_its_folder(study: SparsityResult, tmp_path: Path) -> None:
    again = SparsityResult.load(study.save(tmp_path / "run"))
    assert again.to_json() == {**study.to_json(), "seconds": 0.0}
    assert json.loads((tmp_path / "run" / "sparsity.json").read_text())["task"] == study.task
    again.save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "run")
    content = (tmp_path / "run" / "result.safetensors").read_bytes()
    (tmp_path / "run" / "result.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(HeadwiseError, match=r"result.safetensors' is missing, damaged or of another run"):
        SparsityResult.load(tmp_path / "run")
    assert "channels needed" in study._repr_html_()


@pytest.mark.slow
def test_two_workers_find_the_same(small: Model, task: AnswerSet, tmp_path: Path) -> None:
    for workers in (1, 2):
        find_sparsity(small, task, prompts=12, rotations=2, out=tmp_path / str(workers), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
