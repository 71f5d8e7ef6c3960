"""What flows through every head: second moments of the queries and keys that meet, from one pass over some texts.

A cell is *attended* where its attention is at least ``ATTENDED``. The query is taken as it is before rotation, the key
as that query sees it: R_dᵀ k_t, less the mean of the query's other visible keys. What a head writes is summed over all
tokens, for its mean output. All heads of all layers are followed in one forward pass; nothing is kept but sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.bases.balanced import HeadMoments
from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall, at_least_float32, attend
from headwise.model.batch import Batch
from headwise.model.forward import Instruments, forward
from headwise.model.reading import Rotary

if TYPE_CHECKING:
    from headwise.model.model import Model

ATTENDED = 0.2
"""Attention from which a cell counts: what a person would ask about."""


@dataclass(frozen=True, eq=False)
class MomentSums:
    """Sums over the attended cells of every head: L layers, H heads; add two to join what two workers saw."""

    cells: Tensor
    """[L, H]"""
    query: Tensor
    """[L, H, d_head]: Σ q."""
    query_square: Tensor
    """[L, H, d_head, d_head]: Σ q qᵀ."""
    key_square: Tensor
    """[L, H, d_head, d_head]: Σ Δk Δkᵀ."""
    tokens: Tensor
    """[]: tokens of the texts, attended or not."""
    output: Tensor
    """[L, H, d_head]: Σ of what the head writes at each of them, before the output projection."""

    @classmethod
    def zero(cls, layers: int, heads: int, d_head: int) -> MomentSums:
        shape = (layers, heads)
        return cls(
            torch.zeros(shape, dtype=torch.float64),
            torch.zeros(*shape, d_head, dtype=torch.float64),
            torch.zeros(*shape, d_head, d_head, dtype=torch.float64),
            torch.zeros(*shape, d_head, d_head, dtype=torch.float64),
            torch.zeros((), dtype=torch.float64),
            torch.zeros(*shape, d_head, dtype=torch.float64),
        )

    def __add__(self, other: MomentSums) -> MomentSums:
        return MomentSums(
            self.cells + other.cells,
            self.query + other.query,
            self.query_square + other.query_square,
            self.key_square + other.key_square,
            self.tokens + other.tokens,
            self.output + other.output,
        )

    def moments(self) -> HeadMoments:
        """Means over the cells; a head without any has moments of zero."""
        count = self.cells.clamp(min=1)[..., None]
        return HeadMoments(
            self.cells,
            self.query / count,
            self.query_square / count[..., None],
            self.key_square / count[..., None],
        )

    @property
    def mean_output(self) -> Tensor:
        """[L, H, d_head]: what each head writes on average over all tokens."""
        return self.output / self.tokens.clamp(min=1)


def collect_moments(model: Model, token_ids: Sequence[Sequence[int]]) -> MomentSums:
    """The sums of one batch of texts, all heads of all layers in one forward pass.

    Texts of one token have nothing to be relative to; a batch should hold texts of similar length.
    """
    if not token_ids:
        raise HeadwiseError("there are no texts to take moments of: give at least one")
    anatomy = model.anatomy
    batch = Batch.of([list(ids) for ids in token_ids])
    sums = MomentSums.zero(model.n_layers, anatomy.n_heads, anatomy.d_head)
    rotaries: dict[int, Rotary | None] = {}
    real = torch.arange(batch.ids.shape[1]) < batch.lengths[:, None]  # right padding: a pad is nobody's key

    def note_rotary(layer: int, _module: Any, _args: tuple, kwargs: dict) -> None:
        rotaries[layer] = Rotary.of(kwargs.get("position_embeddings"))

    def observe(call: AttentionCall) -> None:
        _add_layer(sums, call, rotaries.get(call.layer), real.to(call.query.device))
        if call.layer == model.n_layers - 1:
            finish(call, attend(call))  # the pass ends before it would

    def finish(call: AttentionCall, output: Tensor) -> Tensor:
        written = at_least_float32(output) * real.to(output.device)[..., None, None]
        sums.output[call.layer] += written.sum((0, 1)).double().cpu()
        return output

    sums.tokens.add_(batch.lengths.sum())
    instruments = Instruments(observe=observe, finish=finish, stop_at=model.n_layers - 1)
    for layer in range(model.n_layers):
        instruments.before.append((anatomy.attention[layer], partial(note_rotary, layer)))
    forward(model, batch, instruments)
    return sums


def _add_layer(sums: MomentSums, call: AttentionCall, rotary: Rotary | None, real: Tensor) -> None:
    # All that a row of a plain causal layer sees, [prompts, key heads, rows, d_head]
    plain = call.key.cumsum(2) if call.mask is None else None
    for rows, pattern, visible in call.in_rows():
        whole = visible.to(call.key.dtype)[:, None] @ call.key if plain is None else plain[:, :, rows]
        _add_rows(sums, call, rotary, rows.start, pattern, visible, whole, real[:, rows])


def _add_rows(
    sums: MomentSums,
    call: AttentionCall,
    rotary: Rotary | None,
    first: int,
    pattern: Tensor,
    visible: Tensor,
    whole: Tensor,
    real: Tensor,
) -> None:
    """Some rows of a layer, from the ``first`` on; ``whole`` is the sum of the keys that each sees."""
    rivals = visible.sum(-1) - 1
    asked = (real & (rivals > 0))[:, None, :, None]
    # Heads first, so that each head's cells lie together.
    head, prompt, row, key = ((pattern >= ATTENDED) & asked).transpose(0, 1).nonzero().T
    if not len(head):
        return
    own = call.key[prompt, head // call.group, key]
    others = (whole[prompt, head // call.group, row] - own) / rivals[prompt, row, None].to(own.dtype)
    query = row + first
    q, difference = call.query[prompt, head, query], own - others
    if rotary is not None:
        row = prompt if rotary.cos.shape[0] > 1 else torch.zeros_like(prompt)
        here = Rotary(rotary.cos[row, query][:, None], rotary.sin[row, query][:, None])
        q = here.undo(q[:, None, None])[:, 0, 0]
        difference = here.transposed(difference[:, None, None])[:, 0, 0]
    counts = torch.bincount(head, minlength=call.query.shape[1]).tolist()
    at = 0
    for index, count in enumerate(counts):
        mine, theirs = at_least_float32(q[at : at + count]), at_least_float32(difference[at : at + count])
        at += count
        sums.cells[call.layer, index] += count
        sums.query[call.layer, index] += mine.sum(0).double().cpu()
        sums.query_square[call.layer, index] += (mine.mT @ mine).double().cpu()
        sums.key_square[call.layer, index] += (theirs.mT @ theirs).double().cpu()
