"""Write tiny random models as GGUF files, the way llama.cpp's converter would, to read them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig
from transformers.convert_slow_tokenizer import bytes_to_unicode

# "12" is one token by its merge; a vocabulary that splits digits first must never use it.
_MERGES = ["Ġ M", "a r", "ar y", "ĠM ary", "1 2"]
TOKENS = [
    *sorted(bytes_to_unicode().values()),
    *(merge.replace(" ", "") for merge in _MERGES),
    "<bos>",
    "<eos>",
]

_SHAPE: dict[str, Any] = {
    "vocab_size": len(TOKENS),
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}


def tiny_model(arch: str, *, tied: bool = True) -> Any:
    """A random model whose norm gains differ from 1, so that a gain read wrongly shows."""
    shape = dict(_SHAPE, tie_word_embeddings=tied)
    torch.manual_seed(0)
    config = LlamaConfig(**shape) if arch == "llama" else Gemma3TextConfig(**shape, sliding_window=4)
    model = AutoModelForCausalLM.from_config(config).eval()
    for name, weight in model.named_parameters():
        spread = 0.1 if "norm" in name else 0.3
        weight.data += spread * torch.randn_like(weight)
    return model


def write(
    model: Any, path: Path, *, split: str = "smollm", bos: bool = False, rope_freqs: bool = False
) -> Path:
    """Write the model in llama.cpp's layout: llama's rotary halves interleaved, Gemma's gains plus one."""
    config = model.config
    arch = "llama" if config.model_type == "llama" else "gemma3"
    names = gguf.get_tensor_name_map(
        {"llama": gguf.MODEL_ARCH.LLAMA, "gemma3": gguf.MODEL_ARCH.GEMMA3}[arch], config.num_hidden_layers
    )
    out = gguf.GGUFWriter(path, arch)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_key_length(config.head_dim)
    out.add_rope_dimension_count(config.head_dim)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_vocab_size(config.vocab_size)
    if arch == "gemma3":
        out.add_sliding_window(config.sliding_window)
        out.add_rope_freq_base(config.rope_parameters["full_attention"]["rope_theta"])
    else:
        out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(split)
    out.add_token_list(TOKENS)
    out.add_token_types([3 if token in ("<bos>", "<eos>") else 1 for token in TOKENS])
    out.add_token_merges(_MERGES)
    out.add_bos_token_id(TOKENS.index("<bos>"))
    out.add_eos_token_id(TOKENS.index("<eos>"))
    out.add_add_bos_token(bos)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        value = tensor.float().numpy()
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            halves = value.reshape(heads, 2, value.shape[0] // heads // 2, value.shape[1])
            value = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(value.shape))
        if arch == "gemma3" and "norm" in name:
            value = value + 1
        out.add_tensor(f"{names.get_name(name.removesuffix('.weight'))}.weight", value)
    if rope_freqs:
        out.add_tensor("rope_freqs.weight", np.ones(config.head_dim // 2, dtype=np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path
