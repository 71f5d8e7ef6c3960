"""Plans: sizes from configurations alone, and costs that follow from them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from toy_answers import small_model

from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.model.sizes import PUBLISHED, sizes_of
from headwise.scale.plan import plan_work
from headwise.scale.probe import MachinePace, measured_pace
from headwise.toy.small_lm import DATA

PACE = MachinePace(flops=1e10, attention=0.0, call=0.0)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2", 124_439_808),
        ("EleutherAI/pythia-160m", 162_322_944),
        ("google/gemma-2-2b", 2_614_341_888),
        ("Qwen/Qwen3-4B", 4_022_468_096),
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
        ("meta-llama/Llama-3.1-70B", 70_553_706_496),
    ],
)
def test_a_published_model_has_its_published_number_of_parameters(name: str, parameters: int) -> None:
    assert sizes_of(name).parameters == parameters


def test_every_published_model_is_counted_above() -> None:
    counted = test_a_published_model_has_its_published_number_of_parameters.pytestmark[0].args[1]
    assert {name for name, _ in counted} == set(PUBLISHED)


def test_a_configuration_tells_the_sizes_of_the_loaded_model() -> None:
    model, sizes = small_model(), sizes_of(DATA)
    assert sizes.parameters == sum(one.numel() for one in model.hf.parameters())
    assert (sizes.layers, sizes.heads, sizes.d_head) == (model.n_layers, model.n_heads, model.d_head)
    assert sizes.vocabulary == model.vocabulary


def test_costs_follow_from_the_sizes() -> None:
    sizes = sizes_of("meta-llama/Llama-3.1-8B")
    # Twice the parameters that multiply, for every token; the table of tokens does not.
    products = 2 * (sizes.parameters - sizes.vocabulary * sizes.d_model)
    assert sizes.flops(1) == pytest.approx(products, rel=0.001)
    one = plan_work(sizes, PACE, tokens=32, prompts=10, available=10**12)
    ten = plan_work(sizes, PACE, tokens=32, prompts=100, available=10**12)
    cost = {c.command: c for c in one.costs}
    more = {c.command: c for c in ten.costs}
    assert more["circuits"].seconds == pytest.approx(10 * cost["circuits"].seconds)
    assert more["circuits"].disk == pytest.approx(10 * cost["circuits"].disk, abs=10)
    assert more["circuits"].memory == cost["circuits"].memory
    assert more["explain"] == cost["explain"]
    half = plan_work(sizes, PACE, tokens=32, prompts=10, available=10**12, dtype="bfloat16")
    assert (
        cost["explain"].memory - {c.command: c for c in half.costs}["explain"].memory == 2 * sizes.parameters
    )


def test_too_little_memory_is_one_line_after_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "--model", "meta-llama/Llama-3.1-70B", "--gpu-memory", "80", "--flops", "1e14", "--json"]
    assert main(asked) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["commands"][0]["command"] == "attention"
    assert printed.err.count("\n") == 1
    assert "'meta-llama/Llama-3.1-70B' needs about 282.7 GB of memory in float32" in printed.err
    assert "there are 80.0 GB" in printed.err


def test_half_a_machine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "gpt2", "--flops", "1e14"]) == 2
    assert "--gpu-memory and --flops describe one machine" in capsys.readouterr().err


def test_the_pace_of_this_machine_is_measured() -> None:
    sizes = sizes_of(DATA)
    pace = measured_pace(sizes, 16)
    assert pace.flops > 1e7 and pace.call > 0 and pace.attention > 0
    assert pace.bare(replace(sizes, layers=2 * sizes.layers), 16) > 1.5 * pace.bare(sizes, 16)


@pytest.mark.parametrize(("tokens", "prompts"), [(0, 1), (1, 0)])
def test_nothing_to_plan_is_refused(tokens: int, prompts: int) -> None:
    with pytest.raises(HeadwiseError, match=f"tokens={tokens} and prompts={prompts} leave nothing to plan"):
        plan_work(sizes_of(DATA), PACE, tokens=tokens, prompts=prompts, available=1)
