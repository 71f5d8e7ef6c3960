"""The works made again: every part has a command that exists, and a run goes on where it was left."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from forked import forked_command

import headwise
from headwise.cli.main import VERBS, main
from headwise.errors import HeadwiseError
from headwise.research import reproduce as module
from headwise.research.paper_readings import GRIDS, accuracy, attribution, swapped
from headwise.research.parts import ResearchPart, ResearchReading, ResearchRuns, ResearchStudy, Work
from headwise.research.presets import PRESETS, preset_for, with_files
from headwise.research.report import reproduced_report
from headwise.research.reproduce import PARTS, Missing, reproduce, study_words
from headwise.research.studies import STUDIES
from headwise.show.kit.report import Figure, Report, Section, figures_in
from headwise.toy.small_lm import DATA
from make_reproduced import PAGE as RESULTS
from make_reproduced import reproduced_page
from make_research import EQUATIONS, PAGE, research_page

WORKS: tuple[Work, ...] = ("paper", "talk")


def parsed(words: list[str]) -> None:
    """Read a command line as the command itself does; what it does not know is refused."""
    command = typer.main.get_command(import_module(VERBS[words[0]][0]).app)
    rest = words[1:]
    if words[0] == "toy":
        command, rest = command.commands[words[1]], words[2:]  # type: ignore[attr-defined]
    command.make_context(words[0], rest)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", PRESETS)
def test_every_command_can_be_asked_of_every_preset(name: str, quick: bool, tmp_path: Path) -> None:
    for work in WORKS:
        for study in STUDIES[work]:
            (tmp_path / "circuits").mkdir(exist_ok=True)
            words = study_words(study, PRESETS[name], tmp_path, quick=quick, engine=("--workers", "2"))
            assert not isinstance(words, Missing)
            parsed(words)
            loading = study_words(study, PRESETS[name], tmp_path, quick=quick, loading=("--dtype=float16",))
            assert not isinstance(loading, Missing)
            assert ("--dtype=float16" in loading) == study.model == (words[0] != "toy")


def test_every_part_reads_studies_that_are_made_and_none_is_made_for_nothing() -> None:
    for work in WORKS:
        made = {study.name for study in STUDIES[work]}
        assert {name for part in PARTS[work] for name in part.studies} == made
        places = [part.place for part in PARTS[work]]
        assert len(set(places)) == len(places)
        assert all(part.work == work for part in PARTS[work])


def test_no_figure_and_no_equation_of_the_paper_is_forgotten() -> None:
    told = " ".join(part.place for part in PARTS["paper"])
    drawn = {int(number) for number in re.findall(r"Figure (\d+)", told)}
    # The first figure is a drawing of the method itself.
    assert drawn == set(range(2, 21))
    numbers = {int(one) for numbers, *_ in EQUATIONS for one in numbers.split(", ")}
    assert numbers == set(range(1, 16))
    assert PAGE.read_text(encoding="utf-8") == research_page(), "run: python tools/make_research.py"


def test_the_page_of_results_is_what_runs_wrote() -> None:
    assert RESULTS.read_text(encoding="utf-8") == reproduced_page(), "run: python tools/make_reproduced.py"


@pytest.mark.parametrize(
    ("given", "name", "model"),
    [
        (None, "smollm2", None),
        ("gpt2", "gpt2", "openai-community/gpt2"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b-instruct", "Qwen/Qwen3-4B-Instruct-2507"),
        ("some/folder", "folder", "some/folder"),
    ],
)
def test_a_model_has_its_preset_by_either_name(given: str | None, name: str, model: str | None) -> None:
    found = preset_for(given)
    assert (found.name, found.model) == (name, model)


def test_the_small_model_is_asked_in_its_own_language(tmp_path: Path) -> None:
    found = with_files(preset_for(str(DATA)), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "objects.jsonl").read_text().splitlines()]
    assert len(lines) == 160
    assert all(f"[[answer:{one['groups']['answer']}]]" in one["prompt"] for one in lines)
    missing = study_words(STUDIES["paper"][-3], found, tmp_path, quick=True)
    assert isinstance(missing, Missing) and "filter" in missing.why
    before = (tmp_path / "answers.jsonl").stat().st_mtime_ns
    with_files(preset_for(str(DATA)), tmp_path)
    assert (tmp_path / "answers.jsonl").stat().st_mtime_ns == before


def made_up(heads: dict[str, bool]) -> ResearchRuns:
    """A features study in which each head has one feature, supported or not; the first head does the task best."""
    swap = {"share_of_full": 0.5, "placebo_share": 0.2}
    features = [
        {"head": head, "name": "order", "supported": held, "q": 0.01 if held else 0.6, "swap": swap}
        for head, held in heads.items()
    ]
    ranked = [{"head": head, "score": 1.0 - 0.1 * at} for at, head in enumerate(heads)]
    return ResearchRuns(Path(), {"binding": {"heads": ranked, "features": features}})


def test_the_best_head_and_the_others_are_judged_apart() -> None:
    best, others = swapped("binding"), swapped("binding", others=True)
    runs = made_up({"L1H0": False, "L2H0": True})
    assert best(runs).supported is False and others(runs).supported is True
    assert "L1H0" in best(runs).here and "L1H0" not in others(runs).here
    assert others(made_up({"L1H0": True})).supported is None


def test_a_part_about_another_model_is_left_out() -> None:
    apart = [part.place for part in PARTS["paper"] if part.only]
    assert apart == ["Figure 19", "Figure 20"]
    assert {part.only for part in PARTS["paper"] if part.only} <= set(PRESETS)


@pytest.fixture
def one_study(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The talk as one study and one part."""

    def put(words: str) -> None:
        def read(runs: ResearchRuns) -> ResearchReading:
            return ResearchReading(f"{runs['pair']['summary']['variants']} seeds", True, "always")

        part = ResearchPart("talk", "A slide", "a claim", "1", ("pair",), read, "Seed 0: |cos|")
        monkeypatch.setitem(STUDIES, "talk", (ResearchStudy("pair", words, words, model=False),))
        monkeypatch.setitem(PARTS, "talk", (part,))

    return put


