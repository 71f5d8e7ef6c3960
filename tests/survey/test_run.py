"""Many traces: what a run holds, the same bytes whoever traced it, what it refuses, and the command."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny
from toy_answers import COUNT, answer_lines, contents, small_model, write_lines

import headwise
from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.survey import chunks, collect
from headwise.survey.collect import trace_many
from headwise.survey.records import CircuitRun
from headwise.survey.summary import run_summary
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet
from headwise.toy.small_lm import DATA


@pytest.mark.slow
def test_a_run_holds_what_tracing_alone_finds(whole_run: Path) -> None:
    run = CircuitRun.load(whole_run)
    model = small_model()
    assert run.traced == list(range(COUNT))
    for number, line in enumerate(answer_lines(COUNT)):
        alone = headwise.trace(model, line["prompt"], answer=line["answer"], wrong=line["wrong"], mlp_depth=0)
        found = run.circuit(number)
        assert {(e.id, frozenset(e.channels)) for e in found.edges} == {
            (e.id, frozenset(e.channels)) for e in alone.edges
        }
        assert found.by_id.keys() == alone.by_id.keys()
        weights = {e.id: e.weight for e in alone.edges}
        assert all(e.weight == pytest.approx(weights[e.id], abs=1e-4) for e in found.edges)
        row = run.prompts.slice(number, 1).to_pylist()[0]
        logits = model.capture(line["prompt"], heads=[], want=(), logits="last").logits
        assert logits is not None
        last = logits[0, -1]
        assert row["difference"] == pytest.approx(
            float(last[row["answer_id"]] - last[row["wrong_id"]]), abs=1e-4
        )
        assert row["top"] == model.tokenizer.decode([int(last.argmax())])
        assert json.loads(row["labels"]) == line["labels"]
        assert (row["text"], row["answer"], row["wrong"]) == (line["prompt"], line["answer"], line["wrong"])


@pytest.mark.slow
def test_the_same_bytes_again_and_with_two_workers(
    answer_file: Path, whole_run: Path, tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        trace_many(small_model(), answer_file, out=tmp_path / "again")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    trace_many(small_model(), answer_file, out=tmp_path / "two", workers=2)
    expected = contents(whole_run)
    assert sorted(expected) == [
        "edges.parquet",
        "firings.parquet",
        "manifest.json",
        "prompts.parquet",
        "schema.json",
    ]
    assert contents(tmp_path / "again") == expected
    assert contents(tmp_path / "two") == expected
    # A finished run is returned as it is.
    before = (tmp_path / "two" / "edges.parquet").stat().st_mtime_ns
    trace_many(small_model(), answer_file, out=tmp_path / "two")
    assert (tmp_path / "two" / "edges.parquet").stat().st_mtime_ns == before


def test_the_estimate_is_of_the_right_size(answer_file: Path, whole_run: Path) -> None:
    answers = collect.make_answers(answer_file, small_model().tokenizer)
    size = sum(map(len, contents(whole_run).values()))
    assert size / 3 < collect.estimated_bytes(small_model(), answers) < 3 * size


@pytest.mark.slow
def test_wrong_empty_and_failing_prompts_are_recorded(tmp_path: Path) -> None:
    lines = answer_lines(40)
    for number in (3, 7, 8):
        lines[number]["answer"], lines[number]["wrong"] = lines[number]["wrong"], lines[number]["answer"]
    del lines[5]["wrong"]
    lines[6] = {**lines[6], "wrong": None, "answer": "the"}
    long = " ".join([lines[0]["prompt"]] * 10)
    lines[9] = {**lines[9], "prompt": long}
    run = trace_many(small_model(), write_lines(tmp_path / "mine.jsonl", lines), out=tmp_path / "run")
    status = run.prompts.column("status").to_pylist()
    assert {n: s for n, s in enumerate(status) if s != "traced"} == {
        3: "wrong",
        6: "wrong",
        7: "wrong",
        8: "wrong",
        9: "failed",
    }
    rows = run.prompts.to_pylist()
    assert "the prompt has" in rows[9]["reason"]
    assert "context is 64" in rows[9]["reason"]
    assert rows[9]["difference"] is rows[9]["top"] is None
    assert len(rows[9]["token_ids"]) > 64
    assert rows[3]["reason"] == f"the model prefers {lines[3]['wrong']!r}"
    assert rows[3]["difference"] < 0
    assert rows[5]["wrong"] is None
    assert rows[5]["difference"] > 0
    assert rows[6]["reason"] == f"the model prefers {rows[6]['top']!r}"
    assert set(run.edges.column("prompt").to_pylist()) == set(run.traced)
    # the others of its chunk are what they would have been
    del lines[9]
    other = trace_many(small_model(), write_lines(tmp_path / "less.jsonl", lines), out=tmp_path / "less")
    assert {e.id for e in other.circuit(9).edges} == {e.id for e in run.circuit(10).edges}
    summary = run_summary(run)
    assert (summary["n_traced"], summary["n_wrong"], summary["n_failed"]) == (35, 4, 1)
    wordings = Counter(lines[n]["labels"]["wording"] for n in (3, 6, 7, 8))
    assert {w["wording"]: w["wrong"] for w in summary["wrong_by_wording"] if w["wrong"]} == wordings
    assert summary["failures"] == [{"reason": rows[9]["reason"], "prompts": 1}]


def test_a_prompt_without_a_circuit_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no head carries the answer: the same circuits with nothing in them."""
    real = chunks.trace

    def nothing(*args: Any, **kwargs: Any) -> Any:
        from dataclasses import replace

        return [
            replace(c, nodes=(), edges=(), counterfactuals=(), notes=("no head",))
            for c in real(*args, **kwargs)
        ]

    monkeypatch.setattr(chunks, "trace", nothing)
    run = trace_many(small_model(), write_lines(tmp_path / "a.jsonl", answer_lines(2)), out=tmp_path / "run")
    assert run.prompts.column("status").to_pylist() == ["empty", "empty"]
    assert run.prompts.column("reason").to_pylist() == ["no head", "no head"]
    assert run_summary(run)["median_edges"] is None


