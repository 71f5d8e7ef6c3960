"""The pattern of one head in a prompt so long that a page cannot carry all of it: what a reader needs, in space that
grows with the prompt's length and not with its square.

Whole are the row and the column that were asked about. Of every other row there are its strongest cells, so that of
those left out a bound is known. The picture of all cells has a fixed number of pixels, each the largest of a block.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from headwise.model.attend import AttentionCall

LONG = 2048
"""Prompts of more tokens than this carry a part of their pattern."""
PIXELS = 1024
"""Pixels of the picture's side, at most."""
LEAST = 0.02
"""Every cell of so much attention is kept: a row has no more than fifty."""
STRONGEST = 8
"""Cells of every row that are kept, however weak."""


@torch.no_grad()
def long_pattern(call: AttentionCall, query: int, key: int) -> dict[str, Any]:
    """What a page carries of the pattern, numbers in base 64: roots of attention in two bytes, of the picture in one.

    ``row`` and ``column`` are those of the explained cell, from the first token and from the key on. ``counts`` (one
    byte a row) says how many cells of each row follow one another in ``keys`` (four bytes) and ``cells``, strongest
    first.
    """
    tokens = call.query.shape[2]
    block = -(-tokens // PIXELS)
    side = -(-tokens // block)
    picture = torch.zeros(side, side)
    column, counts, keys, cells = (list[torch.Tensor]() for _ in range(4))
    for rows, patterns, _ in call.in_rows():
        pattern = patterns[0, 0].float().clamp(0, 1).nan_to_num(0.0).cpu()
        wide = (
            torch.nn.functional.pad(pattern, (0, side * block - tokens)).unflatten(-1, (-1, block)).amax(-1)
        )
        index = (torch.arange(rows.start, rows.stop) // block)[:, None].expand_as(wide)
        picture.scatter_reduce_(0, index, wide, "amax")
        column.append(pattern[:, key])
        values, places = pattern.topk(min(tokens, int(1 / LEAST)))
        kept = (values >= LEAST) | (torch.arange(values.shape[1]) < STRONGEST)
        kept &= places <= torch.arange(rows.start, rows.stop)[:, None]
        counts.append(kept.sum(1))
        keys.append(places[kept])
        cells.append(values[kept])
    row = call.pattern(torch.tensor([query], device=call.query.device))[0].float().clamp(0, 1).nan_to_num(0.0)
    seen = torch.ones(side, side, dtype=torch.bool).tril()
    return {
        "tokens": tokens,
        "query": query,
        "key": key,
        "row": _roots(row.cpu()[: query + 1], 2),
        "column": _roots(torch.cat(column)[key:], 2),
        "counts": _text(torch.cat(counts), "u1"),
        "keys": _text(torch.cat(keys), "<u4"),
        "cells": _roots(torch.cat(cells), 2),
        "least": LEAST,
        "strongest": STRONGEST,
        "block": block,
        "picture": _roots(picture[seen], 1),
    }


def _roots(attention: Tensor, size: int) -> str:
    """The root keeps small attentions apart."""
    highest, kind = (255, "u1") if size == 1 else (65535, "<u2")
    return _text(attention.double().sqrt().mul(highest).round(), kind)


def _text(numbers: Tensor, kind: str) -> str:
    return base64.b64encode(numbers.numpy().astype(kind).tobytes()).decode()
