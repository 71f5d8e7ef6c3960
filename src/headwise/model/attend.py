"""Attention as the model computes it, on the queries and keys it hands over, with its own scale, cap and mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from headwise.model.batch import Packing

BLOCK = 1 << 24
"""Numbers of the size rows × columns that are made at a time: memory follows a prompt's length, not its square."""


@dataclass(frozen=True, eq=False)
class RowMask:
    """Which columns the rows of a long prompt see, by a rule: nothing of the size rows × columns is built."""

    rule: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """From indices of prompts, heads, rows and columns: whether the row sees the column."""
    prompts: Tensor
    """[n]: the prompts of the batch."""
    start: int
    """The first column."""
    columns: int
    """How many there are."""

    def __len__(self) -> int:
        return len(self.prompts)

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Whether rows [n or 1, r, 1 or c] see columns [n or 1, 1 or r, c]: [n or 1, r, c]."""
        place = self.prompts.device
        rows, columns = (x.to(place)[:, None] + self.start for x in (rows, columns))
        seen = self.rule(self.prompts[:, None, None, None], self.prompts.new_zeros(1, 1, 1, 1), rows, columns)
        return seen[:, 0]

    def of_prompt(self, prompt: int, columns: slice) -> RowMask:
        """The mask of one prompt of the batch and some of its columns."""
        start, stop, _ = columns.indices(self.columns)
        chosen = self.prompts if len(self) == 1 else self.prompts[prompt : prompt + 1]
        return RowMask(self.rule, chosen, self.start + start, stop - start)


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """What one layer hands to its attention function."""

    module: Any
    """The layer's attention module; None in a record."""
    layer: int
    """Which layer it is."""
    query: Tensor
    """[prompts, heads, columns, d_head] after QK-norm and RoPE."""
    key: Tensor
    """The same of the key heads, or of all query heads once a single head's key has been edited."""
    value: Tensor
    """[prompts, key heads, columns, d_head]: what is read."""
    mask: Tensor | RowMask | None
    """[prompts, 1, columns, columns]: whether a key is visible; a rule where that would be large, and None for plain
    causal attention."""
    scale: float
    """What q·k is multiplied with."""
    cap: float | None
    """The soft-cap, where the model has one."""

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
        one, mask = slice(prompt, prompt + 1), self.mask
        if isinstance(mask, RowMask):
            mask = mask.of_prompt(prompt, slice(None))
        elif mask is not None and len(mask) > 1:
            mask = mask[one]
        return replace(self, query=self.query[one], key=self.key[one], value=self.value[one], mask=mask)

    def of_head(self, head: int, prompt: int, columns: slice) -> AttentionCall:
        """The call of one head in one prompt, at some columns."""
        one, mask = slice(prompt, prompt + 1), self.of_prompt(prompt).mask
        if isinstance(mask, RowMask):
            mask = mask.of_prompt(0, columns)
        elif mask is not None:
            mask = mask[..., columns, columns]
        query = self.query[one, head : head + 1, columns]
        key, value = (x[one, head // self.group, None, columns] for x in (self.key, self.value))
        return replace(self, query=query, key=key, value=value, mask=mask)

    def kept(self) -> AttentionCall:
        """The same on the CPU, for its pattern: it holds on to nothing else of the pass, nor to the values."""
        query, key = (x.detach().cpu().clone() for x in (self.query, self.key))
        mask = self.mask.cpu().clone() if isinstance(self.mask, Tensor) else self.mask
        return replace(self, module=None, query=query, key=key, value=key, mask=mask)

    def pattern(self, rows: Tensor) -> Tensor:
        """Attention of the one head of the one prompt from some rows [n]: [n, columns]."""
        scores = raw_scores(self.query[0, 0, rows], self.key[0, 0], self.scale, self.cap)
        return pattern_rows(scores, self.visible(rows[None])[0])

    def visible(self, rows: Tensor) -> Tensor:
        """Which columns the given query columns [prompts, n] may read: [prompts, n, columns]."""
        if self.mask is None:
            columns = torch.arange(self.key.shape[2], device=rows.device)
            return columns <= rows[..., None]
        if isinstance(self.mask, RowMask):
            columns = torch.arange(self.mask.columns, device=rows.device)
            seen = self.mask.at(rows[..., None], columns[None, None]).to(rows.device)
            return seen.expand(rows.shape[0], -1, -1)
        index = rows[..., None].expand(-1, -1, self.mask.shape[-1])
        return self.mask[:, 0].expand(rows.shape[0], -1, -1).gather(1, index)

    def sees(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Whether ``rows`` [prompts, r] see ``columns`` [prompts, c]: [prompts, r, c]."""
        return self.visible(rows).gather(2, columns[:, None].expand(-1, rows.shape[1], -1))

    def blind(self) -> AttentionCall:
        """The same without queries, keys and values: enough for :meth:`visible`, whenever it is asked."""
        # Not slices of them, which would hold on to the whole.
        query, key, value = (x.new_empty(*x.shape[:-1], 0) for x in (self.query, self.key, self.value))
        return replace(self, module=None, query=query, key=key, value=value)

    def in_rows(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """The patterns of all heads, some rows at a time: which rows, attention [prompts, heads, rows, columns] and
        which columns they see [prompts, rows, columns]. In a long prompt all at once would be the square of it."""
        prompts, heads, columns, _ = self.query.shape
        for low, high in row_blocks(0, columns, prompts * heads):
            rows = torch.arange(low, high, device=self.query.device).expand(prompts, -1)
            grouped = self.query[:, :, low:high].unflatten(1, (-1, self.group))
            scores = raw_scores(grouped, self.key[:, :, None], self.scale, self.cap).flatten(1, 2)
            visible = self.visible(rows)
            yield slice(low, high), pattern_rows(scores, visible[:, None]), visible

    def column(self, at: int, log_sums: Tensor) -> Tensor:
        """Attention of every head of the one prompt to one column, from each row: [heads, rows].

        ``log_sums`` [heads, rows] are those of the exponentials of each row's scores; with them no other column is
        needed.
        """
        grouped, key = self.query.unflatten(1, (-1, self.group)), self.key[:, :, None, at : at + 1]
        scores = raw_scores(grouped, key, self.scale, self.cap).flatten(1, 2)[0, ..., 0]
        seen = self.readers(torch.tensor([at], device=scores.device))[0]
        return (scores - log_sums).exp().masked_fill(~seen, 0.0)

    def readers(self, columns: Tensor) -> Tensor:
        """Which rows of the one prompt may read the given columns [n]: [n, rows]."""
        if isinstance(self.mask, Tensor):
            return self.mask[0, 0][:, columns].mT
        rows = torch.arange(self.query.shape[2], device=columns.device)
        if self.mask is None:
            return rows >= columns[:, None]
        return self.mask.at(rows[None, None], columns[None, :, None])[0].to(columns.device)


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
    length = call.query.shape[2]
    made = length * call.key.shape[2] * len(call.query) * (1 if call.cap is None else call.query.shape[1])
    if isinstance(call.mask, RowMask) or (call.cap is not None and made > BLOCK):
        return _attend_rows(call, 0)
    return _attend_at_once(call)


def _attend_at_once(call: AttentionCall) -> Tensor:
    if call.cap is not None:
        return _capped_attention(call)
    # sdpa_attention_forward repeats keys for modules that say they share them; once every query head has keys of its
    # own there is nothing to repeat.
    module: Any = call.module if call.group > 1 else _Ungrouped
    assert not isinstance(call.mask, RowMask)
    output, _ = sdpa_attention_forward(
        module, call.query, call.key, call.value, call.mask, scaling=call.scale, is_causal=True
    )
    return output


def attend_from(call: AttentionCall, start: int) -> Tensor:
    """The same for the columns from ``start`` on: [prompts, columns − start, heads, d_head]."""
    return attend(call) if start == 0 else _attend_rows(call, start)


def _attend_rows(call: AttentionCall, start: int) -> Tensor:
    """The rows from ``start`` on, as many at a time as a block holds, each with the columns up to its last row."""
    parts = []
    for low, high in row_blocks(start, call.query.shape[2], call.query.shape[0] * call.query.shape[1]):
        rows = torch.arange(low, high, device=call.query.device)
        visible = call.visible(rows[None].expand(1 if call.mask is None else len(call.mask), -1))
        parts.append(
            _attend_at_once(
                replace(
                    call,
                    query=call.query[:, :, low:high],
                    key=call.key[:, :, :high],
                    value=call.value[:, :, :high],
                    mask=visible[:, None, :, :high],
                )
            )
        )
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def row_blocks(
    start: int, stop: int, times: int, block: int = BLOCK, *, columns: int | None = None
) -> Iterator[tuple[int, int]]:
    """Runs of rows, of which ``times`` patterns with all columns (those up to the last row, unless it is said how many)
    have no more numbers than a block.

    >>> list(row_blocks(2, 5, 1, block=100)), list(row_blocks(0, 5, 1, block=10))
    ([(2, 5)], [(0, 2), (2, 4), (4, 5)])
    """
    step = max(1, block // max(1, times * (stop if columns is None else columns)))
    for low in range(start, stop, step):
        yield low, min(stop, low + step)


def attend_packed(call: AttentionCall, packing: Packing) -> Tensor:
    """The attention output [1, columns, heads, d_head] of a layer that nobody touches."""
    if packing.start == 0:
        return packing.packed(attend(packing.unpacked(call)), lambda: call.query[:, :0].transpose(1, 2))
    start, shared = packing.start, packing.before(call)
    # [key heads, group, columns of all copies, d_head] against the one prefix, then each copy against itself
    every = packing.own(call.query).unflatten(0, (-1, call.group))
    own_key, own_value = (packing.own(x)[:, None] for x in (call.key, call.value))
    columns = call.key.new_empty(1, 1, packing.length, 0)  # a whole prompt's: a mask is asked for no more
    parts = []
    for low, high in row_blocks(start, packing.length, packing.copies * call.query.shape[1]):
        own_query, width = every[:, :, :, low - start : high - start], high - low
        before = raw_scores(own_query.flatten(2, 3), shared.key[0, :, None], call.scale, call.cap)
        within = raw_scores(own_query, own_key, call.scale, call.cap)
        rows = torch.arange(low, high, device=call.query.device)[None]
        visible = replace(call, key=columns).visible(rows)[0]  # [width, positions]
        scores = torch.cat((before.unflatten(2, (packing.copies, width)), within), -1)
        pattern = pattern_rows(scores, visible).to(call.value.dtype)
        carried = pattern[..., :start].flatten(2, 3) @ shared.value[0, :, None]
        own = pattern[..., start:] @ own_value
        # [key heads, group, copies · width, d_head] -> [copies, width, heads, d_head]
        output = (carried + own.flatten(2, 3)).flatten(0, 1).transpose(0, 1)
        parts.append(output.unflatten(0, (packing.copies, -1)))
    return packing.packed(torch.cat(parts, 1), lambda: attend(shared))


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
    assert not isinstance(call.mask, RowMask)
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
