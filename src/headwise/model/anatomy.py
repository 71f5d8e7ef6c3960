"""The parts of one loaded model, read through its family's row: norms and per-head projection weights.

All weights are views of the model's own parameters wherever the layout allows it; those of a model that is spread over
devices, offloaded or quantised are read when they are asked for, one module at a time, to where results live.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError
from headwise.model.architectures import Architecture
from headwise.model.attend import soft_cap
from headwise.model.mlp import MLPParts


@dataclass(frozen=True, slots=True)
class Norm:
    """LayerNorm or RMSNorm with its per-token scale made explicit, so that it can be frozen.

    A norm is x ↦ gain · centre(x) · s(x) + shift with one scalar s per token; with s frozen it is linear up to the
    shift, and so splits over the parts of x.
    """

    centred: bool
    gain: Tensor
    shift: Tensor | None
    eps: float

    def scale(self, x: Tensor) -> Tensor:
        """The scalar each token is multiplied by: [..., d] -> [..., 1]."""
        if self.centred:
            return torch.rsqrt(x.var(-1, keepdim=True, correction=0) + self.eps)
        return torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def linear(self, part: Tensor, scale: Tensor) -> Tensor:
        """What the norm makes of one part of the stream when the token's scale is frozen (no shift)."""
        if self.centred:
            part = part - part.mean(-1, keepdim=True)
        return part * scale * self.gain.to(part.dtype)

    def pull(self, reading: Tensor, scale: Tensor) -> Tensor:
        """The transposed map of :meth:`linear`: ⟨linear(x), y⟩ = ⟨x, pull(y)⟩."""
        reading = reading * scale * self.gain.to(reading.dtype)
        return reading - reading.mean(-1, keepdim=True) if self.centred else reading


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear map into per-head space: weight [heads, d_head, d_model], bias [heads, d_head] or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class OutputProjection:
    """A linear map out of per-head space: weight [heads, d_model, d_head], bias [d_model] or None."""

    weight: Tensor
    bias: Tensor | None


