"""What an MLP wrote, by its neurons and by what it read: exact in every family, and what the definition says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from reference import worst
from tiny import VARIANTS, prompts_of, tiny
from torch import Tensor
from transformers.activations import ACT2FN

from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.tracing import mlps, writes
from headwise.tracing.mlps import MLPReadings, read_mlp
from headwise.tracing.vectors import component_writes
from headwise.tracing.writes import PromptWrites
from headwise.types import Component

PROMPTS = prompts_of(9, 6)
POSITIONS = [0, 3, 5, 3]


def _readings(model: Model, seed: int = 0) -> Tensor:
    made = torch.randn(
        len(POSITIONS),
        model.anatomy.d_model,
        generator=torch.Generator().manual_seed(seed),
        dtype=torch.float64,
    )
    return made.to(model.dtype)


def _shares(found: MLPReadings) -> Tensor:
    return torch.cat([shares for _, shares in found.chunks(range(len(found.positions)))])


def _read(model: Model, layer: int, prompt: int = 1, padding: str = "right") -> MLPReadings:
    up = PromptWrites(model.split(PROMPTS, padding=padding), prompt)  # pyright: ignore[reportArgumentType]
    return read_mlp(up, layer, POSITIONS, _readings(model))


@pytest.mark.parametrize("padding", ["right", "left"])
def test_neurons_and_writers_sum_to_what_the_mlp_wrote(model: Model, exact: float, padding: str) -> None:
    for layer in range(model.n_layers):
        found = _read(model, layer, padding=padding)
        recorded = found.up.stream.layers[layer].mlp
        assert recorded is not None
        expected = (recorded[1, found.up.span][POSITIONS] * _readings(model)).sum(-1)
        assert worst(found.totals, expected) == 0
        # Shares cancel, so the rounding of a sum is that of its largest terms.
        size = _shares(found).abs().sum(1)
        assert float(((_shares(found).sum(1) - expected).abs() / size).max()) <= exact
        neurons = found.read.neurons
        error = (neurons.sum(1) + found.read.constant - expected).abs() / neurons.abs().sum(1)
        assert float(error.max()) <= exact


# --- the definition, from what hooks on transformers' own modules saw ---


@dataclass
class Seen:
    """One MLP of a pass as its modules saw it, one prompt: [t, …] each."""

    modules: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]

    def normed(self, part: Tensor, name: str, position: int) -> Tensor:
        """A part of a norm's input behind that norm, its token's scale as it was: what it did to each entry."""
        if name not in self.modules:
            return part
        x, y, module = self.inputs[name][position], self.outputs[name][position], self.modules[name]
        if isinstance(module, torch.nn.LayerNorm):
            return (part - part.mean()) * (y - module.bias) / (x - x.mean())
        return part * y / x


_PATHS = {
    "gpt2": ("ln_2", None, "mlp.c_fc", "mlp.c_proj", None),
    "gpt_neox": ("post_attention_layernorm", None, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", None),
    "opt": ("final_layer_norm", None, "fc1", "fc2", None),
    "phi3": ("post_attention_layernorm", "mlp.gate_up_proj", "mlp.gate_up_proj", "mlp.down_proj", None),
    "olmo2": (None, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_feedforward_layernorm"),
    "gemma2": (
        "pre_feedforward_layernorm",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
        "post_feedforward_layernorm",
    ),
}
_PATHS["gemma3"] = _PATHS["gemma2"]
_USUAL = ("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", None)


def _hooked(model: Model, layer: int, ids: list[int]) -> Seen:
    names = dict(
        zip(
            ("norm", "gate", "up", "down", "post"),
            _PATHS.get(model.family.name, _USUAL),
            strict=True,
        )
    )
    modules = {name: model.anatomy.layers[layer].get_submodule(path) for name, path in names.items() if path}
    seen = Seen(modules, {}, {})

    def note(name: str) -> Any:
        def hook(_module: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
            seen.inputs[name], seen.outputs[name] = (x.view(len(ids), -1) for x in (args[0], output))

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in modules.items()]
    with torch.no_grad():
        model.split([ids])
    for handle in handles:
        handle.remove()
    return seen


def _times(module: Any, x: Tensor) -> Tensor:
    """A linear module without its bias."""
    return x @ (module.weight if type(module).__name__ == "Conv1D" else module.weight.mT)


def _gate_and_up(seen: Seen, part: Tensor | None, position: int) -> tuple[Tensor | None, Tensor]:
    """Pre-activations of a part of the MLP's input (None: as they were)."""

    def of(name: str) -> Tensor:
        return seen.outputs[name][position] if part is None else _times(seen.modules[name], part)

    if "gate" not in seen.modules:
        return None, of("up")
    if seen.modules["gate"] is seen.modules["up"]:
        gate, up = of("gate").chunk(2)
        return gate, up
    return of("gate"), of("up")


def _activation(model: Model) -> Any:
    config = model.hf.config
    name = next(
        getattr(config, name)
        for name in ("hidden_activation", "activation_function", "hidden_act")
        if getattr(config, name, None)
    )
    return ACT2FN[name]


