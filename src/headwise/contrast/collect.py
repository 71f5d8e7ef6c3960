"""From labelled prompts to what the estimator needs: each prompt's query and the means of its key sets.

One forward pass per prompt, for every head asked for at once; it stops after the last layer needed. Memory
follows one batch, and what is kept is (q, k̄+, k̄−) per prompt and head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from headwise.contrast.covariance import ContrastiveCovariance, Keep
from headwise.errors import HeadwiseError
from headwise.model.threads import steady
from headwise.progress import Tick
from headwise.scale.stages import ValueJob
from headwise.scale.work import Chunk
from headwise.tasks.labelled.types import Example
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.model import Model

BATCH = 64


@dataclass(frozen=True, eq=False)
class Pairs:
    """Queries and set means of n prompts and h heads, float64 [n, h, d_head] each."""

    q: Tensor
    plus: Tensor
    minus: Tensor
    other_q: Tensor | None = None
    """The query that read the negative keys, where that was another one."""
    keys: Tensor | None = None
    """[n, h, K, d_head]: every key, the positive ones first; zero where a prompt has fewer."""
    counts: Tensor | None = None
    """[n, 2]: how many of them are positive, and how many negative."""

    def __len__(self) -> int:
        return self.q.shape[0]

    def feed(self, estimator: ContrastiveCovariance) -> ContrastiveCovariance:
        """Add these prompts to an estimator."""
        return estimator.partial_fit(self.q, self.plus, self.minus, negative_q=self.other_q)

    @classmethod
    def cat(cls, parts: Sequence[Pairs]) -> Pairs:
        """Several groups of prompts, one after another."""
        other = [part.other_q for part in parts if part.other_q is not None]
        keys = [part.keys for part in parts if part.keys is not None]
        counts = [part.counts for part in parts if part.counts is not None]
        width = max((one.shape[2] for one in keys), default=0)
        return cls(
            torch.cat([part.q for part in parts]),
            torch.cat([part.plus for part in parts]),
            torch.cat([part.minus for part in parts]),
            torch.cat(other) if other else None,
            torch.cat([_wide(one, width) for one in keys]) if keys else None,
            torch.cat(counts) if counts else None,
        )

    def picked(self, places: Tensor) -> Pairs:
        """These prompts, in this order."""
        more = (None if x is None else x[places] for x in (self.other_q, self.keys, self.counts))
        return Pairs(self.q[places], self.plus[places], self.minus[places], *more)


def _wide(keys: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(keys, (0, 0, 0, width - keys.shape[2]))


def pair_batches(
    model: Model,
    examples: Sequence[Example],
    heads: Sequence[Head] | None = None,
    tick: Tick | None = None,
    batch_size: int = BATCH,
) -> Iterator[tuple[list[int], Pairs]]:
    """Batches of prompts of similar length: their indices and their pairs. ``heads`` None is every head."""
    plain = [i for i, e in enumerate(examples) if e.other is None]
    crossed = [i for i, e in enumerate(examples) if e.other is not None]
    if plain:
        prompts = [examples[i].tokens for i in plain]
        stream = model.stream_capture(
            prompts,
            heads=heads,
            queries=[[examples[i].query] for i in plain],
            keys=[list(examples[i].keys) for i in plain],
            want=("q", "k"),
            batch_size=batch_size,
        )
        for places, seen in stream:
            indices = [plain[p] for p in places]
            counts = [(len(examples[i].positive), len(examples[i].negative)) for i in indices]
            plus, minus = (_means(seen.k.double(), counts, side) for side in (0, 1))
            keys = _present(seen.k, [sum(pair) for pair in counts])
            made = Pairs(seen.q[:, :, 0].double(), plus, minus, None, keys, torch.tensor(counts))
            yield indices, made
            _tell(tick, len(indices))
    crossed.sort(key=lambda i: len(examples[i].tokens))
    for start in range(0, len(crossed), batch_size):
        indices = crossed[start : start + batch_size]
        yield indices, _crossed(model, [examples[i] for i in indices], heads)
        _tell(tick, len(indices))


def _crossed(model: Model, batch: Sequence[Example], heads: Sequence[Head] | None) -> Pairs:
    """Positive keys of the prompts themselves, negative keys of their counterfactuals."""
    own = model.capture(
        [e.tokens for e in batch],
        heads=heads,
        queries=[[e.query] for e in batch],
        keys=[list(e.positive) for e in batch],
        want=("q", "k"),
        batch_size=BATCH,
    )
    run = batch[0].other_query is not None
    other = model.capture(
        [e.other or () for e in batch],
        heads=heads,
        queries=[[e.other_query if e.other_query is not None else 0] for e in batch],
        keys=[list(e.negative) for e in batch],
        want=("q", "k"),
        batch_size=BATCH,
    )
    counts = [(len(e.positive), len(e.negative)) for e in batch]
    plus = _means(own.k.double(), [(n, 0) for n, _ in counts], 0)
    minus = _means(other.k.double(), [(n, 0) for _, n in counts], 0)
    both = [torch.cat([a[:, :n], b[:, :m]], 1) for a, b, (n, m) in zip(own.k, other.k, counts, strict=True)]
    width = max(one.shape[1] for one in both)
    keys = torch.cat([_wide(one[None], width) for one in both]).cpu()
    other_q = other.q[:, :, 0].double() if run else None
    return Pairs(own.q[:, :, 0].double(), plus, minus, other_q, keys, torch.tensor(counts))


def _present(keys: Tensor, counts: Sequence[int]) -> Tensor:
    """Keys [n, h, K, d] with zeros where a prompt has fewer than K."""
    absent = torch.arange(keys.shape[2]) >= torch.tensor(counts)[:, None]
    return keys.cpu().masked_fill(absent[:, None, :, None], 0.0)


def _means(keys: Tensor, counts: Sequence[tuple[int, int]], side: int) -> Tensor:
    """Mean of the first ``counts[i][0]`` keys (side 0) or the next ``counts[i][1]`` (side 1) [n, h, d]."""
    weight = torch.zeros(len(counts), keys.shape[2], dtype=keys.dtype)
    for row, pair in enumerate(counts):
        start = 0 if side == 0 else pair[0]
        weight[row, start : start + pair[side]] = 1 / pair[side]
    return torch.einsum("nhcd,nc->nhd", keys, weight.to(keys.device))


def _tell(tick: Tick | None, count: int) -> None:
    if tick is not None:
        tick(count)


def collect_pairs(
    model: Model, examples: Sequence[Example], heads: Sequence[Head] | None = None, tick: Tick | None = None
) -> Pairs:
    """The pairs of all examples, in their order."""
    order: list[int] = []
    parts: list[Pairs] = []
    for indices, pairs in pair_batches(model, examples, heads, tick):
        order += indices
        parts.append(pairs)
    return Pairs.cat(parts).picked(torch.tensor(order).argsort())


@dataclass(frozen=True)
class PairsJob(ValueJob):
    """Collects the pairs of a contrast's prompts in some heads."""

    kind: ClassVar = Pairs
    heads: tuple[Head, ...]

    def make(self, model: Model, chunk: Chunk[Example], tick: Tick, /) -> Pairs:
        with steady():
            return collect_pairs(model, chunk.items, self.heads, tick)


def fit_heads(
    model: Model,
    examples: Sequence[Example],
    heads: Sequence[Head] | None = None,
    *,
    keep: Keep = "sums",
    tick: Tick | None = None,
    batch_size: int = BATCH,
) -> ContrastiveCovariance:
    """ΔC of many heads (None: all) in one pass; with ``keep="sums"`` memory does not grow with the prompts.

    The head axis follows ``heads``, or ``model.heads``. Prompts enter in the order of their lengths.
    """
    estimator = ContrastiveCovariance(keep=keep)
    for _, pairs in pair_batches(model, examples, heads, tick, batch_size):
        pairs.feed(estimator)
    if not estimator.n_prompts_:
        raise HeadwiseError("no prompts were given")
    return estimator
