"""All heads of a prompt at a glance: small pictures, statistics, and rows or columns across heads.

Attention is sent in bytes, not as text: whole numbers that stand for it (two bytes), or for its root (one byte, which
keeps small attentions apart). Nothing here needs the model; a recorded pass is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from headwise.model.stream import Stream
from headwise.show.why.long_pattern import long_pattern
from headwise.show.why.page import packed
from headwise.tracing.seeds import likelihood_shares
from headwise.types import Cell, Head
from headwise.why.attention import sinks_of
from headwise.why.question import Answer, PromptReading, Question

SIDE = 48
"""Pixels of a thumbnail; prompts that are shorter have one per token."""


@dataclass(frozen=True, eq=False)
class Glance:
    """Thumbnails of all heads and what can be said of each in this prompt."""

    side: int
    thumbs: bytes
    """[heads, side, side]: the root of attention, the largest in each block."""
    highest: tuple[float, ...]
    """Of each head, the strongest attention that is neither on a sink nor on the token itself."""
    entropy: tuple[float, ...]
    """Of each head, the mean over rows of the entropy of its attention, as a share of that of an even row."""
    resting: tuple[float, ...]
    """Of each head, the mean attention on sinks."""
    brings: tuple[float, ...]
    """Of each head, what it brings of the answer's log-probability to the last token, from all tokens together."""
    sinks: tuple[int, ...]
    marked: tuple[Cell, ...]
    """The cells that ``explain`` would choose, the first one first."""

    @property
    def size(self) -> int:
        return len(self.thumbs)


@torch.no_grad()
def glance(read: PromptReading, answer: Answer, question: Question, side: int = SIDE) -> Glance:
    """Every head of a prompt, layer by layer: no pattern is kept."""
    up, stream = read.up, read.up.stream
    t = up.tokens
    block = -(-t // side)
    pixels = -(-t // block)
    sinks = _sinks(stream, t)
    thumbs, highest, entropy, resting = [], [], [], []
    for layer in range(up.n_layers):
        seen = _LayerGlance(up.n_heads, t, block, sinks)
        for first, pattern in layer_rows(stream, layer):
            seen.add(first, pattern.float().cpu())
        highest += seen.highest.tolist()
        entropy += seen.mean(seen.entropy)
        resting += seen.mean(seen.resting)
        thumbs.append(root_bytes(seen.thumbs))
    shares = likelihood_shares(up, answer.token)[: up.n_carried(up.n_layers)]
    brings = shares.view(-1, t).sum(1).tolist()
    return Glance(
        pixels,
        b"".join(thumbs),
        tuple(highest),
        tuple(entropy),
        tuple(resting),
        tuple(brings),
        tuple(sinks),
        (question.cell, *(one.cell for one in question.runners_up)),
    )


class _LayerGlance:
    """What can be said of the heads of a layer, some rows at a time. H heads, T tokens, P pixels."""

    def __init__(self, heads: int, tokens: int, block: int, sinks: list[int]) -> None:
        self.tokens, self.block, self.sinks = tokens, block, sinks
        self.columns = torch.arange(tokens)
        self.ordinary = ~torch.isin(self.columns, torch.tensor(sinks, dtype=torch.long))
        pixels = -(-tokens // block)
        self.thumbs = torch.zeros(heads, pixels, pixels)
        """[H, P, P]: the largest attention of each block."""
        self.highest, self.entropy, self.resting = (torch.zeros(heads) for _ in range(3))
        """[H]: the strongest attention; then sums over rows."""

    def add(self, first: int, pattern: Tensor) -> None:
        """The rows from ``first`` on: [H, rows, T]."""
        rows = torch.arange(first, first + pattern.shape[1])
        counted = (rows[:, None] > self.columns) & self.ordinary
        self.highest = torch.maximum(self.highest, (pattern * counted).amax((1, 2)))
        wide = pad(pattern, (0, self.thumbs.shape[-1] * self.block - self.tokens))
        wide = wide.unflatten(-1, (-1, self.block)).amax(-1)
        for pixel in range(first // self.block, int(rows[-1]) // self.block + 1):
            low, high = (max(0, (pixel + step) * self.block - first) for step in (0, 1))
            self.thumbs[:, pixel] = torch.maximum(self.thumbs[:, pixel], wide[:, low:high].amax(1))
        later = rows > 0  # the first row has one key
        even = (rows[later] + 1.0).log()
        self.entropy += (torch.special.entr(pattern[:, later]).sum(-1) / even).sum(-1)
        self.resting += pattern[:, later][..., self.sinks].sum((-1, -2))

    def mean(self, total: Tensor) -> list[float]:
        """A sum over rows as their mean; the first row is none of them."""
        return (total / max(1, self.tokens - 1)).tolist()


def layer_rows(stream: Stream, layer: int) -> Iterator[tuple[int, Tensor]]:
    """Attention of every head of a layer, some rows at a time: the first of them, and [heads, rows, T]."""
    for rows, pattern, _ in stream.layers[layer].call.in_rows():
        yield rows.start, pattern[0]


def _sinks(stream: Stream, tokens: int) -> list[int]:
    """Where heads rest in the last row."""
    rows = [stream.pattern(layer, tokens - 1) for layer in range(len(stream.layers))]
    return sinks_of(torch.cat(rows), tokens - 1)


@torch.no_grad()
def rows_of(read: PromptReading, query: int) -> bytes:
    """[heads, T]: what every head reads from one token."""
    stream = read.up.stream
    return b"".join(root_bytes(stream.pattern(layer, query)) for layer in range(len(stream.layers)))


@torch.no_grad()
def columns_of(read: PromptReading, key: int) -> bytes:
    """[heads, T]: how much every head reads one token, from each token."""
    layers = zip(read.up.stream.layers, read.up.log_sums, strict=True)
    return b"".join(root_bytes(record.call.column(key, log_sums)) for record, log_sums in layers)


@torch.no_grad()
def pattern_of(read: PromptReading, head: Head) -> np.ndarray:
    """One head's whole pattern, packed."""
    return packed(read.up.stream.call_of(head))


@torch.no_grad()
def long_pattern_of(read: PromptReading, head: Head, query: int, key: int) -> dict[str, Any]:
    """What a saved page carries of it in a long prompt: it grows with the tokens, not with their square."""
    return long_pattern(read.up.stream.call_of(head), query, key)


def root_bytes(attention: Tensor) -> bytes:
    """The root of attention, one byte a cell."""
    cells = attention.clamp(0, 1).nan_to_num(0.0).sqrt().mul(255).round()
    return cells.to(torch.uint8).contiguous().cpu().numpy().astype(np.uint8).tobytes()