def test_another_run_in_the_folder_is_refused(answer_file: Path, whole_run: Path, tmp_path: Path) -> None:
    shutil.copytree(whole_run, tmp_path / "run")
    with pytest.raises(HeadwiseError, match="holds another run"):
        trace_many(small_model(), answer_file, out=tmp_path / "run", mode="published")
    with pytest.raises(HeadwiseError, match="holds another run"):
        trace_many(
            small_model(), write_lines(tmp_path / "mine.jsonl", answer_lines(49)), out=tmp_path / "run"
        )
    assert contents(tmp_path / "run") == contents(whole_run)


def test_a_folder_in_use_is_refused(answer_file: Path, tmp_path: Path) -> None:
    def again(_: str, done: int, total: int) -> None:
        with pytest.raises(HeadwiseError, match="being written by another process"):
            trace_many(small_model(), answer_file, out=tmp_path / "run")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trace_many(small_model(), answer_file, out=tmp_path / "run", progress=again)


def test_workers_need_a_model_that_can_be_loaded(answer_file: Path, tmp_path: Path) -> None:
    loaded = small_model()
    by_hand = Model(loaded.hf, loaded.tokenizer, name="mine")
    with pytest.raises(HeadwiseError, match=r"'mine' was not loaded by headwise.load.*use workers=1"):
        trace_many(by_hand, answer_file, out=tmp_path / "run", workers=2)
    assert not (tmp_path / "run").exists()
    assert len(trace_many(by_hand, answer_file, out=tmp_path / "run", prompts=3)) == 3
    with pytest.raises(HeadwiseError, match="workers=0"):
        trace_many(loaded, answer_file, out=tmp_path / "none", workers=0)
    with pytest.raises(HeadwiseError, match="mode 'fast' is not a mode"):
        trace_many(loaded, answer_file, out=tmp_path / "none", mode="fast")


