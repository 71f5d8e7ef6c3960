"""Attention as the model computes it, on the queries and keys it hands over, with its own scale, cap and mask."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from headwise.model.batch import Packing


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """What one layer hands to its attention function.

    ``query`` is [prompts, heads, columns, d_head] after QK-norm and RoPE, ``key`` and ``value`` have the key heads
    (or all query heads, once a single head's key has been edited); ``mask`` is True where a key is visible,
    [prompts, 1, columns, columns], or None for plain causal attention.
    """

    module: Any
    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    cap: float | None

    @property
    def group(self) -> int:
        return self.query.shape[1] // self.key.shape[1]

    def key_of(self, head: int) -> Tensor:
        """Keys a query head multiplies with: [prompts, columns, d_head]."""
        return self.key[:, head // self.group]

    def with_own_keys(self) -> AttentionCall:
        """The same call with one copy of keys and values for every query head, so that one can be edited alone."""
        if self.group == 1:
            return replace(self, key=self.key.clone())
        expand = self.group
        return replace(
            self,
            key=self.key.repeat_interleave(expand, dim=1),
            value=self.value.repeat_interleave(expand, dim=1),
        )

    def of_prompt(self, prompt: int) -> AttentionCall:
        """The call of one prompt of the batch alone."""
        one = slice(prompt, prompt + 1)
        mask = self.mask if self.mask is None or len(self.mask) == 1 else self.mask[one]
        return replace(self, query=self.query[one], key=self.key[one], value=self.value[one], mask=mask)

    def visible(self, rows: Tensor) -> Tensor:
        """Which columns the given query columns [prompts, n] may read: [prompts, n, columns]."""
        if self.mask is None:
            columns = torch.arange(self.key.shape[2], device=rows.device)
            return columns <= rows[..., None]
        index = rows[..., None].expand(-1, -1, self.mask.shape[-1])
        return self.mask[:, 0].expand(rows.shape[0], -1, -1).gather(1, index)


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor itself, or a half-precision one in float32: the least in which anything is decomposed.

    >>> [at_least_float32(torch.zeros(1, dtype=kind)).dtype for kind in (torch.bfloat16, torch.float64)]
    [torch.float32, torch.float64]
    """
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


STEPS = 8
"""Rounded results between the stream and a query or key, at most: the norm's product and its gain, the projection and
its bias, a norm of queries and keys, and two products and a sum of the rotation."""
FULL = 1e-5
"""Of float32, whose long sums round inside; the norms of a float64 model round to float32, too."""


def identity_tolerance(dtype: torch.dtype) -> float:
    """The relative error that a sum of parts may show against a vector of a model in this precision.

    Parts are computed in float32 or float64 from what a half-precision model handed over, but the model itself rounded
    every result on the way, each by at most the unit roundoff of its type. The tests hold every family to this, and to
    how far the model is from the same weights in float32.

    >>> [identity_tolerance(kind) for kind in (torch.float32, torch.bfloat16, torch.float16)]
    [1e-05, 0.03125, 0.00390625]
    """
    return STEPS * torch.finfo(dtype).eps / 2 if dtype in (torch.float16, torch.bfloat16) else FULL


def raw_scores(query: Tensor, key: Tensor, scale: float, cap: float | None) -> Tensor:
    """Scaled and soft-capped logits [..., n, columns] before the mask, in at least float32."""
    return soft_cap(at_least_float32(query) @ at_least_float32(key).mT * scale, cap)


def soft_cap(logits: Tensor, cap: float | None) -> Tensor:
    """Logits bounded by ±cap, smoothly, where a model does so.

    >>> soft_cap(torch.tensor([1.0, 400.0]), None).tolist(), soft_cap(torch.tensor([0.0, 400.0]), 20.0).tolist()
    ([1.0, 400.0], [0.0, 20.0])
    """
    return logits if cap is None else cap * torch.tanh(logits / cap)


def attend(call: AttentionCall) -> Tensor:
    """The layer's attention output [prompts, columns, heads, d_head], by SDPA wherever the model allows it."""
    if call.cap is not None:
        return _capped_attention(call)
    # sdpa_attention_forward repeats keys for modules that say they share them; once every query head has keys of its
    # own there is nothing to repeat.
    module: Any = call.module if call.group > 1 else _Ungrouped
    output, _ = sdpa_attention_forward(
        module, call.query, call.key, call.value, call.mask, scaling=call.scale, is_causal=True
    )
    return output


def attend_from(call: AttentionCall, start: int) -> Tensor:
    """The same for the columns from ``start`` on: [prompts, columns − start, heads, d_head]."""
    if start == 0:
        return attend(call)
    rows = torch.arange(start, call.query.shape[2], device=call.query.device)
    visible = call.visible(rows[None].expand(1 if call.mask is None else len(call.mask), -1))
    return attend(replace(call, query=call.query[:, :, start:], mask=visible[:, None]))


def attend_packed(call: AttentionCall, packing: Packing) -> Tensor:
    """The attention output [1, columns, heads, d_head] of a layer that nobody touches."""
    if packing.start == 0:
        return packing.packed(attend(packing.unpacked(call)), lambda: call.query[:, :0].transpose(1, 2))
    start, shared = packing.start, packing.before(call)
    # [key heads, group, columns of all copies, d_head] against the one prefix, then each copy against itself
    own_query = packing.own(call.query).unflatten(0, (-1, call.group))
    own_key, own_value = (packing.own(x)[:, None] for x in (call.key, call.value))
    before = raw_scores(own_query.flatten(2, 3), shared.key[0, :, None], call.scale, call.cap)
    within = raw_scores(own_query, own_key, call.scale, call.cap)
    rows = torch.arange(start, packing.length, device=call.query.device)[None]
    columns = call.key.new_empty(1, 1, packing.length, 0)  # a whole prompt's: a mask is asked for no more
    visible = replace(call, key=columns).visible(rows)[0]  # [width, positions]
    scores = torch.cat((before.unflatten(2, (packing.copies, packing.width)), within), -1)
    pattern = pattern_rows(scores, visible).to(call.value.dtype)
    carried = pattern[..., :start].flatten(2, 3) @ shared.value[0, :, None]
    own = pattern[..., start:] @ own_value
    # [key heads, group, copies · width, d_head] -> [copies, width, heads, d_head]
    output = (carried + own.flatten(2, 3)).flatten(0, 1).transpose(0, 1)
    return packing.packed(output.unflatten(0, (packing.copies, -1)), lambda: attend(shared))


class _Ungrouped:
    """Stands in for the module where every query head has its own keys."""

    num_key_value_groups = 1


def _capped_attention(call: AttentionCall) -> Tensor:
    # SDPA has no soft-cap. The arithmetic (float32 softmax included) is that of transformers' eager attention,
    # so that an instrumented pass gives the model's own numbers.
    group = call.group
    key = call.key.repeat_interleave(group, dim=1) if group > 1 else call.key
    value = call.value.repeat_interleave(group, dim=1) if group > 1 else call.value
    scores = soft_cap(torch.matmul(call.query, key.mT) * call.scale, call.cap)
    if call.mask is None:
        length = scores.shape[-1]
        visible = torch.ones(length, length, dtype=torch.bool, device=scores.device).tril()
    else:
        visible = call.mask
    scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    pattern = torch.softmax(scores, dim=-1, dtype=_softmax_dtype(scores)).to(call.query.dtype)
    return torch.matmul(pattern, value).transpose(1, 2).contiguous()


def _softmax_dtype(scores: Tensor) -> torch.dtype:
    return torch.float64 if scores.dtype == torch.float64 else torch.float32


def visible_softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the columns that a row sees; each row must see one."""
    return torch.softmax(scores.masked_fill(~visible, float("-inf")), dim=-1)


def pattern_rows(scores: Tensor, visible: Tensor) -> Tensor:
    """The same for rows of a padded batch; a row that sees nothing (a pad) is all zero."""
    return visible_softmax(scores, visible).nan_to_num(0.0)
