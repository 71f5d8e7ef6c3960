"""All heads of a prompt at a glance: small pictures, statistics, and rows or columns across heads.

Attention is sent in bytes, not as text: whole numbers that stand for it (two bytes), or for its root (one byte, which
keeps small attentions apart). Nothing here needs the model; a recorded pass is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from headwise.model.attend import pattern_rows, raw_scores
from headwise.model.stream import Stream
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
    rows = torch.arange(t)
    seen = (rows[:, None] > rows) & ~torch.isin(rows, torch.tensor(sinks, dtype=torch.long))
    even = (rows + 1.0).log()[1:]
    thumbs, highest, entropy, resting = [], [], [], []
    for layer in range(up.n_layers):
        pattern = layer_pattern(stream, layer).float()
        highest += (pattern * seen).amax((1, 2)).tolist()
        own = torch.special.entr(pattern[:, 1:]).sum(-1) / even
        entropy += own.mean(-1).tolist()
        resting += pattern[:, 1:, sinks].sum(-1).mean(-1).tolist() if sinks else [0.0] * len(pattern)
        padded = pad(pattern, (0, pixels * block - t, 0, pixels * block - t))
        thumbs.append(root_bytes(max_pool2d(padded[:, None], block)[:, 0]))
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


def layer_pattern(stream: Stream, layer: int) -> Tensor:
    """Attention of every head of a layer from every position: [heads, T, T]."""
    call = stream.layers[layer].call
    rows = torch.arange(call.query.shape[2], device=call.query.device)
    keys = call.key[0].repeat_interleave(call.group, dim=0)
    scores = raw_scores(call.query[0], keys, call.scale, call.cap)
    return pattern_rows(scores, call.visible(rows[None])[0])


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
    stream = read.up.stream
    return b"".join(
        root_bytes(layer_pattern(stream, layer)[:, :, key]) for layer in range(len(stream.layers))
    )


@torch.no_grad()
def pattern_of(read: PromptReading, head: Head) -> Tensor:
    """[T, T]: one head's whole pattern."""
    return read.up.stream.whole_pattern(head)


def root_bytes(attention: Tensor) -> bytes:
    """The root of attention, one byte a cell."""
    cells = attention.clamp(0, 1).nan_to_num(0.0).sqrt().mul(255).round()
    return cells.to(torch.uint8).contiguous().cpu().numpy().astype(np.uint8).tobytes()
