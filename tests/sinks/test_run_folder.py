"""The folder of a study of sinks: interrupted anywhere, it continues to the same bytes; another one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pace import first_is_quick
from planted_sink import by_hand, plant_sink, planted_prompts
from run_folders import one_line
from tiny import prompts_of, tiny
from toy_answers import contents, kept, small_model

from headwise.model.model import Model
from headwise.scale.stages import Stages
from headwise.sinks import clusters, find, signals
from headwise.sinks.result import SinksResult
from headwise.sinks.signals import trace_parked
from headwise.sinks.study import find_sinks

ASKED: dict[str, Any] = {"traced": 8, "proved": 3}
STAGES = (
    "attention",
    "firings",
    "signals",
    "sources of queries",
    "sources of keys",
    "removal",
    "shared removal",
)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts in each, so that there is much to interrupt."""
    monkeypatch.setattr(find, "MAX_TOKENS", 32)
    monkeypatch.setattr(signals, "TRACED_TOKENS", 32)
    monkeypatch.setattr(clusters, "TRACED_TOKENS", 32)


@pytest.fixture(scope="module")
def model() -> Model:
    return plant_sink()


@pytest.fixture(scope="module")
def whole(model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run that nobody disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "MAX_TOKENS", 32)
        patch.setattr(signals, "TRACED_TOKENS", 32)
        patch.setattr(clusters, "TRACED_TOKENS", 32)
        find_sinks(model, planted_prompts(), out=out, **ASKED)
    return contents(out)


@pytest.mark.parametrize("stage", first_is_quick(*STAGES))
@pytest.mark.slow
def test_an_interrupted_study_continues_to_the_same_bytes(
    stage: str, model: Model, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def interrupt(name: str, done: int, total: int) -> None:
        if name == stage and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_sinks(model, planted_prompts(), out=out, progress=interrupt, **ASKED)
    before = kept(out)
    assert before
    told: list[tuple[str, int]] = []
    find_sinks(
        model, planted_prompts(), out=out, progress=lambda name, done, _: told.append((name, done)), **ASKED
    )
    assert contents(out) == whole
    # What was kept is not made again: the stage goes on where it was.
    assert [done for name, done in told if name == stage][1] > 0
    assert {name for name, _ in told} == set(STAGES)


@pytest.mark.slow
def test_a_damaged_part_is_made_again(model: Model, whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "run"

    def interrupt(name: str, done: int, total: int) -> None:
        if name == "removal" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_sinks(model, planted_prompts(), out=out, progress=interrupt, **ASKED)
    for part in (out / ".headwise-work").glob("*.chunk"):
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
    find_sinks(model, planted_prompts(), out=out, **ASKED)
    assert contents(out) == whole


def test_a_finished_study_comes_back_without_work(
    model: Model, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    first = find_sinks(model, planted_prompts(), out=out, **ASKED)
    assert contents(out) == whole

    def works(*_: Any, **__: Any) -> Any:
        raise AssertionError("there is nothing left to do")

    monkeypatch.setattr(Stages, "__call__", works)
    again = find_sinks(model, planted_prompts(), out=out, **ASKED)
    assert {**again.to_json(), "seconds": 0} == {**first.to_json(), "seconds": 0}
    assert contents(out) == whole
    assert {**SinksResult.load(out).to_json(), "seconds": 0} == {**first.to_json(), "seconds": 0}


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"threshold": 0.25}, {"parked": 0.4}, {"traced": 7}, {"proved": 2}, {}]
)
def test_a_folder_of_other_settings_or_texts_is_refused_before_the_work(
    other: dict[str, Any], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"

    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_sinks(model, planted_prompts(), out=out, progress=interrupt, **ASKED)
    before = contents(out)

    def works(*_: Any, **__: Any) -> Any:
        raise AssertionError("it is refused before the work")

    monkeypatch.setattr(Stages, "__call__", works)
    texts = planted_prompts() if other else planted_prompts()[:-1]
    message = one_line(lambda: find_sinks(model, texts, out=out, **{**ASKED, **other}))
    assert f"holds another run (sinks with other {next(iter(other), 'prompts')}" in message
    assert contents(out) == before


def test_where_there_is_no_sink_no_folder_is_left(model: Model, tmp_path: Path) -> None:
    out = tmp_path / "new" / "run"
    one_line(lambda: find_sinks(model, planted_prompts(), threshold=0.99, out=out))
    assert not out.parent.exists()


def test_which_firings_are_traced_does_not_depend_on_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head's share is used up from the shortest prompts on, whichever batch those are in."""
    model = tiny("llama")
    parking = by_hand(model, prompts_of(13, 9, 12, 8, 11))
    found = []
    for tokens in (12, 24, 160):
        monkeypatch.setattr(signals, "TRACED_TOKENS", tokens)
        traced = trace_parked(model, parking, range(5), model.heads, per_head={"sink": 3, "other": 2})
        found.append([(one.prompt, one.kind, one.cell) for one in traced])
    assert found[0] == found[1] == found[2]
    whole = trace_parked(model, parking, range(5), model.heads, per_head={"sink": 5, "other": 5})
    by_size = [3, 1, 4, 2, 0]
    for kind, most in (("sink", 3), ("other", 2)):
        for head in model.heads:
            possible = [one.prompt for one in whole if (one.kind, one.head) == (kind, head)]
            taken = [p for p, of, cell in found[0] if (of, cell.head) == (kind, head)]
            assert taken == sorted(sorted(possible, key=by_size.index)[:most])
    assert len(found[0]) < len(whole)


@pytest.mark.slow
def test_two_workers_find_the_same(tmp_path: Path) -> None:
    model, texts = (
        small_model(),
        [
            f"The pen is in Box A . The {word} is in Box B . The pen is in Box"
            for word in ("jam", "key", "map", "cup")
        ],
    )
    asked: dict[str, Any] = {"threshold": 0.1, "parked": 0.1, "traced": 2, "proved": 1}
    threads = torch.get_num_threads()
    find_sinks(model, texts, out=tmp_path / "one", **asked)
    find_sinks(model, texts, out=tmp_path / "two", workers=2, **asked)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert torch.get_num_threads() == threads
