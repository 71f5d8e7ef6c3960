"""Plans: sizes from configurations alone, and costs that follow from them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_answers import small_model

from headwise.cli.main import VERBS, main
from headwise.errors import HeadwiseError
from headwise.model.loading import load as loading
from headwise.model.sizes import PUBLISHED, sizes_of
from headwise.planning import probe
from headwise.planning.plan import PROCESS, CommandCost, WorkPlan, command_cost, plan_work
from headwise.planning.probe import MachinePace, described_pace, measured_pace
from headwise.planning.work import CONTRAST, SIGNAL, WORK, CommandWork
from headwise.research.cost import TOYS, WORKS, reproduce_cost, start_calls, study_work
from headwise.research.parts import Work
from headwise.research.studies import STUDIES
from headwise.scale.machine import memory_here
from headwise.toy.small_lm import DATA

PACE = MachinePace(products=((8, 1e9), (512, 1e10)), attention=1e10, layer=1e-3, call=1e-5)
PARAMETERS = {
    "smollm2": 134_515_008,
    "gpt2": 124_439_808,
    "EleutherAI/pythia-160m": 162_322_944,
    "google/gemma-2-2b": 2_614_341_888,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
}


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "measured_pace", lambda sizes: PACE)


def by_command(plan: WorkPlan) -> dict[str, CommandCost]:
    return {cost.command: cost for cost in plan.costs}


def test_a_published_model_has_its_published_number_of_parameters() -> None:
    assert {name: sizes_of(name).parameters for name in PUBLISHED} == PARAMETERS
    assert sizes_of() == sizes_of("smollm2")


def test_a_configuration_tells_the_sizes_of_the_loaded_model(tmp_path: Path) -> None:
    model, sizes = small_model(), sizes_of(DATA)
    assert sizes.parameters == sum(one.numel() for one in model.hf.parameters())
    assert (sizes.layers, sizes.heads, sizes.d_head) == (model.n_layers, model.n_heads, model.d_head)
    assert sizes.vocabulary == model.vocabulary
    # A configuration alone is enough, by whatever name.
    for name in ("config.json", "mine.json"):
        file = tmp_path / name
        file.write_bytes((DATA / "config.json").read_bytes())
        assert replace(sizes_of(file), name=sizes.name) == sizes
    assert sizes_of(file).name == "mine"


def test_only_the_configuration_of_a_hub_model_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def find(place: loading.ModelPlace, file: str, given: object) -> Path:
        asked.append((place.where, file))
        return DATA / file

    from transformers import AutoConfig

    read = AutoConfig.from_pretrained
    monkeypatch.setattr(loading, "find_file", find)
    monkeypatch.setattr(loading, "hub_reachable", lambda: False)
    monkeypatch.setattr(AutoConfig, "from_pretrained", lambda where, **given: read(DATA))
    assert replace(sizes_of("owner/name"), name="") == replace(sizes_of(DATA), name="")
    assert asked[0] == ("owner/name", "config.json") and {file for _, file in asked} == {"config.json"}


def test_operations_are_those_that_torch_counts() -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    model, tokens = small_model(), 24
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        model.hf(torch.zeros(1, tokens, dtype=torch.long), use_cache=False)
    assert sizes_of(DATA).flops(tokens) == pytest.approx(counted.get_total_flops(), rel=0.05)


def test_costs_follow_from_the_sizes() -> None:
    sizes = sizes_of("meta-llama/Llama-3.1-8B")
    # Twice the parameters that multiply, for every token; the table of tokens does not.
    products = 2 * (sizes.parameters - sizes.vocabulary * sizes.d_model)
    assert sizes.flops(1) == pytest.approx(products, rel=0.001)
    one = by_command(plan_work(sizes, PACE, prompts=100, available=10**12))
    ten = by_command(plan_work(sizes, PACE, prompts=1000, available=10**12))
    for work in WORK:
        few, many = one[work.command], ten[work.command]
        once = work.calls_once(sizes) * PACE.call
        times = work.counted(1000) / work.counted(100) if work.asked else 1
        assert many.seconds - once == pytest.approx(times * (few.seconds - once))
        assert many.memory == few.memory
        assert few.tokens == (work.tokens or 32)
    assert ten["circuits"].disk == pytest.approx(10 * one["circuits"].disk, abs=10)
    half = by_command(plan_work(sizes, PACE, prompts=100, available=10**12, dtype="bfloat16"))
    assert one["explain"].memory - half["explain"].memory == 2 * sizes.parameters
    # A machine that does nothing but small calls, and one whose small calls cost nothing.
    still = replace(PACE, call=0.0, layer=0.0)
    explained = next(work for work in WORK if work.command == "explain")
    free = by_command(plan_work(sizes, still, available=10**12))["explain"].seconds
    assert free == pytest.approx(explained.passes * still.bare(sizes, 32))
    assert one["explain"].seconds - free == pytest.approx(
        explained.passes * sizes.layers * PACE.layer
        + (explained.calls_in(sizes, 32) + explained.calls_once(sizes)) * PACE.call
    )


def test_prompts_that_share_a_pass_share_its_calls() -> None:
    sizes = replace(sizes_of(DATA), layers=10)
    flat = MachinePace(((1, 1e10),), 1e10, layer=1.0, call=0.0)
    assert flat.bare(sizes, 16) - flat.bare(sizes, 16, 10) == pytest.approx(10 * 0.9)
    assert PACE.rate(4) == 5e8 and PACE.rate(8) == 1e9 and PACE.rate(10**6) == 1e10
    assert PACE.rate(64) == pytest.approx(10**9.5)


def test_every_command_of_a_plan_exists() -> None:
    assert {work.command.split()[0] for work in WORK} <= set(VERBS)
    assert len({work.command for work in WORK}) == len(WORK)


def test_what_is_looked_at_beforehand_and_done_once_is_counted() -> None:
    work = CommandWork("x", 1, passes=1.0, calls=0, first=16, looks=1.5, once=10.0, once_per_head=2.0)
    assert work.counted(8) == 8 + 12 and work.counted(100) == 100 + 24
    sizes = replace(sizes_of(DATA), layers=3, heads=4)
    assert work.calls_once(sizes) == 10 + 2 * 12
    one = command_cost(sizes, PACE, work, 8, 15, available=10**12)
    assert one.seconds == pytest.approx(20 * PACE.bare(sizes, 15) + 34 * PACE.call)
    assert one.memory - command_cost(sizes, PACE, replace(work, libraries=7), 8, 15, available=1).memory == -7


def test_what_every_head_adds_and_what_is_dealt_anew_is_counted() -> None:
    work = CommandWork("x", 1, passes=1.0, passes_per_head=0.5, calls=0, deals=100)
    sizes = replace(sizes_of(DATA), layers=3, heads=4)
    assert work.passes_in(sizes) == 1 + 0.5 * 12
    one = command_cost(sizes, replace(PACE, deal=1e-3), work, 2, 15, available=10**12)
    assert one.seconds == pytest.approx(2 * (7 * PACE.bare(sizes, 15) + 100 * 1e-3))
    assert one.passes == 7


@pytest.mark.parametrize(("work", "quick"), WORKS)
def test_a_reproduction_takes_what_its_studies_take(work: Work, quick: bool) -> None:
    sizes = sizes_of(DATA)
    whole = reproduce_cost(work, quick, sizes, PACE, available=10**12)
    studies = [
        command_cost(sizes, PACE, *study_work(study, quick), available=10**12) for study in STUDIES[work]
    ]
    assert whole.seconds == pytest.approx(sum(one.seconds for one in studies) + start_calls(work) * PACE.call)
    assert whole.memory == max(one.memory for one in studies)
    assert whole.disk == sum(one.disk for one in studies)
    larger = reproduce_cost(work, quick, sizes_of("smollm2"), PACE, available=10**12)
    assert larger.seconds > whole.seconds and larger.memory > whole.memory
    if not quick:
        assert reproduce_cost(work, True, sizes, PACE, available=10**12).seconds < whole.seconds / 3


def test_a_study_is_planned_at_its_own_size() -> None:
    found = {study.name: study_work(study, False) for study in STUDIES["talk"]}
    assert (found["circuits"][0].command, *found["circuits"][1:]) == ("circuits", 3000, 17)
    assert found["circuits-facts"][1:] == (300, 9) and found["effects-ioi"][1] == 100
    assert found["names"][1] == 1500 and found["sinks"][1] == 60
    few = next(study_work(study, True) for study in STUDIES["talk"] if study.name == "names")
    assert few[1] == 200 and found["names"][0].calls - few[0].calls == 480 * SIGNAL
    with_families = next(study_work(study, True) for study in STUDIES["talk"] if study.name == "families")
    assert with_families[1] == 16
    fitted = {study.name: study_work(study, False) for study in STUDIES["paper"]}
    assert fitted["binding"][1:] == (3000, 76) and fitted["filter-13"][1:] == (2000, 134)
    assert fitted["filter-13"][0].passes - fitted["binding"][0].passes == pytest.approx(10 * CONTRAST)
    assert set(TOYS) == {one.name for work in STUDIES.values() for one in work if not one.model}


@pytest.mark.usefixtures("paced")
def test_names_and_reproductions_are_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", str(DATA), "--json", "-q"]) == 0
    planned = [one["command"] for one in json.loads(capsys.readouterr().out)["commands"]]
    assert {"name", "name (all heads)", "intervene (a task)"} <= set(planned)
    assert planned[-4:] == [
        "reproduce paper",
        "reproduce paper --quick",
        "reproduce talk",
        "reproduce talk --quick",
    ]


@pytest.mark.usefixtures("paced")
def test_too_little_memory_is_one_line_after_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "--model", "meta-llama/Llama-3.1-70B", "--gpu-memory", "80", "--json", "-q"]
    assert main(asked) == 2
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["commands"][0]["command"] == "attention" and not document["commands"][0]["fits"]
    assert printed.err.count("\n") == 1
    assert "'meta-llama/Llama-3.1-70B' needs about 282.7 GB of memory in float32" in printed.err
    assert "there are 80.0 GB" in printed.err
    assert main([*asked[:-1], "--dtype", "bfloat16", "--gpu-memory", "160"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == 2 * PARAMETERS["meta-llama/Llama-3.1-70B"]


@pytest.mark.usefixtures("paced")
@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["--model", "./nowhere"], "there is no file or folder './nowhere'"),
        (["--model", "nowhere.json"], "there is no file 'nowhere.json': give a model's config.json"),
        (["--model", "no body/nothing"], "is neither a file or folder nor a hub id"),
        (["--tokens", "0"], "--tokens"),
        (["--flops", "fast"], "--flops"),
        (["--device", "cpu"], "--device says how a model is loaded, and is not used by `headwise plan`"),
    ],
)
def test_bad_input_is_one_line(given: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *given]) == 2
    printed = capsys.readouterr()
    assert line in printed.err and printed.err.count("\n") == 1 and not printed.out


@pytest.mark.usefixtures("paced")
def test_a_model_that_nobody_has_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "hub_reachable", lambda: False)
    assert main(["plan", "--model", "no-body/no-model"]) == 2
    printed = capsys.readouterr()
    assert "no-body/no-model" in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_the_pace_of_this_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "SECONDS", 0.0)
    sizes = sizes_of(DATA)
    pace = measured_pace(sizes)
    assert min(rate for _, rate in pace.products) > 1e7 and pace.attention > 1e7
    assert 1e-7 < pace.call < 1e-3 and 1e-5 < pace.layer < 1 and 1e-6 < pace.deal < 0.1
    assert pace.bare(replace(sizes, layers=2 * sizes.layers), 16) > 1.5 * pace.bare(sizes, 16)
    # Another machine has its own products, and pays for small calls all the same.
    other = described_pace(1e14, pace)
    assert (other.call, other.layer, other.rate(3)) == (pace.call, pace.layer, 1e14)
    assert memory_here() > PROCESS


@pytest.mark.parametrize("given", [{"tokens": 0}, {"prompts": 0}])
def test_nothing_to_plan_is_refused(given: dict[str, Any]) -> None:
    ((name, _),) = given.items()
    with pytest.raises(HeadwiseError, match=f"{name}=0 leaves nothing to plan"):
        plan_work(sizes_of(DATA), PACE, available=1, **given)
