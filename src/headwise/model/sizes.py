"""How large a model is, from its configuration alone: no weights are read, and none are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headwise.errors import HeadwiseError
from headwise.model.architectures import architecture_of
from headwise.model.loading.catalogue import DEFAULT
from headwise.model.loading.load import dtype_of, read_config
from headwise.model.loading.quiet import quiet_transformers

PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    DEFAULT: {
        "model_type": "llama",
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    "gpt2": {"model_type": "gpt2"},
    "EleutherAI/pythia-160m": {
        "model_type": "gpt_neox",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "vocab_size": 50304,
        "tie_word_embeddings": False,
    },
    "google/gemma-2-2b": {
        "model_type": "gemma2",
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "intermediate_size": 9216,
        "vocab_size": 256000,
    },
    "Qwen/Qwen3-4B": {
        "model_type": "qwen3",
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "meta-llama/Llama-3.1-8B": {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    },
    "meta-llama/Llama-3.1-70B": {
        "model_type": "llama",
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "intermediate_size": 28672,
        "vocab_size": 128256,
    },
}
"""What the configurations of often asked-for models publish, so that no hub need be asked for their sizes."""


@dataclass(frozen=True)
class ModelSizes:
    """What the cost of a model follows from."""

    name: str
    """The model that was asked for."""
    parameters: int
    """Numbers in its weights, shared ones once."""
    layers: int
    """Layers."""
    heads: int
    """Query heads of a layer."""
    d_model: int
    """Width of the residual stream."""
    d_head: int
    """Width of a head."""
    vocabulary: int
    """Tokens it knows."""
    layer_parameters: int
    """Numbers in the weights of all layers."""

    def attention_flops(self, tokens: int) -> float:
        """Operations of a pass inside attention: queries with keys, and weights with values."""
        return 4.0 * tokens * tokens * self.layers * self.heads * self.d_head

    def flops(self, tokens: int) -> float:
        """Multiplications and additions of one bare pass over a prompt: weights, attention, and the answer's scores."""
        products = 2.0 * tokens * (self.layer_parameters + self.d_model * self.vocabulary)
        return products + self.attention_flops(tokens)

    def bytes_in(self, dtype: str) -> int:
        """Bytes of the weights in a precision."""
        return self.parameters * dtype_of(dtype).itemsize


def sizes_of(name: str | Path | None = None) -> ModelSizes:
    """The sizes of a model: one that is written down here, or of the configuration that ``name`` leads to.

    ``name`` is all that ``headwise.load`` takes, or a ``config.json`` alone; of a hub model nothing else is fetched.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    shown = DEFAULT if name is None else str(name)
    with quiet_transformers():
        if shown in PUBLISHED and not isinstance(name, Path):
            given = dict(PUBLISHED[shown])
            config = AutoConfig.for_model(given.pop("model_type"), **given)
        else:
            shown, config = read_config(name)
        family = architecture_of(config)
        # On this device a tensor has a shape and no numbers.
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(config)
    text = config.get_text_config()
    trunk = empty.get_submodule(family.trunk)
    layers = list(getattr(trunk, family.layers))
    heads, d_model = int(text.num_attention_heads), int(text.hidden_size)
    if not layers or not heads:
        raise HeadwiseError(f"the configuration of {shown!r} has no layers or heads: nothing can be planned")
    return ModelSizes(
        name=shown,
        parameters=sum(one.numel() for one in empty.parameters()),
        layers=len(layers),
        heads=heads,
        d_model=d_model,
        d_head=int(getattr(text, "head_dim", None) or d_model // heads),
        vocabulary=int(text.vocab_size),
        layer_parameters=sum(one.numel() for layer in layers for one in layer.parameters()),
    )