def test_a_model_without_words_needs_none_of_its_own(tmp_path: Path) -> None:
    """Any family can be traced; a task for it is made of what its tokenizer reads."""
    with pytest.raises(HeadwiseError, match="no tokenizer"):
        trace_many(tiny("gpt2"), "ioi", out=tmp_path / "run")


def test_a_set_of_your_own(tmp_path: Path) -> None:
    lines, words = answer_lines(3), small_model().tokenizer
    made = [
        AnswerPrompt(
            x["prompt"],
            x["answer"],
            x["wrong"],
            x["labels"],
            *(words(x[name], add_special_tokens=False).input_ids[0] for name in ("answer", "wrong")),
        )
        for x in lines
    ]
    run = trace_many(small_model(), AnswerSet("own", tuple(made)), out=tmp_path / "run")
    assert run.config["task"] == "own"
    assert run.config["prompts"] == len(run.traced) == 3


# --- the command ---


def test_the_command_prints_a_summary(
    answer_file: Path, whole_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    base = ("circuits", str(answer_file), "--model", str(DATA), "--out", str(out), "--workers", "1")
    assert main((*base, "--json")) == 0
    printed, told = capsys.readouterr()
    assert f"{COUNT} prompts, about" in told
    document = json.loads(printed)
    assert contents(out) == contents(whole_run)
    assert document["n_traced"] == COUNT
    assert document["bytes"] == sum(map(len, contents(out).values()))
    assert document["prompts_per_second"] == pytest.approx(COUNT / document["seconds"], rel=0.1)
    assert main(base) == 0
    assert "traced to a circuit" in capsys.readouterr().out
    assert main((*base, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["prompts_per_second"] is None  # it was there already
    run = CircuitRun.load(out)
    sizes = sorted(len(c) for c in run.edges.column("channels").to_pylist() if c)
    assert document["median_signal_rank"] == sizes[len(sizes) // 2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("iio", "--out", "x"), "did you mean 'ioi'?"),
        (("none.jsonl", "--out", "x"), "there is no file 'none.jsonl'"),
        (("ioi",), "missing option"),
        (("ioi", "--out", "x", "--model", str(DATA)), "no usable prompt for this model's tokenizer"),
        (
            ("ioi", "--out", "x", "--model", str(DATA), "--prompts", "0"),
            "invalid value '0' for --prompts: it should be greater",
        ),
    ],
)
def test_bad_requests_are_one_line(
    arguments: tuple[str, ...],
    told: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(("circuits", *arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.real
def test_indirect_objects_in_the_default_model(smollm2: Model, tmp_path: Path) -> None:
    run = trace_many(smollm2, "ioi", prompts=6, out=tmp_path / "run")
    assert len(run) == 6
    assert len(run.traced) >= 3
    circuit = run.circuit(run.traced[0])
    assert circuit.heads
    assert circuit.weight_hash == smollm2.weight_hash
    assert {labels["order"] for labels in run.labels} == {"ABBA", "BABA"}
    text = circuit.prompt
    alone = headwise.trace(smollm2, text or "", answer=circuit.answer_id, wrong=circuit.wrong_id, mlp_depth=0)
    shared = {e.id for e in alone.edges} & {e.id for e in circuit.edges}
    assert len(shared) > 0.9 * max(len(alone.edges), len(circuit.edges))


def test_a_batch_that_fails_for_no_reason_of_a_prompt_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in the program must not look like prompts that fail."""

    def broken(*_: Any, **__: Any) -> Any:
        raise AttributeError("no such\nthing \x1b[31m")

    monkeypatch.setattr(chunks, "trace", broken)
    monkeypatch.setattr(chunks, "_warned", False)
    monkeypatch.setattr(collect, "CHUNK", 2)
    file = write_lines(tmp_path / "a.jsonl", answer_lines(6))
    with pytest.warns(RuntimeWarning, match=r"traced together \(AttributeError: no such thing") as told:
        run = trace_many(small_model(), file, out=tmp_path / "run")
    assert len(told) == 1
    assert "\x1b" not in str(told[0].message)
    assert set(run.prompts.column("status").to_pylist()) == {"failed"}