def _literal_share(model: Model, seen: Seen, part: Tensor, reading: Tensor, position: int) -> float:
    """(A4) for one part, neuron by neuron, in residual space."""
    act = _activation(model)
    gate, up = _gate_and_up(seen, None, position)
    gate_c, up_c = _gate_and_up(seen, seen.normed(part, "norm", position), position)
    if gate is None or gate_c is None:
        h_c = act(up) / up * up_c
    else:
        h_c = (act(gate) * up_c + act(gate) / gate * up * gate_c) / 2
    written = seen.normed(_times(seen.modules["down"], h_c), "post", position)
    return float(reading @ written)


def _literal_effect(model: Model, seen: Seen, part: Tensor, reading: Tensor, position: int) -> float:
    """What the reading loses when a part leaves the MLP's input, through the module's own pieces."""
    act = _activation(model)
    gate, up = _gate_and_up(seen, None, position)
    gate_c, up_c = _gate_and_up(seen, seen.normed(part, "norm", position), position)
    before = act(up) if gate is None else act(gate) * up
    after = act(up - up_c) if gate is None or gate_c is None else act(gate - gate_c) * (up - up_c)
    change = seen.normed(_times(seen.modules["down"], before - after), "post", position)
    return float(reading @ change)


@pytest.mark.parametrize("layer", [0, 2])
def test_shares_and_effects_are_their_definition(variant: str, layer: int) -> None:
    model = tiny(variant, torch.float64)
    found, seen = _read(model, layer), _hooked(model, layer, PROMPTS[1])
    readings = _readings(model)
    for place, position in enumerate(POSITIONS):
        writers = [found.writer(i) for i in range(_shares(found).shape[1] - 1)]
        expected = torch.tensor(
            [
                _literal_share(
                    model, seen, component_writes(found.up, c)[position], readings[place], position
                )
                for c in writers
            ],
            dtype=torch.float64,
        )
        assert worst(_shares(found)[place, :-1], expected) <= 1e-9
        some = writers[:: max(1, len(writers) // 7)]
        effects = [
            _literal_effect(model, seen, component_writes(found.up, c)[position], readings[place], position)
            for c in some
        ]
        assert found.effects([place], some)[0].tolist() == pytest.approx(effects, rel=1e-8, abs=1e-9)


def test_every_writer_occurs_once(variant: str) -> None:
    model = tiny(variant, torch.float64)
    found = _read(model, 2)
    writers = [found.writer(i) for i in range(_shares(found).shape[1])]
    assert len(set(writers)) == len(writers)
    assert writers[-1] == Component("offset", 2)
    kinds = {kind: sum(w.kind == kind for w in writers) for kind in ("embedding", "mlp", "head")}
    # An MLP beside its layer's attention does not read that attention.
    reads = 2 if variant == "gpt_neox" else 3
    assert kinds == {"embedding": 1, "mlp": 2, "head": reads * model.n_heads * 6}


def test_own_constants_are_biases_and_shifts() -> None:
    """Without them sums miss; a model that has none gives them nothing."""
    for variant in VARIANTS:
        model = tiny(variant, torch.float64)
        own = _read(model, 1).read.own
        has = variant in ("gpt2", "gpt_neox", "gpt_neox-sequential", "opt", "llama-biased")
        assert bool((own != 0).all()) is has
        assert has or bool((own == 0).all())


def test_the_effect_of_own_constants_is_the_mlp_without_them() -> None:
    for variant in ("gpt2", "llama-biased", "gpt_neox"):
        model = tiny(variant, torch.float64)
        found = _read(model, 1)
        anatomy = model.anatomy
        hold = anatomy.layers[1]
        module: Any = hold.get_submodule("mlp")
        before = found.effects([1], [Component("offset", 1), Component("mlp", 0)])[0].tolist()
        norm: Any = hold.get_submodule("ln_2" if variant == "gpt2" else "post_attention_layernorm")
        x = found.read.mlp.stream[1]
        scale = torch.rsqrt(x.var(correction=0) + norm.eps) if variant != "llama-biased" else None
        if scale is None:
            bare = x * torch.rsqrt(x.square().mean() + norm.variance_epsilon) * norm.weight
        else:
            bare = (x - x.mean()) * scale * norm.weight
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.ndim == 1:
                    parameter.zero_()
            left = float(module(bare[None])[0] @ _readings(model)[1])
        assert before[0] == pytest.approx(float(found.totals[1]) - left, rel=1e-9)


# --- activations ---


@pytest.mark.parametrize(
    "name", ["silu", "gelu", "gelu_new", "relu", "relu2", "tanh", "sigmoid", "quick_gelu"]
)
@pytest.mark.parametrize("variant", ["gpt2", "llama-biased"])
def test_any_activation_is_shared_exactly(name: str, variant: str) -> None:
    """Also one that is not 0 at 0, whose part without input belongs to the MLP's own constants."""
    model = tiny(variant, torch.float64)
    for layer in model.anatomy.layers:
        module: Any = layer.get_submodule("mlp")
        setattr(module, "act" if variant == "gpt2" else "act_fn", ACT2FN[name])
    found = _read(model, 2)
    size = _shares(found).abs().sum(1)
    assert float(((_shares(found).sum(1) - found.totals).abs() / size).max()) <= 1e-12


@pytest.mark.parametrize(
    ("name", "slope"),
    [("silu", 0.5), ("gelu", 0.5), ("relu", 0.5), ("relu2", 0.0), ("tanh", 1.0), ("sigmoid", 0.25)],
)
def test_the_slope_at_zero_is_its_limit(name: str, slope: float) -> None:
    """A neuron whose input cancels to 0 still has parts, and its slope neither jumps nor is undefined."""
    model = tiny("gpt2", torch.float64)
    module: Any = model.anatomy.layers[0].get_submodule("mlp")
    module.act = ACT2FN[name]
    parts = model.anatomy.mlp(0)
    z = torch.tensor([0.0, 1e-9, -1e-9, 2.0], dtype=torch.float64)
    origin, slopes = parts.slope(z)
    assert float(origin) == float(ACT2FN[name](z[:1])[0])
    assert slopes[:3].tolist() == pytest.approx([slope] * 3, abs=1e-6)
    assert float(slopes[3]) == pytest.approx((float(ACT2FN[name](z[3:])[0]) - float(origin)) / 2)


# --- an account of one reading ---


def test_an_account_holds_together(model: Model, exact: float) -> None:
    found = _read(model, 3)
    for place in range(len(POSITIONS)):
        account = found.account([place], least=0.02, neurons=3)
        size = account.by_writer.helping - account.by_writer.hindering
        written = sum(one.share for one in account.writers) + account.others
        assert abs(written - account.total) <= exact * size
        assert account.error <= exact
        assert account.by_writer.helping + account.by_writer.hindering == pytest.approx(
            written, abs=exact * size
        )
        neurons = sum(one.share for one in account.neurons) + account.other_neurons + account.constant
        assert abs(neurons - account.total) <= exact * (
            account.by_neuron.helping - account.by_neuron.hindering
        )
        shares = [one.share for one in account.writers]
        assert shares == sorted(shares, reverse=True)
        assert shares and min(map(abs, shares)) >= 0.02 * max(
            account.by_writer.helping, -account.by_writer.hindering
        ) * (1 - 1e-6)
        by_sign = [one.share > 0 for one in account.neurons]
        assert by_sign == [True] * 3 + [False] * 3
        every = found.read.neurons[place]
        assert account.neurons[0].share == pytest.approx(float(every.max()))
        assert account.neurons[-1].share == pytest.approx(float(every.min()))
        again = found.effects([place], [e.writer for e in account.writers])[0].tolist()
        assert [e.effect for e in account.writers] == again


def test_readings_of_several_positions_are_one_account() -> None:
    found = _read(tiny("gpt2", torch.float64), 2)
    whole, single = found.account(), [found.account([place], least=0, neurons=40) for place in range(4)]
    assert whole.positions == tuple(POSITIONS)
    assert whole.total == pytest.approx(sum(one.total for one in single))
    for writer in whole.writers:
        mine = [w for one in single for w in one.writers if w.writer == writer.writer]
        assert writer.share == pytest.approx(sum(w.share for w in mine))
        assert writer.effect == pytest.approx(sum(w.effect for w in mine))
    assert whole.neurons[0].share == pytest.approx(float(found.read.neurons.sum(0).max()))


def test_an_account_without_neurons() -> None:
    account = _read(tiny("llama", torch.float64), 1).account([0], neurons=0)
    assert account.neurons == ()
    assert account.other_neurons == pytest.approx(account.total)


def test_long_prompts_give_the_same_shares(monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    """From some length on heads are read through small matrices, and patterns are rebuilt."""
    model = tiny(variant, torch.float64)
    short = _shares(_read(model, 2))
    monkeypatch.setattr(writes, "LONG", 1)
    monkeypatch.setattr(writes, "KEPT_BYTES", 0)
    monkeypatch.setattr(mlps, "CHUNK_BYTES", 1)
    assert worst(_shares(_read(model, 2)), short) <= 1e-12


def test_what_was_not_computed_is_refused() -> None:
    model = tiny("llama")
    up = PromptWrites(model.split(PROMPTS[:1], layers=3), 0)
    one = torch.zeros(1, 24)
    with pytest.raises(HeadwiseError, match="MLP2 was not finished in this pass"):
        read_mlp(up, 2, [0], one)
    with pytest.raises(HeadwiseError, match="position 9 does not exist: the prompt has 9 tokens"):
        read_mlp(up, 1, [9], one)
    with pytest.raises(HeadwiseError, match=r"have shape \[2, 24\], not \[1, 24\]"):
        read_mlp(up, 1, [0, 1], one)
