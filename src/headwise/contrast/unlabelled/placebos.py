"""Placebos of self-contrast, many at a time: the attention of each row dealt anew among the keys that count.

One by one they would be small calls without end. Together they are one sort and two products of matrices: with the
allowed keys first and less their mean, a contrast is the dealt attention times the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from headwise.contrast.unlabelled.attention_rows import AttentionRows

MEMORY = 64 * 2**20
"""Bytes that the placebos of one batch take at most, unless a single one takes more."""
BITS = 24
"""Random bits of a number that ``torch.rand`` draws."""


def placebo_sums(rows: AttentionRows, generators: Sequence[torch.Generator]) -> Tensor:
    """Σ q d of rows whose attention each generator deals anew [draws, d_head, d_head]; d is the contrast with it."""
    q, keys = rows.q.double(), _centred(rows)
    made = []
    for some in _batches(rows, generators):
        dealt = rows.attention.expand(len(some), -1, -1).gather(2, orders(rows.allowed, some))
        contrast = torch.einsum("pnt,ntd->npd", dealt.to(keys), keys).double()
        made.append((q.mT @ contrast.flatten(1)).unflatten(1, contrast.shape[1:]).transpose(0, 1))
    return torch.cat(made)


def orders(allowed: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """Every row's allowed keys in an order drawn at random, the others after them [draws, n, T]: as in ``shuffled``.

    Sorted are whole numbers with the key's own in their last bits, which numpy does many times as fast as torch sorts
    floats; keys that drew the same number keep their order.
    """
    place = allowed.shape[-1].bit_length()
    drawn = torch.stack([torch.rand(allowed.shape, generator=one) for one in generators])
    drawn += ~allowed
    tickets = (drawn * 2**BITS).long() << place
    tickets += torch.arange(allowed.shape[-1])
    tickets.numpy().sort(-1)
    return tickets & ((1 << place) - 1)


def _centred(rows: AttentionRows) -> Tensor:
    """Keys less the mean of the row's allowed ones, those first and 0 in place of the others [n, T, d_head]."""
    order = (~rows.allowed).to(torch.int8).argsort(dim=1, stable=True)
    counts = rows.allowed.sum(1, keepdim=True)[..., None]
    allowed = rows.allowed[..., None].to(rows.keys)
    keys = (rows.keys - (rows.keys * allowed).sum(1, keepdim=True) / counts.clamp_min(1)) * allowed
    return keys.gather(1, order[..., None].expand_as(keys))


def _batches(rows: AttentionRows, generators: Sequence[torch.Generator]) -> Iterator[list[torch.Generator]]:
    # Of each cell a draw, its ticket and what is dealt; of each row the contrast in both precisions.
    one = rows.allowed.numel() * 32 + rows.q.numel() * 16
    size = max(1, MEMORY // max(1, one))
    for start in range(0, len(generators), size):
        yield list(generators[start : start + size])
