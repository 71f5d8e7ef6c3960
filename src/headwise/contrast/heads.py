"""Which heads do the task? Every head of the model ranked in one pass over labelled prompts.

Three numbers per head: the share of prompts in which a positive key gets most of the attention among the keys,
the attention on positive over that on negative keys, and the attention on all keys. Beside the score that
ranks are its bootstrap interval and the p-value of a permutation test (labels shuffled inside each
prompt), corrected over all heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from headwise.contrast.collect import BATCH
from headwise.errors import HeadwiseError
from headwise.intervals import counted, estimated, picked
from headwise.model.threads import steady
from headwise.progress import Tick
from headwise.scale.stages import Stages, ValueJob
from headwise.scale.work import Chunk, cut
from headwise.tasks.labelled.types import Contrast, Example, HeadRule
from headwise.types import Estimate, Head

if TYPE_CHECKING:
    from headwise.model.model import Model

ACCURACY = 0.3
"""A head that finds the right key in this share of prompts does the task."""
MASS = 0.05
"""A head that gives the keys less attention than this does not take part, whatever its ratio."""
LEVEL = 0.05
"""The share of false heads among those chosen that is put up with (false discovery rate)."""
MOST = 9
"""Heads chosen without being named, at most."""


_PLAIN = ("p_value", "q_value", "accuracy", "ratio", "mass")


@dataclass(frozen=True, kw_only=True)
class HeadScore:
    """One head's numbers on the task; ``score`` is the one that ranks."""

    head: Head
    score: Estimate
    p_value: float
    q_value: float
    accuracy: float
    ratio: float
    mass: float
    rank: Estimate
    """Its place among all heads, 1 the best, equals sharing one; the interval is over prompts, as the score's."""

    def to_json(self) -> dict[str, Any]:
        score = {"score": self.score.mean, "ci": [self.score.low, self.score.high]}
        score |= {"rank": int(self.rank.mean), "rank_ci": [self.rank.low, self.rank.high]}
        return {"head": str(self.head), **score, **{name: getattr(self, name) for name in _PLAIN}}


def label_attention(model: Model, contrast: Contrast, tick: Tick | None = None) -> tuple[Tensor, Tensor]:
    """Attention [n, heads, keys] of every head from the query to each labelled key, and [n, keys] labels.

    A label is 1 for a positive key, 0 for a negative one and −1 where a prompt has fewer keys.
    """
    examples = contrast.examples
    if any(e.other is not None for e in examples):
        raise HeadwiseError(
            f"contrast {contrast.name!r} has counterfactual prompts: scan heads on plain ones"
        )
    widest = max(len(e.keys) for e in examples)
    attention = torch.zeros(len(examples), len(model.heads), widest)
    labels = torch.full((len(examples), widest), -1, dtype=torch.long)
    for i, e in enumerate(examples):
        labels[i, : len(e.positive)] = 1
        labels[i, len(e.positive) : len(e.keys)] = 0
    stream = model.stream_capture(
        [e.tokens for e in examples],
        queries=[[e.query] for e in examples],
        keys=[list(e.keys) for e in examples],
        want=("pattern",),
        batch_size=BATCH,
    )
    for indices, seen in stream:
        attention[indices, :, : seen.pattern.shape[-1]] = seen.pattern[:, :, 0].float().cpu()
        if tick is not None:
            tick(len(indices))
    if not torch.isfinite(attention).all():
        raise HeadwiseError(
            "the model's attention is NaN or infinite: its output cannot be used, try float32"
        )
    return attention, labels


@dataclass(frozen=True, eq=False)
class LabelAttention:
    """What :func:`label_attention` gives of some prompts."""

    attention: Tensor
    labels: Tensor

    def padded(self, width: int) -> LabelAttention:
        """With so many keys per prompt."""
        extra = width - self.labels.shape[1]
        labels = torch.nn.functional.pad(self.labels, (0, extra), value=-1)
        return LabelAttention(torch.nn.functional.pad(self.attention, (0, extra)), labels)

    @classmethod
    def cat(cls, parts: Sequence[LabelAttention]) -> LabelAttention:
        """Several groups of prompts, one after another."""
        even = [part.padded(max(one.labels.shape[1] for one in parts)) for part in parts]
        return cls(torch.cat([one.attention for one in even]), torch.cat([one.labels for one in even]))


@dataclass(frozen=True)
class ScanJob(ValueJob):
    """Measures the attention on the labelled keys of a contrast's prompts."""

    kind: ClassVar = LabelAttention
    contrast: str

    def make(self, model: Model, chunk: Chunk[Example], tick: Tick, /) -> LabelAttention:
        with steady():
            return LabelAttention(*label_attention(model, Contrast(self.contrast, chunk.items), tick))


def scanned(contrast: Contrast, size: int, work: Stages) -> LabelAttention:
    """The attention of every head on the keys of all prompts, ``size`` prompts at a time."""
    return LabelAttention.cat(work("finding heads", ScanJob(contrast.name), cut(contrast.examples, size)))


