"""One table that says where each architecture family keeps its parts. Nothing else in headwise knows.

A family is added by adding a row. Everything that depends on an architecture (how queries and keys are projected,
which norms act where, whether gains are stored as 1 + gain) is read from here and from the modules themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headwise.errors import HeadwiseError

Projections = Literal["separate", "conv1d_thirds", "interleaved_by_head", "stacked"]
QKNorm = Literal["none", "token_head", "head_token", "all_heads"]


@dataclass(frozen=True, slots=True)
class MLPLayout:
    """Where a layer keeps the parts of its MLP (dotted paths from the layer; ``None`` where there is no such part).

    A gated MLP multiplies activation(gate) with up; a plain one has no gate and activates up itself. Where gate and up
    are one linear layer, its first half is the gate (Phi-3).
    """

    norm: str | None = "post_attention_layernorm"
    gate: str | None = "mlp.gate_proj"
    up: str = "mlp.up_proj"
    down: str = "mlp.down_proj"
    activation: str = "mlp.act_fn"
    post_norm: str | None = None


@dataclass(frozen=True, slots=True)
class Architecture:
    """Where one architecture family keeps its parts (dotted paths; ``None`` where the part does not exist).

    ``projections`` names the layout of the query, key and value weights:
      separate             three linear layers, ``projection_names``
      conv1d_thirds        one Conv1D [d_model, 3·d_model], thirds are q, k, v (GPT-2)
      interleaved_by_head  one linear layer, per head its q, k and v rows one after another (GPT-NeoX)
      stacked              one linear layer, all q rows, then all k rows, then all v rows (Phi-3)
    """

    name: str
    trunk: str = "model"
    layers: str = "layers"
    final_norm: str = "norm"
    attention: str = "self_attn"
    projections: Projections = "separate"
    projection_names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    output: str = "o_proj"
    attention_norm: str | None = "input_layernorm"
    attention_post_norm: str | None = None
    mlp_output: str = "mlp"
    """The module whose output (after a post-norm, if any) is what the MLP adds to the stream."""
    mlp: MLPLayout = MLPLayout()
    gain_offset: float = 0.0
    """1.0 where the norm multiplies by (1 + weight), as Gemma does."""
    qk_norm: QKNorm = "none"
    """Whether queries and keys are normed, and on what: each head, given as [token, head, d_head] (token_head) or as
    [head, token, d_head] (head_token), or all heads of a token together (all_heads)."""
    query_premultiplied: bool = False
    """True where the module scales the query itself and hands scale 1 to the attention function (OPT)."""
    learned_positions: str | None = None
    """Where each position has a learned vector of its own instead of a rotation."""


_POST_NORMED: dict[str, Any] = {
    "attention_post_norm": "post_attention_layernorm",
    "mlp_output": "post_feedforward_layernorm",
}
_BOTH_NORMED = MLPLayout(norm="pre_feedforward_layernorm", post_norm="post_feedforward_layernorm")

ARCHITECTURES: dict[str, Architecture] = {
    family.name: family
    for family in (
        Architecture(
            "gpt2",
            trunk="transformer",
            layers="h",
            final_norm="ln_f",
            attention="attn",
            projections="conv1d_thirds",
            projection_names=("c_attn",),
            output="c_proj",
            attention_norm="ln_1",
            mlp=MLPLayout(norm="ln_2", gate=None, up="mlp.c_fc", down="mlp.c_proj", activation="mlp.act"),
            learned_positions="wpe",
        ),
        Architecture(
            "gpt_neox",
            trunk="gpt_neox",
            final_norm="final_layer_norm",
            attention="attention",
            projections="interleaved_by_head",
            projection_names=("query_key_value",),
            output="dense",
            mlp=MLPLayout(gate=None, up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h", activation="mlp.act"),
        ),
        Architecture("llama"),
        Architecture("mistral"),
        Architecture("qwen2"),
        Architecture("qwen3", qk_norm="token_head"),
        Architecture("gemma2", gain_offset=1.0, mlp=_BOTH_NORMED, **_POST_NORMED),
        Architecture("gemma3", gain_offset=1.0, qk_norm="head_token", mlp=_BOTH_NORMED, **_POST_NORMED),
        Architecture(
            "phi3",
            projections="stacked",
            projection_names=("qkv_proj",),
            mlp=MLPLayout(gate="mlp.gate_up_proj", up="mlp.gate_up_proj", activation="mlp.activation_fn"),
        ),
        Architecture(
            "olmo2",
            attention_norm=None,
            qk_norm="all_heads",
            mlp=MLPLayout(norm=None, post_norm="post_feedforward_layernorm"),
            **_POST_NORMED,
        ),
        Architecture(
            "opt",
            trunk="model.decoder",
            final_norm="final_layer_norm",
            output="out_proj",
            attention_norm="self_attn_layer_norm",
            mlp_output="fc2",
            mlp=MLPLayout(
                norm="final_layer_norm", gate=None, up="fc1", down="fc2", activation="activation_fn"
            ),
            query_premultiplied=True,
            learned_positions="embed_positions",
        ),
    )
}

# transformers' own model types that share a family's layout
_MODEL_TYPES = {**{name: name for name in ARCHITECTURES}, "gemma3_text": "gemma3"}

_NOT_ROUTED = ("bloom", "codegen", "falcon", "gpt_neo", "gptj", "mpt", "xglm")


def architecture_of(config: Any) -> Architecture:
    """The family of a transformers config, or a one-line reason why there is none.

    >>> from transformers import GPT2Config, BloomConfig
    >>> architecture_of(GPT2Config()).name
    'gpt2'
    >>> architecture_of(BloomConfig())
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: 'bloom' models compute attention in their own code...
    """
    kind = getattr(config, "model_type", None)
    supported = ", ".join(ARCHITECTURES)
    if getattr(config, "is_encoder_decoder", False):
        raise HeadwiseError(
            f"{kind!r} is an encoder–decoder architecture: headwise reads decoder-only models ({supported})"
        )
    if kind in _NOT_ROUTED:
        raise HeadwiseError(
            f"{kind!r} models compute attention in their own code, not through transformers' attention interface, "
            f"so their queries and keys cannot be captured exactly: use one of {supported}"
        )
    if kind == "gemma3":
        raise HeadwiseError(
            "'gemma3' with an image encoder is not supported: load its text model (model type 'gemma3_text')"
        )
    if kind not in _MODEL_TYPES:
        raise HeadwiseError(f"{kind!r} is not a supported architecture: use one of {supported}")
    if kind == "opt" and not config.do_layer_norm_before:
        raise HeadwiseError(
            "'opt' with do_layer_norm_before=False (OPT-350m) normalises the stream itself, so it is not a sum of "
            "parts: use another OPT size"
        )
    if getattr(config, "add_cross_attention", False):
        raise HeadwiseError(
            f"{kind!r} with cross-attention is not supported: headwise reads decoder-only models"
        )
    if getattr(config, "use_bidirectional_attention", False):
        raise HeadwiseError(
            f"{kind!r} with bidirectional attention is not supported: headwise reads causal models"
        )
    return ARCHITECTURES[_MODEL_TYPES[kind]]
