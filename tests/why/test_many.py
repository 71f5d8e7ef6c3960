"""Many prompts: the aggregate of one is its explanation, runs go on where they stopped, and bad input is one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from toy_answers import answer_lines, small_model, write_lines

import headwise
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.tasks.answers.types import AnswerSet
from headwise.tracing.table import log_odds_table
from headwise.why.explain import explain
from headwise.why.many import parts
from headwise.why.many.study import explain_many

HEAD = "L1H0"


def _task(folder: Path, number: int) -> Path:
    return write_lines(folder / "answers.jsonl", answer_lines(number))


def test_the_aggregate_of_one_prompt_is_its_explanation(tmp_path: Path) -> None:
    model, task = small_model(), _task(tmp_path, 1)
    found = explain_many(model, task, head=HEAD, key=1)
    why = explain(model, answer_lines(1)[0]["prompt"], head=HEAD, query=-1, key=1, draws=1)
    assert found.prompts == 1 and found.attention.mean == pytest.approx(why.attention, rel=1e-5)
    assert found.log_odds.mean == pytest.approx(why.what.log_odds, rel=1e-4)
    assert found.error < 1e-4
    channels = {part.channel: part.log_odds for part in why.what.channels}
    for one in found.channels:
        assert one.log_odds.mean == pytest.approx(channels[one.channel], abs=1e-4)
    for side in ("query", "key"):
        table = why.table(side)
        sums: dict[str, float] = {}
        for writer, part in zip(table.writers, table.rows.tolist(), strict=True):
            assert writer is not None
            sums[writer.name] = sums.get(writer.name, 0.0) + part
        rows = [one for one in found.writers if one.side == side]
        assert sum(one.log_odds.mean for one in rows) == pytest.approx(why.what.log_odds, abs=1e-4)
        for one in rows:
            if one.writer != "others":
                assert one.log_odds.mean == pytest.approx(sums[one.writer], abs=1e-4)
                assert sum(one.reads.values()) == pytest.approx(
                    one.log_odds.mean if one.reads else 0.0, abs=1e-6
                )
        causes = {member.name for member in why.who.sets[side].members}
        assert {one.writer for one in rows if one.cause.mean == 1} - {"others"} <= causes
        for row in why.who.of(side):
            if row.mlp is not None and row.writer is not None:
                shares: dict[str, float] = {}
                for part in row.mlp.writers:
                    shares[part.writer.name] = shares.get(part.writer.name, 0.0) + part.share
                for path in found.paths:
                    # Of heads the account shows the strongest tokens alone.
                    known = path.writer in shares and not path.writer.startswith("L")
                    if (path.side, path.mlp) == (side, row.writer.name) and known:
                        assert path.log_odds.mean == pytest.approx(shares[path.writer], abs=1e-4)


def test_means_are_those_of_the_prompts_and_a_run_goes_on(tmp_path: Path) -> None:
    model, task = small_model(), _task(tmp_path, 20)
    found = explain_many(model, task, head=HEAD, key=1, out=tmp_path / "run")
    alone = [
        explain(model, line["prompt"], head=HEAD, query=-1, key=1, draws=1).what.log_odds
        for line in answer_lines(20)[:3]
    ]
    three = explain_many(model, task, head=HEAD, key=1, prompts=3)
    assert three.log_odds.mean == pytest.approx(sum(alone) / 3, abs=1e-4)
    assert found.prompts == 20 and found.log_odds.low <= found.log_odds.mean <= found.log_odds.high
    for one in found.writers:
        assert 0 <= one.often.mean <= 1 and one.often.mean + one.against.mean <= 1
    again = explain_many(model, task, head=HEAD, key=1, out=tmp_path / "run")  # read, not made anew
    loaded = headwise.ExplanationsResult.load(tmp_path / "run")
    fresh = explain_many(model, task, head=HEAD, key=1)
    for other in (again, loaded, fresh):
        document, own = other.to_json(), found.to_json()
        assert {**document, "seconds": 0} == {**own, "seconds": 0}
    with pytest.raises(HeadwiseError, match="holds another run"):
        explain_many(model, task, head=HEAD, key=2, out=tmp_path / "run")
    assert "Through MLPs" in found.to_html() and HEAD in found.sentence


def test_three_wordings_are_what_an_interval_is_over(tmp_path: Path) -> None:
    lines = [{**line, "labels": {"wording": str(i % 3)}} for i, line in enumerate(answer_lines(12))]
    task = write_lines(tmp_path / "three.jsonl", lines)
    found = explain_many(small_model(), task, head=HEAD, key=1)
    assert found.clusters == "wording" and found.log_odds.n == 12 and found.log_odds.clusters == 3


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    model = small_model()
    with pytest.raises(HeadwiseError, match="the task 'none' has no prompts"):
        explain_many(model, AnswerSet("none", ()), head=HEAD)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(HeadwiseError, match="has no prompts: write one JSON object per line"):
        explain_many(model, empty, head=HEAD)
    with pytest.raises(HeadwiseError, match="in the prompt"):
        explain_many(model, _task(tmp_path, 3), head=HEAD, key="zebra")
    with pytest.raises(HeadwiseError, match="sees one token, so there is nothing to explain"):
        explain_many(model, _task(tmp_path, 3), head=HEAD, query=0)


def test_a_head_that_never_attends_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A head that rests on the first token in every prompt gives every other key less than an even share.
    monkeypatch.setattr(parts, "log_odds_table", lambda *given: replace(log_odds_table(*given), total=-0.5))
    with pytest.raises(
        HeadwiseError, match=f"^{HEAD} never attends to another token than the first"
    ) as error:
        explain_many(small_model(), _task(tmp_path, 3), head=HEAD)
    assert "\n" not in str(error.value)


@pytest.mark.real
def test_what_shapes_a_head_of_the_default_model(smollm2: Model) -> None:
    found = headwise.explain_many(smollm2, "ioi", head="L23H3", prompts=16)
    shaped = found.writer("L20H0", "query")
    assert shaped is not None and shaped.log_odds.low > 0 and shaped.often.mean > 0.5
    assert found.attends.mean == 1 and found.error < 1e-3
