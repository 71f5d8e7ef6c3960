"""Models that are spread: weights on disk, several devices, packed weights. The numbers stay the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from alike import assert_alike
from tiny import VARIANTS, prompts_of, tiny

import headwise
from headwise.errors import HeadwiseError
from headwise.model.anatomy import dequantised, read_weight, runs_on
from headwise.model.check import examine
from headwise.model.model import Model
from headwise.toy.small_lm import DATA

IDS = prompts_of(11)[0]
DEVICES = [
    "cpu",
    *(["cuda"] if torch.cuda.is_available() else []),
    *(["mps"] if torch.backends.mps.is_available() else []),
]


def on_disk(model: Model, folder: Path, wanted: set[int]) -> Model:
    """The model, saved and read again with some layers, and its final norm, left on disk."""
    model.hf.save_pretrained(folder)
    family, places = model.family, {"lm_head": "cpu"}
    for name, _ in model.anatomy.trunk.named_children():
        if name != family.layers:
            places[f"{family.trunk}.{name}"] = "disk" if name == family.final_norm else "cpu"
    for layer in range(model.n_layers):
        places[f"{family.trunk}.{family.layers}.{layer}"] = "disk" if layer in wanted else "cpu"
    _, model_class, _ = VARIANTS[model.name.removeprefix("tiny-")]
    hf = getattr(transformers, model_class).from_pretrained(folder, device_map=places, dtype=model.dtype)
    hf.eval().requires_grad_(False)
    return Model(hf, name=model.name)


def test_layers_on_disk_give_the_same_numbers(variant: str, tmp_path: Path) -> None:
    whole = tiny(variant)
    spread = on_disk(whole, tmp_path, {1, 3})
    meta = {name for name, one in spread.hf.named_parameters() if one.device.type == "meta"}
    assert any(".3." in name for name in meta) and not any(".2." in name for name in meta)
    assert spread.weight_hash == whole.weight_hash
    for ask in (
        lambda model: model.capture([IDS], want=("q", "k_before_rope", "pattern"), logits="last").held,
        lambda model: model.edit([IDS], [headwise.Silence(head=headwise.Head(3, 1))]).held,
        lambda model: model.split(IDS).shares("L3H2", "key", 7).vectors,
        lambda model: headwise.explain(model, IDS, wrong=5, draws=19).to_json(),
        lambda model: headwise.trace(model, IDS, answer=5, wrong=7).to_json(),
    ):
        # weights that are mapped from disk lie elsewhere in memory, and products round a little differently
        assert_alike(ask(spread), ask(whole), 1e-4)
    assert examine(spread).ok


@pytest.mark.real
@pytest.mark.slow
def test_the_default_model_within_little_memory(smollm2: Model) -> None:
    spread = headwise.load(device_map="auto", max_memory={"cpu": "250MB"})
    assert "disk" in set(spread.hf.hf_device_map.values())
    assert spread.weight_hash == smollm2.weight_hash
    prompt = "The capital city of Portugal is"
    found, expected = (headwise.explain(model, prompt, draws=99).to_json() for model in (spread, smollm2))
    assert_alike(found, expected, 1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_every_device_that_is_here(device: str, name: str) -> None:
    """Captures, explanations and traces run where the model is, with the numbers of the CPU."""
    model = tiny(name)
    expected = headwise.explain(model, IDS, wrong=5, draws=19)
    there = Model(tiny(name).hf.to(device), name=model.name)
    found = headwise.explain(there, IDS, wrong=5, draws=19)
    assert there.split(IDS).before(2).device.type == device
    assert found.question.cell == expected.question.cell
    assert found.what.log_odds == pytest.approx(expected.what.log_odds, abs=1e-3)
    assert found.what.error <= found.what.tolerance
    assert headwise.trace(there, IDS, answer=5, wrong=7).heads


def test_limits_without_a_map_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        HeadwiseError, match=r"^max_memory is for models that are spread: give device_map='auto'"
    ):
        headwise.load(max_memory={"cpu": "1GB"})
    with pytest.raises(HeadwiseError, match=r"^offload_folder is for models that are spread"):
        headwise.load(offload_folder=tmp_path)


@pytest.mark.parametrize(
    ("device_map", "line"),
    [
        (
            {"nowhere": "cpu"},
            r"^the device map names 'nowhere', which 'small_lm' has no module of: its modules are ",
        ),
        (
            {"gpt_neox.embed_in": "cpu"},
            r"^the device map gives 'gpt_neox\.layers\.0.*' of 'small_lm' no device: name every module$",
        ),
        # A name that begins like a module's is not that module.
        ({"gpt_neox.layers": "cpu", "gpt_neox.embed": "cpu"}, r"^the device map names 'gpt_neox\.embed'"),
    ],
)
def test_a_map_that_does_not_fit_the_model_is_refused(device_map: dict[str, str], line: str) -> None:
    with pytest.raises(HeadwiseError, match=line):
        headwise.load(DATA, device_map=device_map)


def test_a_map_of_the_whole_model_is_taken() -> None:
    assert headwise.load(DATA, device_map={"": "cpu"}).device.type == "cpu"


# --- packed weights --------------------------------------------------------------------------------------------------


class Int8Params(torch.nn.Parameter):
    """As bitsandbytes keeps eight bits: whole numbers, and per row the largest size that they stand for."""

    CB: torch.Tensor | None = None
    SCB: torch.Tensor | None = None


def _eight_bits(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scales = weight.abs().amax(1)
    return (weight / scales[:, None] * 127).round().to(torch.int8), scales


@pytest.mark.parametrize("has_run", [False, True])
def test_eight_bits_are_rows_times_their_scale(has_run: bool) -> None:
    weight = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    codes, scales = _eight_bits(weight)
    held = Int8Params(codes, requires_grad=False)
    module = SimpleNamespace(weight=held, state=SimpleNamespace(CB=None, SCB=None))
    if has_run:  # the module's state has them then
        module.state = SimpleNamespace(CB=codes, SCB=scales)
    else:
        held.CB, held.SCB = codes, scales
    read = read_weight(module)
    assert read is not None and read.dtype == torch.float32
    assert bool(((read - weight).abs() <= scales[:, None] / 254 + 1e-6).all())
    module.state, held.SCB = SimpleNamespace(CB=None, SCB=None), None
    with pytest.raises(HeadwiseError, match="the scales of an 8-bit SimpleNamespace are not known"):
        read_weight(module)


def test_four_bits_are_unpacked_by_bitsandbytes() -> None:
    bitsandbytes = pytest.importorskip(
        "bitsandbytes", reason="the extra package for packed weights is not here"
    )
    layer = torch.nn.Linear(64, 32, bias=False)
    packed = bitsandbytes.nn.Linear4bit(64, 32, bias=False, quant_type="nf4", compute_dtype=torch.float32)
    packed.load_state_dict(layer.state_dict())
    packed = packed.to("cpu")
    read = read_weight(packed)
    assert read is not None and read.shape == (32, 64)
    x = torch.randn(3, 64)
    torch.testing.assert_close(x @ read.float().mT, packed(x).float(), rtol=1e-2, atol=1e-2)


def test_four_bits_that_are_laid_out_for_a_cpu_are_read_as_they_are() -> None:
    """As bitsandbytes lays them out when a CPU first runs them, written out number by number."""
    rows, columns, block = 64, 128, 64
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(16, (rows, columns), generator=generator)
    table, scales = torch.randn(16, generator=generator), torch.rand(rows, columns // block).bfloat16()
    numbers = [
        int(codes[32 * group + row, 2 * pair + side])
        for group in range(rows // 32)
        for pair in range(columns // 2)
        for row in range(32)
        for side in range(2)
    ]
    halves = [numbers[at : at + 64] for at in range(0, len(numbers), 64)]
    content = [low | high << 4 for part in halves for low, high in zip(part[:32], part[32:], strict=True)]
    weight = Params4bit(torch.tensor(content, dtype=torch.uint8).reshape(rows, columns // 2))
    weight.quant_state = SimpleNamespace(
        packing_format_for_cpu=True, code=table, absmax=scales.mT.contiguous(), blocksize=block
    )
    read = dequantised(SimpleNamespace(), weight)
    expected = table[codes] * scales.float().repeat_interleave(block, 1)
    assert torch.equal(read, expected)


class Params4bit(torch.Tensor):
    """Goes by the name of bitsandbytes' own."""

    quant_state: SimpleNamespace


def test_a_plain_weight_is_itself() -> None:
    layer = torch.nn.Linear(3, 2)
    assert dequantised(layer, layer.weight) is layer.weight
    assert runs_on(layer) == torch.device("cpu")
    with torch.device("meta"):
        nowhere = torch.nn.Linear(3, 2)
    with pytest.raises(HeadwiseError, match="a Linear has no weight anywhere, only its shape"):
        read_weight(nowhere)
