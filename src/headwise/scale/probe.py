"""How fast this machine does what a model's pass consists of, measured on matrices of the model's widths."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from headwise.model.sizes import ModelSizes

MOST = 32 * 2**20
"""Numbers of the matrices that are multiplied: more than a cache holds, and soon made."""
SECONDS = 1.0
"""How long one thing is measured at least."""
OPERATIONS = 60
"""Calls of torch in a layer besides its products: norms, rotations, activations, reshaping."""


@dataclass(frozen=True)
class MachinePace:
    """What the parts of a pass cost on a machine."""

    flops: float
    """Operations per second in products with weights, at this length of prompt."""
    attention: float
    """Seconds of one layer's attention over the prompt."""
    call: float
    """Seconds of one small call of torch."""

    def bare(self, sizes: ModelSizes, tokens: int) -> float:
        """Seconds of one bare pass over a prompt."""
        products = sizes.flops(tokens) - sizes.layers * 4 * tokens * tokens * sizes.heads * sizes.d_head
        return products / self.flops + sizes.layers * (self.attention + OPERATIONS * self.call)


def measured_pace(sizes: ModelSizes, tokens: int) -> MachinePace:
    """The pace of this machine, after a few seconds."""
    generator = torch.Generator().manual_seed(0)
    wide = max(sizes.d_model, min(4 * sizes.d_model, MOST // sizes.d_model))
    count = max(1, min(sizes.layers, MOST // (wide * sizes.d_model)))
    # Several matrices in turn, as layers are: one alone would stay in the cache.
    weights = [torch.randn(wide, sizes.d_model, generator=generator) for _ in range(count)]
    stream = torch.randn(tokens, sizes.d_model, generator=generator)
    heads = torch.randn(1, sizes.heads, tokens, sizes.d_head, generator=generator)
    small = torch.randn(tokens, 8, generator=generator)

    def products() -> None:
        for weight in weights:
            torch.nn.functional.linear(stream, weight)

    return MachinePace(
        flops=2 * tokens * wide * sizes.d_model * count / _seconds(products),
        attention=_seconds(lambda: scaled_dot_product_attention(heads, heads, heads, is_causal=True)),
        call=_seconds(lambda: torch.nn.functional.silu(small)),
    )


def _seconds(work: Callable[[], object]) -> float:
    """The median time of some work on the processor, which others may use, too."""
    work()
    taken, began = list[float](), time.monotonic()
    while len(taken) < 5 or time.monotonic() - began < SECONDS:
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
        if len(taken) >= 2000:
            break
    return statistics.median(taken) / max(1, torch.get_num_threads())
