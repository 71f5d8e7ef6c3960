"""The slow, obvious way: attention written out in full, kept to test the fast one against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from transformers.modeling_utils import AttentionInterface

from headwise.model.model import Model

KeyEdit = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]


def obvious_forward(
    model: Model, ids: list[int], edit: KeyEdit | None = None
) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
    """Logits [t, vocabulary] and, per layer, queries, keys (one per query head) and patterns of one prompt.

    Everything is materialised: keys for every query head, full score matrices, softmax in the model's precision.
    ``edit`` gets (layer, queries, keys), each [heads, t, d_head], and returns them edited.
    """
    queries: list[Tensor] = []
    keys: list[Tensor] = []
    patterns: list[Tensor] = []

    def attention(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor,
        scaling: float,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        group = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        if edit is not None:
            edited_query, edited_key = edit(module.layer_idx, query[0], key[0])
            query, key = edited_query[None], edited_key[None]
        scores = query @ key.mT * scaling
        if kwargs.get("softcap") is not None:
            scores = torch.tanh(scores / kwargs["softcap"]) * kwargs["softcap"]
        pattern = torch.softmax(scores + attention_mask, dim=-1)
        queries.append(query[0])
        keys.append(key[0])
        patterns.append(pattern[0])
        return (pattern @ value).transpose(1, 2).contiguous(), pattern

    config = model.anatomy.config
    before = config._attn_implementation
    AttentionInterface.register("obvious", attention)
    AttentionMaskInterface.register("obvious", eager_mask)
    try:
        config._attn_implementation = "obvious"
        with torch.no_grad():
            logits = model.hf(torch.tensor([ids]), use_cache=False).logits[0]
    finally:
        config._attn_implementation = before
        AttentionInterface._global_mapping.pop("obvious")
        AttentionMaskInterface._global_mapping.pop("obvious")
    return logits, queries, keys, patterns


def worst(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest entry."""
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30))
