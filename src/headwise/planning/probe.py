"""How fast a machine does what headwise consists of: large products of matrices, and many small calls.

Products are measured at the model's widths, for they are what a large model's time goes into. The small calls around
them cost the same whatever the model, so they are measured on the small model that the package carries, by doing to it
what the commands do.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import linear, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.model.sizes import ModelSizes, sizes_of
from headwise.planning.work import EXPLAIN, TEXT

MOST = 32 * 2**20
"""Numbers of the matrices that are multiplied: more than a cache holds, and soon made."""
SECONDS = 0.4
"""How long one thing is measured at least."""
LENGTHS = (8, 32, 128, 512)
"""Tokens of a pass at which products are measured: short passes wait for weights, long ones for the processor."""
PROMPT = "then mary and paul went to the store . mary gave a book to"
"""What the small model reads while its calls are timed."""


@dataclass(frozen=True)
class MachinePace:
    """What the parts of headwise's work cost on a machine."""

    products: tuple[tuple[int, float], ...]
    """Tokens of a pass, from few to many, and operations per second in its products with weights."""
    attention: float
    """Operations per second inside attention."""
    layer: float
    """Seconds of a layer's small calls in a pass, whatever the model."""
    call: float
    """Seconds of one of the small calls that take a pass apart."""
    deal: float = 0.0
    """Seconds in which the attention of one head in one text is dealt anew, as one placebo of many."""

    def rate(self, tokens: int) -> float:
        """Operations per second in a pass over so many tokens, between those that were measured."""
        if tokens <= self.products[0][0]:
            return self.products[0][1] * tokens / self.products[0][0]
        for (low, slow), (high, fast) in pairwise(self.products):
            if tokens <= high:
                share = math.log(tokens / low) / math.log(high / low)
                return math.exp((1 - share) * math.log(slow) + share * math.log(fast))
        return self.products[-1][1]

    def bare(self, sizes: ModelSizes, tokens: int, together: int = 1) -> float:
        """Seconds of a bare pass over one prompt, where so many share a pass."""
        attention = sizes.attention_flops(tokens)
        products = (sizes.flops(tokens) - attention) / self.rate(tokens * together)
        return products + attention / self.attention + sizes.layers * self.layer / together


def described_pace(flops: float, here: MachinePace) -> MachinePace:
    """The pace of a machine of so many operations per second whose small calls cost what they cost here."""
    return MachinePace(((1, flops),), flops, here.layer, here.call, here.deal)


def measured_pace(sizes: ModelSizes) -> MachinePace:
    """The pace of this machine, after a few seconds."""
    generator = torch.Generator().manual_seed(0)
    wide = max(1, min(4 * sizes.d_model, MOST // sizes.d_model))
    count = max(1, min(sizes.layers, MOST // (wide * sizes.d_model)))
    # Several matrices in turn, as layers are: one alone would stay in the cache.
    weights = [torch.randn(wide, sizes.d_model, generator=generator) for _ in range(count)]

    def rate(tokens: int) -> float:
        stream = torch.randn(tokens, sizes.d_model, generator=generator)
        seconds = _seconds(lambda: [linear(stream, weight) for weight in weights])
        return 2 * tokens * wide * sizes.d_model * count / seconds

    heads = torch.randn(1, sizes.heads, LENGTHS[-1], sizes.d_head, generator=generator)
    inside = _seconds(lambda: scaled_dot_product_attention(heads, heads, heads, is_causal=True))
    layer, call = _small_calls()
    return MachinePace(
        products=tuple((tokens, rate(tokens)) for tokens in LENGTHS),
        attention=4 * LENGTHS[-1] ** 2 * sizes.heads * sizes.d_head / inside,
        layer=layer,
        call=call,
        deal=_deal(sizes.d_head),
    )


def _deal(width: int) -> float:
    """Seconds of one placebo of a head's attention in a text, as features without labels take hundreds at a time."""
    from headwise.contrast.unlabelled.attention_rows import AttentionRows
    from headwise.contrast.unlabelled.one_head import PLACEBOS
    from headwise.contrast.unlabelled.placebos import placebo_sums
    from headwise.randomness import keyed

    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(TEXT, TEXT, width, generator=generator)
    allowed = torch.ones(TEXT, TEXT, dtype=torch.bool).tril()
    allowed[:, 0] = False  # every head rests there
    attention = torch.rand(TEXT, TEXT, generator=generator)
    every = AttentionRows(keys[:, 0], keys, attention, allowed, torch.zeros(TEXT))
    rows = every.chosen(allowed.sum(1) > 1)
    return _seconds(lambda: placebo_sums(rows, [keyed(0, draw) for draw in range(PLACEBOS)])) / PLACEBOS


def _small_calls() -> tuple[float, float]:
    """Seconds of a layer's small calls in a pass, and of one call of an explanation, by the small model."""
    from headwise.model.loading.load import load
    from headwise.toy.small_lm import DATA
    from headwise.why.explain import explain

    model = load(DATA, device="cpu")
    ids = torch.tensor([model.prompt_ids(PROMPT)])
    with torch.no_grad():
        bare = _seconds(lambda: model.hf(ids, use_cache=False))
        with _Counted() as counted:
            explain(model, PROMPT)
        taken = _seconds(lambda: explain(model, PROMPT))
    # Its products are so small that a pass is all calls; what an explanation's passes take is planned as passes.
    around = max(taken - EXPLAIN.passes * bare, taken / 2)
    return bare / sizes_of(DATA).layers, around / counted.calls


class _Counted(TorchDispatchMode):
    """How often torch is called inside the block."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def _seconds(work: Callable[[], object]) -> float:
    """The median time that some work keeps this thread on the processor, which others may use, too."""
    work()
    taken, began = list[float](), time.monotonic()
    while len(taken) < 5 or time.monotonic() - began < SECONDS:
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
        if len(taken) >= 500:
            break
    return max(statistics.median(taken), 1e-9)