class Anatomy:
    """Names every part of a model in the family's terms."""

    def __init__(self, hf: Any, family: Architecture) -> None:
        self.family = family
        config = hf.config.get_text_config()
        self.config = config
        self.trunk: nn.Module = _follow(hf, family.trunk)
        self.layers: list[nn.Module] = list(_follow(self.trunk, family.layers))[: config.num_hidden_layers]
        self.attention: list[Any] = [_follow(layer, family.attention) for layer in self.layers]
        self.n_layers = len(self.layers)
        self.n_heads: int = config.num_attention_heads
        self.n_kv_heads: int = getattr(config, "num_key_value_heads", None) or self.n_heads
        self.d_model: int = config.hidden_size
        self.d_head: int = getattr(config, "head_dim", None) or self.d_model // self.n_heads
        self.embedding: nn.Module = hf.get_input_embeddings()
        self.unembedding: nn.Module = hf.get_output_embeddings()
        self.place: torch.device = results_on(hf)
        """Where results live, and weights that are read."""
        self.final_softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self.context: int | None = getattr(config, "max_position_embeddings", None)

    @property
    def group(self) -> int:
        """How many query heads share one key head."""
        return self.n_heads // self.n_kv_heads

    def attention_norm(self, layer: int) -> Norm | None:
        return self._norm(self.layers[layer], self.family.attention_norm)

    def attention_post_norm(self, layer: int) -> Norm | None:
        return self._norm(self.layers[layer], self.family.attention_post_norm)

    def query_norm(self, layer: int) -> Norm | None:
        return self._norm(self.attention[layer], "q_norm" if self.family.qk_norm != "none" else None)

    def key_norm(self, layer: int) -> Norm | None:
        return self._norm(self.attention[layer], "k_norm" if self.family.qk_norm != "none" else None)

    def learned_positions(self, length: int) -> Tensor | None:
        """What the first positions add to the embeddings of their tokens [length, d_model]; None where nothing."""
        if self.family.learned_positions is None:
            return None
        module = _follow(self.trunk, self.family.learned_positions)
        start = getattr(module, "offset", 0)  # OPT keeps two rows before the first position
        weight = self._weight(module)
        assert weight is not None
        return weight[start : start + length]

    def final_norm(self) -> Norm | None:
        return self._norm(self.trunk, self.family.final_norm)

    def read_out(self, final: Tensor) -> Tensor:
        """What the unembedding reads of streams [..., d_model] that the last layer left, by the model's own norm."""
        norm = getattr(self.trunk, self.family.final_norm)
        return final if norm is None else norm(final)

    def logits(self, read: Tensor, tokens: Sequence[int] | None = None) -> Tensor:
        """Logits [..., vocabulary] of what the unembedding reads [..., d_model], by the model's own module.

        Of some ``tokens`` alone, by their rows of the unembedding: [..., tokens].
        """
        if tokens is None:
            return soft_cap(self.unembedding(read.to(runs_on(self.unembedding))), self.final_softcap)
        weight, bias = self.unembedding_weights()
        bias = None if bias is None else bias[list(tokens)]
        made = nn.functional.linear(read.to(weight.device), weight[list(tokens)], bias)
        return soft_cap(made, self.final_softcap)

    def unembedding_weights(self) -> tuple[Tensor, Tensor | None]:
        """[vocabulary, d_model], and its bias where there is one."""
        weight = self._weight(self.unembedding)
        assert weight is not None
        return weight, self._weight(self.unembedding, "bias")

    def embedding_weights(self) -> Tensor:
        """[vocabulary, d_model], or as wide as the tokens' vectors are."""
        weight = self._weight(self.embedding)
        assert weight is not None
        return weight

    def mlp_output(self, layer: int) -> nn.Module:
        return _follow(self.layers[layer], self.family.mlp_output)

    def mlp(self, layer: int) -> MLPParts:
        """The MLP of a layer, ready to be computed and to be read backwards."""
        holder, at = self.layers[layer], self.family.mlp
        (gate, gate_bias), (up, up_bias), (down, down_bias) = (
            (None, None) if path is None else self._matrix(_follow(holder, path))
            for path in (at.gate, at.up, at.down)
        )
        assert up is not None
        assert down is not None
        if at.gate == at.up:
            (gate, up), (gate_bias, up_bias) = (
                up.chunk(2),
                (None, None) if up_bias is None else up_bias.chunk(2),
            )
        return MLPParts(
            norm=self._norm(holder, at.norm),
            gate=gate,
            gate_bias=gate_bias,
            up=up,
            up_bias=up_bias,
            activation=_follow(holder, at.activation),
            down=down,
            down_bias=down_bias,
            post_norm=self._norm(holder, at.post_norm),
        )

    @property
    def parallel(self) -> bool:
        """Whether attention and MLP of a layer read the same stream (GPT-NeoX); else the MLP reads attention, too."""
        return bool(getattr(self.config, "use_parallel_residual", False))

    def query(self, layer: int) -> Projection:
        projection = self._project(layer, 0)
        if not self.family.query_premultiplied:
            return projection
        factor = self.d_head**-0.5
        bias = None if projection.bias is None else projection.bias * factor
        return Projection(projection.weight * factor, bias)

    def key(self, layer: int) -> Projection:
        return self._project(layer, 1)

    def value(self, layer: int) -> Projection:
        return self._project(layer, 2)

    def output(self, layer: int) -> OutputProjection:
        module = _follow(self.attention[layer], self.family.output)
        # Conv1D stores [in, out], Linear [out, in]
        weight = self._weight(module)
        assert weight is not None
        weight = weight if self.family.projections == "conv1d_thirds" else weight.T
        by_head = weight.reshape(self.n_heads, self.d_head, self.d_model).mT
        return OutputProjection(by_head, self._weight(module, "bias"))

    def output_bias(self, layer: int) -> Tensor | None:
        """The bias of :meth:`output` alone: [d_model]."""
        return self._weight(_follow(self.attention[layer], self.family.output), "bias")

    def value_bias(self, layer: int) -> Tensor | None:
        """The bias of :meth:`value` alone: [key heads, d_head]."""
        return self._of_heads(self._weight(self._projection(layer, 2), "bias"), 2)

    def _matrix(self, module: Any) -> tuple[Tensor, Tensor | None]:
        """Weight [out, in] and bias of a linear layer."""
        weight = self._weight(module)
        assert weight is not None
        # Conv1D stores [in, out], Linear [out, in]
        weight = weight.T if self.family.projections == "conv1d_thirds" else weight
        return weight, self._weight(module, "bias")

    def _weight(self, module: Any, name: str = "weight") -> Tensor | None:
        weight = read_weight(module, name)
        return None if weight is None else weight.to(self.place)

    def _projection(self, layer: int, which: int) -> Any:
        """The module that makes queries (0), keys (1) or values (2)."""
        names = self.family.projection_names
        return _follow(self.attention[layer], names[which if len(names) == 3 else 0])

    def _project(self, layer: int, which: int) -> Projection:
        """Query (0), key (1) or value (2) weights of a layer, [heads, d_head, d_model]."""
        module = self._projection(layer, which)
        weight = self._weight(module)
        assert weight is not None
        weight = self._of_heads(weight.T if self.family.projections == "conv1d_thirds" else weight, which)
        assert weight is not None
        return Projection(weight, self._of_heads(self._weight(module, "bias"), which))

    def _of_heads(self, rows: Tensor | None, which: int) -> Tensor | None:
        """Of a projection's output rows [out, …], those of queries (0), keys (1) or values (2): [heads, d_head, …]."""
        if rows is None:
            return None
        rest, heads = rows.shape[1:], self.n_heads if which == 0 else self.n_kv_heads
        match self.family.projections:
            case "separate":
                pass
            case "conv1d_thirds":
                rows = rows[which * self.d_model : (which + 1) * self.d_model]
            case "interleaved_by_head":
                rows = rows.view(self.n_heads, 3, self.d_head, *rest)[:, which]
            case "stacked":
                queries, keys = self.n_heads * self.d_head, self.n_kv_heads * self.d_head
                start = (0, queries, queries + keys)[which]
                rows = rows[start : start + heads * self.d_head]
        return rows.reshape(heads, self.d_head, *rest)

    def _norm(self, holder: nn.Module, path: str | None) -> Norm | None:
        if path is None:
            return None
        module: Any = getattr(holder, path)
        if module is None:
            return None
        if isinstance(module, nn.LayerNorm):
            width = module.normalized_shape[-1]
            gain = self._weight(module)
            gain = torch.ones(width, device=self.place) if gain is None else gain
            return Norm(True, gain, self._weight(module, "bias"), module.eps)
        eps = getattr(module, "variance_epsilon", None)
        eps = getattr(module, "eps", None) if eps is None else eps
        if eps is None:
            raise HeadwiseError(f"{type(module).__name__} is not a norm that headwise knows")
        gain = self._weight(module)
        assert gain is not None
        return Norm(False, gain + self.family.gain_offset, None, eps)