def test_what_is_done_is_not_done_again(
    one_study: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_study("toy alignment --seeds 1 --steps 20")
    first = reproduce("talk", out=tmp_path, quick=True)
    assert [part.reading and part.reading.here for part in first.parts] == ["1 seeds"]
    assert json.loads((tmp_path / "reproduced.json").read_text()) == first.to_json()
    assert "headwise toy alignment" in first.parts[0].commands[0]
    page = reproduced_report(first).write(tmp_path / "report.html")
    assert len(figures_in(page)) == 1

    def refuse(*given: Any, **more: Any) -> None:
        raise AssertionError("begun again")

    monkeypatch.setattr(module, "begin_command", refuse)
    assert reproduce("talk", out=tmp_path, quick=True) == first
    one_study("toy alignment --seeds 1 --steps 30")
    with pytest.raises(HeadwiseError, match=r"is of another command .*give another folder"):
        reproduce("talk", out=tmp_path, quick=True)


def test_a_study_that_is_refused_is_left_out_with_the_reason_and_tried_the_next_time(
    one_study: Callable[..., None], tmp_path: Path
) -> None:
    one_study("toy alignment --seeds 0")
    found = reproduce("talk", out=tmp_path)
    assert found.parts[0].reading is None and "--seeds" in found.parts[0].why_not
    assert "\n" not in found.parts[0].why_not
    assert not (tmp_path / "pair.json").exists() and not (tmp_path / "pair.part").exists()
    assert "Left out" in reproduced_report(found).write(tmp_path / "report.html").read_text(encoding="utf-8")
    one_study("toy alignment --seeds 1 --steps 20")
    assert reproduce("talk", out=tmp_path).parts[0].reading is not None


def test_a_study_that_breaks_ends_the_run_in_one_line(
    one_study: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_study("toy alignment --seeds 1 --steps 20")

    def broken(*given: Any, said: Any, printed: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(
            [sys.executable, "-c", "raise SystemExit('lost')"], stderr=said, stdout=printed
        )

    monkeypatch.setattr(module, "begin_command", broken)
    with pytest.raises(HeadwiseError, match=r"the study pair ended with 1: lost .*pair\.txt") as refusal:
        reproduce("talk", out=tmp_path)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "pair.json").exists()


def test_a_folder_of_others_is_left_alone(one_study: Callable[..., None], tmp_path: Path) -> None:
    one_study("toy alignment --seeds 0")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(HeadwiseError, match="holds other files"):
        reproduce("talk", out=tmp_path / "mine")
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    reproduce("talk", out=tmp_path / "new", quick=True)
    with pytest.raises(HeadwiseError, match="was begun for"):
        reproduce("talk", out=tmp_path / "new")


def test_wrong_uses_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "book"]) == 2
    assert "paper" in capsys.readouterr().err
    with pytest.raises(HeadwiseError, match="there is no work 'book'"):
        reproduce("book", out=tmp_path)  # type: ignore[arg-type]


