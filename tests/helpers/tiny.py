"""Small random models of every architecture family, with the variants that make attention hard."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from headwise.model.model import Model

_COMMON: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
}
_GROUPED: dict[str, Any] = {**_COMMON, "num_key_value_heads": 2, "head_dim": 8}

# name -> (config class, model class, settings)
VARIANTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        dict(
            vocab_size=61,
            n_embd=24,
            n_layer=4,
            n_head=4,
            n_positions=64,
            scale_attn_by_inverse_layer_idx=True,
        ),
    ),
    "gpt_neox": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        dict(
            **_COMMON,
            use_parallel_residual=True,
            attention_bias=True,
            hidden_act="gelu",
            rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.34},
        ),
    ),
    "gpt_neox-sequential": (
        "GPTNeoXConfig",
        "GPTNeoXForCausalLM",
        dict(**_COMMON, use_parallel_residual=False, attention_bias=False),
    ),
    "llama": ("LlamaConfig", "LlamaForCausalLM", dict(_GROUPED)),
    "llama-biased": ("LlamaConfig", "LlamaForCausalLM", dict(**_GROUPED, attention_bias=True, mlp_bias=True)),
    "llama-one-key-head": ("LlamaConfig", "LlamaForCausalLM", {**_GROUPED, "num_key_value_heads": 1}),
    "llama-yarn": (
        "LlamaConfig",
        "LlamaForCausalLM",
        dict(
            **_GROUPED,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        ),
    ),
    "mistral": ("MistralConfig", "MistralForCausalLM", dict(**_GROUPED, sliding_window=4)),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {k: v for k, v in _GROUPED.items() if k != "head_dim"}),
    "qwen3": (
        "Qwen3Config",
        "Qwen3ForCausalLM",
        dict(**_GROUPED, use_sliding_window=True, sliding_window=5, max_window_layers=2),
    ),
    "gemma2": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        dict(
            **_GROUPED,
            sliding_window=4,
            query_pre_attn_scalar=12,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=5.0,
        ),
    ),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        dict(
            **_GROUPED,
            sliding_window=4,
            query_pre_attn_scalar=12,
            layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        ),
    ),
    "phi3": (
        "Phi3Config",
        "Phi3ForCausalLM",
        dict(
            **{k: v for k, v in _GROUPED.items() if k != "head_dim"},
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "olmo2": (
        "Olmo2Config",
        "Olmo2ForCausalLM",
        dict(**{k: v for k, v in _GROUPED.items() if k != "head_dim"}),
    ),
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        dict(
            vocab_size=61,
            hidden_size=24,
            num_hidden_layers=4,
            num_attention_heads=4,
            ffn_dim=40,
            max_position_embeddings=64,
            word_embed_proj_dim=24,
        ),
    ),
}


def tiny(
    name: str, dtype: torch.dtype = torch.float32, seed: int = 0, settings: dict[str, Any] | None = None
) -> Model:
    """A random model whose norms, biases and weights are all far from their defaults; ``settings`` override its own."""
    config_class, model_class, own = VARIANTS[name]
    settings = {**own, **(settings or {})}
    torch.manual_seed(seed)
    config = getattr(transformers, config_class)(**settings)
    hf = getattr(transformers, model_class)(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter_name, parameter in sorted(hf.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            # Gains near one (or zero, where stored as 1 + gain), everything else large enough to matter.
            if "norm" in parameter_name or "ln_" in parameter_name:
                parameter.add_(0.3 * noise)
            else:
                parameter.copy_(0.35 * noise)
    hf.to(dtype).eval().requires_grad_(False)
    if dtype == torch.float64:
        _norms_in_float64(hf)
    return Model(hf, name=f"tiny-{name}")


def _norms_in_float64(hf: Any) -> None:
    """transformers' RMS norms round to float32 inside; a float64 test of an identity must not see that rounding."""
    for module in hf.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = _exact_rms_norm.__get__(module)


def _exact_rms_norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    eps: float = getattr(self, "variance_epsilon", None) or self.eps
    gain = self.weight + (1.0 if type(self).__name__.startswith("Gemma") else 0.0)
    return gain * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


def prompts_of(*lengths: int, seed: int = 0) -> list[list[int]]:
    """Random token ids of the given lengths."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 61, (length,), generator=generator).tolist() for length in lengths]