def rank_heads(
    heads: Sequence[Head],
    attention: Tensor,
    labels: Tensor,
    *,
    rule: HeadRule,
    generator: torch.Generator,
    permutations: int = 9999,
    bootstrap: int = 1000,
) -> list[HeadScore]:
    """Rank heads from their attention [n, heads, keys] and labels [n, keys], best first.

    By ``ratio``, heads whose attention on the keys is below ``MASS`` come last.

    >>> attention = torch.tensor([[[0.8, 0.1], [0.1, 0.8]]]).repeat(30, 1, 1)
    >>> labels = torch.tensor([[1, 0]]).repeat(30, 1)
    >>> g = torch.Generator().manual_seed(0)
    >>> ranked = rank_heads([Head(0, 0), Head(0, 1)], attention, labels, rule="accuracy", generator=g)
    >>> [(r.head, r.score.mean, r.q_value < 0.01) for r in ranked]
    [(L0H0, 1.0, True), (L0H1, 0.0, False)]
    """
    n, _, width = attention.shape
    positive = (labels == 1).to(attention)
    on = torch.einsum("nhk,nk->nh", attention, positive)
    total = torch.einsum("nhk,nk->nh", attention, (labels >= 0).to(attention))
    # What a positive key earns: being the argmax, or its attention. Both sums are linear in the labels, so
    # all permutations are one matrix product.
    best = attention.masked_fill((labels < 0)[:, None], -1).argmax(-1)
    hit = torch.nn.functional.one_hot(best, width).to(attention)
    right = torch.einsum("nhk,nk->nh", hit, positive)
    earned = hit if rule == "accuracy" else attention
    statistic = (right if rule == "accuracy" else on).sum(0).double()

    exceeded = torch.zeros(attention.shape[1])
    flat = earned.permute(0, 2, 1).reshape(n * width, -1)
    for start in range(0, permutations, 500):
        count = min(500, permutations - start)
        shuffled = _shuffled(labels, count, generator).to(flat)
        exceeded += (shuffled.reshape(count, -1) @ flat >= statistic.float() * (1 - 1e-6)).sum(0)
    p = ((1 + exceeded) / (1 + permutations)).double()
    q = benjamini_hochberg(p)

    weights = counted(picked(n, bootstrap, generator), attention.dtype) / n
    means = {name: x.mean(0) for name, x in (("right", right), ("on", on), ("total", total))}
    ratio = means["on"] / (means["total"] - means["on"]).clamp_min(1e-9)
    if rule == "accuracy":
        score, drawn = means["right"], weights @ right
    else:
        score, drawn = ratio, (weights @ on) / (weights @ (total - on)).clamp_min(1e-9)
    quiet = means["total"] < MASS if rule == "ratio" else torch.zeros(len(heads), dtype=torch.bool)
    place = places(score.masked_fill(quiet, -1.0)[None])[0]
    drawn_places = places(drawn.masked_fill(quiet, -1.0))
    found = [
        HeadScore(
            head=head,
            score=estimated(score[i], drawn[:, i].double(), n),
            p_value=float(p[i]),
            q_value=float(q[i]),
            accuracy=float(means["right"][i]),
            ratio=float(ratio[i]),
            mass=float(means["total"][i]),
            rank=estimated(place[i], drawn_places[:, i], n),
        )
        for i, head in enumerate(heads)
    ]
    silent = dict(zip(heads, quiet.tolist(), strict=True))
    return sorted(found, key=lambda s: (silent[s.head], -s.score.mean, s.head))


def places(scores: Tensor) -> Tensor:
    """Each score's place in its row [draws, heads], 1 for the best; equals share one.

    >>> places(torch.tensor([[0.2, 0.9, 0.2, 0.5]])).tolist()
    [[3.0, 1.0, 3.0, 2.0]]
    """
    ordered = scores.double().sort(-1).values
    better = scores.shape[-1] - torch.searchsorted(ordered, scores.double().contiguous(), right=True)
    return (1 + better).double()


def _shuffled(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Labels permuted among the keys of each prompt [count, n, keys], absent keys staying absent."""
    draw = torch.rand(count, *labels.shape, generator=generator)
    draw = draw.masked_fill((labels < 0)[None], 2.0)
    # Ranks below the number of positive keys are the new positive ones.
    return draw.argsort(-1).argsort(-1) < (labels == 1).sum(-1)[None, :, None]


def benjamini_hochberg(p: Tensor) -> Tensor:
    """Adjusted p-values (false discovery rate).

    >>> [round(q, 3) for q in benjamini_hochberg(torch.tensor([0.01, 0.04, 0.03, 0.8])).tolist()]
    [0.04, 0.053, 0.053, 0.8]
    """
    order = p.argsort()
    scaled = p[order] * len(p) / torch.arange(1, len(p) + 1, dtype=p.dtype)
    adjusted = torch.cummin(scaled.flip(0), 0).values.flip(0).clamp_max(1)
    return torch.empty_like(p).index_copy_(0, order, adjusted)


def choose_heads(scores: Sequence[HeadScore], rule: HeadRule, most: int = MOST) -> list[Head]:
    """The heads that do the task: right in ≥ 30 % of prompts, or the best ratios, beyond chance."""
    fit = [s for s in scores if s.q_value <= LEVEL]
    if rule == "accuracy":
        fit = [s for s in fit if s.score.mean >= ACCURACY]
    else:
        fit = [s for s in fit if s.mass >= MASS][: min(most, 3)]
    return [s.head for s in fit[:most]]