def test_figures_are_read_from_a_page_as_they_were_drawn(tmp_path: Path) -> None:
    drawn = go.Figure(go.Scatter(x=[1, 2], y=[3, 4], name="</script><b>"))
    page = Report("t", [Section("s", [Figure(drawn, "A caption < with `marks`"), Figure(drawn, "Another")])])
    found = figures_in(page.write(tmp_path / "page.html"))
    assert [caption for caption, _ in found] == ["A caption < with marks", "Another"]
    again: Any = found[0][1].data[0]
    assert list(again.x) == [1, 2] and list(again.y) == [3, 4]


@pytest.mark.cluster
@pytest.mark.parametrize("work", WORKS)
def test_the_whole_work_at_a_small_size_on_the_small_model(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every study in a process of its own, as always, but importing torch in each would take half of the time."""
    monkeypatch.setattr(module, "begin_command", forked_command)
    found = headwise.reproduce(work, str(DATA), out=tmp_path, quick=True)
    left = {one.part.place for one in found.parts if one.reading is None}
    others = ("small has no task", "about another model")
    assert all(any(said in one.why_not for said in others) for one in found.parts if one.reading is None)
    assert len(left) < len(found.parts) / 2
    assert found.claims > len(found.parts) / 3
    page = reproduced_report(found).write(tmp_path / "report.html")
    missing = [
        one.part.place
        for one in found.parts
        if one.reading is not None and one.part.figure
        if not any(
            caption.startswith(one.part.figure)
            for caption, _ in figures_in(tmp_path / one.part.studies[0] / "report.html")
        )
    ]
    # The small model's task has no number of entities that could be varied.
    assert missing == (["Figure 16"] if work == "paper" else [])
    assert page.read_text(encoding="utf-8").count("<figure") > len(found.parts) / 3


@pytest.mark.parametrize(
    ("beyond", "heads", "holds"), [(0, 4, False), (1, 5, False), (2, 5, True), (1, 1, True)]
)
def test_logits_are_explained_where_more_heads_are_beyond_placebos_than_by_chance(
    tmp_path: Path, beyond: int, heads: int, holds: bool
) -> None:
    """One head of five at a level of 5 % is what chance gives in a quarter of runs."""
    rows = [
        {
            "head": f"L0H{h}",
            "method": method,
            "explained": 0.9 if h < beyond or method == "shapley" else 0.5,
            "explained_null": 0.6,
            "explained_high": 0.8,
        }
        for h in range(heads)
        for method in ("sequential", "shapley")
    ]
    (tmp_path / "binding").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "binding" / "attribution.parquet")
    found = attribution(ResearchRuns(tmp_path, {"binding": {}}))
    assert found.supported is holds
    assert f"in {beyond} of {heads} heads" in found.here


@pytest.mark.parametrize(
    ("gap", "mean", "holds"), [(0.01, 0.83, True), (0.06, 0.83, False), (0.01, 0.79, False)]
)
def test_heads_retrieve_the_payload_as_far_as_the_task_lets_them(
    tmp_path: Path, gap: float, mean: float, holds: bool
) -> None:
    """Gaussian latents have no ceiling: theirs is written as one, and none comes near it."""
    gaussian = {"payload-8-gaussian": mean, "payload-16-gaussian": 0.98}
    runs = {
        name: {
            "summary": {
                "mean_accuracy": gaussian.get(name, 0.97),
                "largest_gap_to_ceiling": 0.39 if name in gaussian else gap,
            }
        }
        for name in GRIDS
    }
    assert accuracy(ResearchRuns(tmp_path, runs)).supported is holds