def _follow(start: Any, path: str) -> Any:
    return reduce(getattr, path.split("."), start)


# --- weights, wherever they are --------------------------------------------------------------------------------------
#
# accelerate keeps a weight that does not fit on its device elsewhere, and fetches it each time its module runs. Whoever
# reads weights gets them one module at a time in the same way, and bitsandbytes' packed weights as numbers.


def read_weight(module: Any, name: str = "weight") -> Tensor | None:
    """A weight of a module as numbers; None where it has none of this name."""
    held = getattr(module, name, None)
    if held is None:
        return None
    if held.device.type == "meta":
        held = _offloaded(module, name)
    return dequantised(module, held).detach()


def runs_on(module: Any) -> torch.device:
    """Where a module computes: its own device, or the one that accelerate brings its weights to."""
    for hook in _hooks(module):
        if getattr(hook, "execution_device", None) is not None:
            return torch.device(hook.execution_device)
    return module.weight.device


def results_on(hf: Any) -> torch.device:
    """Where results live: the one device that holds weights, or the CPU where several do."""
    devices = {parameter.device for parameter in hf.parameters() if parameter.device.type != "meta"}
    if not devices:
        return runs_on(hf.get_input_embeddings())
    return devices.pop() if len(devices) == 1 else torch.device("cpu")


def dequantised(module: Any, weight: Tensor) -> Tensor:
    """A weight of bitsandbytes as numbers; any other as it is.

    Four bits are unpacked by bitsandbytes itself, unless it has laid them out for a CPU's instructions; eight are whole
    numbers times one scale per row, in parts of 127.
    """
    match type(weight).__name__:
        case "Params4bit":
            state: Any = weight.quant_state  # pyright: ignore[reportAttributeAccessIssue]
            if getattr(state, "packing_format_for_cpu", False):
                return _laid_out_for_cpu(weight.data, state)
            from bitsandbytes.functional import dequantize_4bit  # pyright: ignore[reportMissingImports]

            return dequantize_4bit(weight.data, state)
        case "Int8Params":
            # they move from the weight to the module's state once it has run
            state = getattr(module, "state", None)
            scales, codes = (
                getattr(weight, name, None)
                if getattr(weight, name, None) is not None
                else getattr(state, name, None)
                for name in ("SCB", "CB")
            )
            if scales is None:
                raise HeadwiseError(
                    f"the scales of an 8-bit {type(module).__name__} are not known: load the model in float32 or "
                    "bfloat16"
                )
            codes = weight.data if codes is None else codes
            return codes.float() * scales.float()[:, None] / 127
        case _:
            return weight


def _laid_out_for_cpu(weight: Tensor, state: Any) -> Tensor:
    """Four-bit weights as numbers, once a CPU has run them.

    Of 32 rows at a time, pairs of columns row by row: 32 numbers in the low halves of 32 bytes, the next 32 in the high
    ones. Every row has a scale per block of columns.
    """
    rows, half = weight.shape
    some = weight.reshape(-1, 32)
    codes = torch.cat((some & 15, some >> 4), 1).reshape(rows // 32, half, 32, 2).transpose(1, 2)
    scales = state.absmax.float().mT.repeat_interleave(state.blocksize, 1)
    return state.code.float()[codes.reshape(rows, 2 * half).long()] * scales


def is_packed(hf: Any) -> bool:
    """Whether bitsandbytes has packed weights of a model."""
    return any(type(parameter).__name__ in ("Params4bit", "Int8Params") for parameter in hf.parameters())


def _offloaded(module: Any, name: str) -> Tensor:
    for hook in _hooks(module):
        held = getattr(hook, "weights_map", None)
        if held is not None:
            return held[name]
    raise HeadwiseError(
        f"a {type(module).__name__} has no {name} anywhere, only its shape: load the model with headwise.load"
    )


def _hooks(module: Any) -> Sequence[Any]:
    """accelerate's hooks of a module: none, one, or several in a row."""
    hook = getattr(module, "_hf_hook", None)
    return () if hook is None else getattr(hook, "hooks", (hook,))
