"""A model with a sink that was put there, and prompts that hold it."""

from __future__ import annotations

import torch
from tiny import prompts_of, tiny

from headwise.model.model import Model
from headwise.sinks.find import Parking

SINK = 7


def plant_sink(dtype: torch.dtype = torch.float32) -> Model:
    """A model whose heads attend to token 7, wherever it stands: its embedding shouts, every key hears it, and a
    query bias listens."""
    model = tiny("gpt2", dtype)
    width = model.d_model
    generator = torch.Generator().manual_seed(3)
    shout = torch.nn.functional.normalize(torch.randn(width, generator=generator).to(dtype), dim=0)
    with torch.no_grad():
        trunk = model.hf.transformer
        trunk.wte.weight[SINK] = 60 * shout
        for layer, block in enumerate(trunk.h):
            block.ln_1.weight.fill_(1.0)
            listen = torch.randn(width, generator=generator).to(dtype)
            block.attn.c_attn.weight[:, width : 2 * width] = torch.outer(shout, listen)
            block.attn.c_attn.bias[:width] = listen * (layer + 1)
            block.mlp.c_proj.weight.mul_(0.1)
            block.attn.c_proj.weight.mul_(0.1)
    return Model(model.hf, name="planted")


def planted_prompts(n: int = 8, length: int = 14) -> list[list[int]]:
    """Token 7 at position 2, other tokens at random."""
    made = []
    for i, ids in enumerate(prompts_of(*[length] * n, seed=5)):
        ids = [t if t != SINK else SINK + 1 for t in ids]
        ids[2] = SINK
        made.append([*ids, 9 + i])
    return made


def by_hand(model: Model, prompts: list[list[int]]) -> Parking:
    """Every prompt's first token called a sink."""
    attention = torch.zeros(len(prompts), model.n_layers, model.n_heads, dtype=torch.float64)
    return Parking(prompts, [(0,)] * len(prompts), [torch.zeros(len(p)) for p in prompts], attention)
