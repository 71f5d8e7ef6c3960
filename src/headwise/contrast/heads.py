"""Which heads do the task? Every head of the model ranked in one pass over labelled prompts.

Three numbers per head: the share of prompts in which a positive key gets most of the attention among the keys (keys
that tie share it), the attention on positive over that on negative keys, and the attention on all keys. Beside the
score that ranks are its interval and the p-value of a permutation test (labels shuffled inside each prompt), corrected
over all heads. A head that hardly looks at the keys never does the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from headwise.claims import claims
from headwise.contrast.collect import BATCH
from headwise.errors import HeadwiseError
from headwise.intervals import estimated, numbered, weights_of
from headwise.model.threads import steady
from headwise.progress import Tick
from headwise.randomness import keyed
from headwise.scale.stages import Stages, ValueJob
from headwise.scale.work import Chunk, cut
from headwise.tasks.labelled.types import Contrast, Example, HeadRule
from headwise.types import Claim, Estimate, Head

if TYPE_CHECKING:
    from headwise.model.model import Model

ACCURACY = 0.3
"""A head that finds the right key in this share of prompts does the task."""
MASS = 0.05
"""A head that gives the keys less attention than this does not take part, whatever its ratio."""
NULL = "labels shuffled among the keys of each prompt"
GROUP = "all heads of the model"
MOST = 9
"""Heads chosen without being named, at most."""


_PLAIN = ("accuracy", "ratio", "mass")


@dataclass(frozen=True, kw_only=True)
class HeadScore:
    """One head's numbers on the task; ``score`` is the one that ranks."""

    head: Head
    score: Estimate
    claim: Claim
    """That it does the task: beyond chance, often enough, and with attention on the keys at all."""
    accuracy: float
    ratio: float
    mass: float
    rank: Estimate
    """Its place among all heads, 1 the best, equals sharing one; the interval is over prompts, as the score's."""

    def to_json(self) -> dict[str, Any]:
        over = {"n": self.score.n, "clusters": self.score.clusters}
        score = {"score": self.score.mean, "ci": self.score.ci, **over}
        score |= {"rank": int(self.rank.mean), "rank_ci": self.rank.ci}
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {"head": str(self.head), **score, **plain, **self.claim.to_json()}


def label_attention(model: Model, contrast: Contrast, tick: Tick | None = None) -> tuple[Tensor, Tensor]:
    """Attention [n, heads, keys] of every head from the query to each labelled key, and [n, keys] labels.

    Keys are in the order of their places. A label is 1 for a positive key, 0 for a negative one and −1 where a prompt
    has fewer keys.
    """
    examples = contrast.examples
    if any(e.other is not None for e in examples):
        raise HeadwiseError(
            f"contrast {contrast.name!r} has counterfactual prompts: scan heads on plain ones"
        )
    labels, keys = key_labels(examples), [sorted(e.keys) for e in examples]
    attention = torch.zeros(len(examples), len(model.heads), labels.shape[1])
    stream = model.stream_capture(
        [e.tokens for e in examples],
        queries=[[e.query] for e in examples],
        keys=keys,
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


def key_labels(examples: Sequence[Example]) -> Tensor:
    """[n, keys]: 1 for a positive key, 0 for a negative one, −1 where a prompt has fewer; in the order of places."""
    labels = torch.full((len(examples), max(len(e.keys) for e in examples)), -1, dtype=torch.long)
    for row, e in zip(labels, examples, strict=True):
        row[: len(e.keys)] = torch.tensor([int(key in e.positive) for key in sorted(e.keys)])
    return labels


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
    clusters: Tensor | None = None,
) -> list[HeadScore]:
    """Rank heads from their attention [n, heads, keys] and labels [n, keys], best first.

    Heads whose attention on the keys is below ``MASS`` come last, and never do the task: what they share out is
    nothing. ``clusters`` [n] are prompts that belong together: their labels are shuffled alike, and they are resampled
    as one.

    >>> attention = torch.tensor([[[0.8, 0.1], [0.1, 0.8]]]).repeat(30, 1, 1)
    >>> labels = torch.tensor([[1, 0]]).repeat(30, 1)
    >>> g = torch.Generator().manual_seed(0)
    >>> ranked = rank_heads([Head(0, 0), Head(0, 1)], attention, labels, rule="accuracy", generator=g)
    >>> [(r.head, r.score.mean, r.claim.supported) for r in ranked]
    [(L0H0, 1.0, True), (L0H1, 0.0, False)]
    """
    n = len(attention)
    which, count = numbered(clusters, n)
    found = KeyScores.of(attention, labels)
    earned = found.hit if rule == "accuracy" else attention
    p = _permuted(earned, labels, which, permutations, generator)

    weights = weights_of(which, n, bootstrap, generator).to(attention.dtype)
    right, on, total = (x.mean(0) for x in (found.right, found.on, found.total))
    ratio = _ratio(on, total)
    if rule == "accuracy":
        score, drawn = right, weights @ found.right
    else:
        score, drawn = ratio, _ratio(weights @ found.on, weights @ found.total)
    quiet = total < MASS
    place = places(score.masked_fill(quiet, -1.0)[None])[0]
    drawn_places = places(drawn.masked_fill(quiet, -1.0))
    does = ~quiet & ((right >= ACCURACY) if rule == "accuracy" else torch.ones_like(quiet))
    judged = claims(p.tolist(), null=NULL, draws=permutations, group=GROUP, fit=does.tolist())
    scores = [
        HeadScore(
            head=head,
            score=estimated(score[i], drawn[:, i].double(), n, count),
            claim=judged[i],
            accuracy=float(right[i]),
            ratio=float(ratio[i]),
            mass=float(total[i]),
            rank=estimated(place[i], drawn_places[:, i], n, count),
        )
        for i, head in enumerate(heads)
    ]
    silent = dict(zip(heads, quiet.tolist(), strict=True))
    return sorted(scores, key=lambda s: (silent[s.head], -s.score.mean, s.head))


@dataclass(frozen=True, eq=False)
class KeyScores:
    """What each head does on each prompt: right key, attention on positive and on all keys [n, heads]."""

    hit: Tensor
    """[n, heads, keys]: 1 for the key with the most attention; keys that tie share it."""
    right: Tensor
    on: Tensor
    total: Tensor

    @classmethod
    def of(cls, attention: Tensor, labels: Tensor) -> KeyScores:
        """From attention [n, heads, keys] and labels [n, keys]."""
        shown = attention.masked_fill((labels < 0)[:, None], -1)
        hit = (shown == shown.amax(-1, keepdim=True)).to(attention)
        hit = hit / hit.sum(-1, keepdim=True)
        positive, any_key = (labels == 1).to(attention), (labels >= 0).to(attention)
        right, on = (torch.einsum("nhk,nk->nh", x, positive) for x in (hit, attention))
        return cls(hit, right, on, torch.einsum("nhk,nk->nh", attention, any_key))


def score_again(
    attention: Tensor, labels: Tensor, rule: HeadRule, clusters: Tensor | None, seed: int
) -> list[Estimate]:
    """The score of each head on other prompts: the best of many is better by chance where it was chosen."""
    found, n = KeyScores.of(attention, labels), len(attention)
    which, count = numbered(clusters, n)
    weights = weights_of(which, n, 1000, keyed(seed, "score again")).to(attention.dtype)
    every = torch.full((1, n), 1 / n, dtype=weights.dtype)

    def score(of: Tensor) -> Tensor:
        return of @ found.right if rule == "accuracy" else _ratio(of @ found.on, of @ found.total)

    mean, drawn = score(every)[0], score(weights).double()
    return [estimated(mean[i], drawn[:, i], n, count) for i in range(attention.shape[1])]


def _ratio(on: Tensor, total: Tensor) -> Tensor:
    return on / (total - on).clamp_min(1e-9)


def _permuted(
    earned: Tensor, labels: Tensor, which: Tensor, permutations: int, generator: torch.Generator
) -> Tensor:
    """p per head: what positive keys earn [n, heads, keys], against labels shuffled among the keys of each prompt."""
    n, _, width = earned.shape
    # The sum is linear in the labels, so all permutations are one matrix product.
    flat = earned.permute(0, 2, 1).reshape(n * width, -1)
    statistic = (labels == 1).to(flat).reshape(1, -1) @ flat
    exceeded = torch.zeros(earned.shape[1], dtype=torch.float64)
    for start in range(0, permutations, 500):
        count = min(500, permutations - start)
        shuffled = shuffled_labels(labels, which, count, generator).to(flat)
        exceeded += (shuffled.reshape(count, -1) @ flat >= statistic * (1 - 1e-6)).sum(0)
    return (1 + exceeded) / (1 + permutations)


def places(scores: Tensor) -> Tensor:
    """Each score's place in its row [draws, heads], 1 for the best; equals share one.

    >>> places(torch.tensor([[0.2, 0.9, 0.2, 0.5]])).tolist()
    [[3.0, 1.0, 3.0, 2.0]]
    """
    ordered = scores.double().sort(-1).values
    better = scores.shape[-1] - torch.searchsorted(ordered, scores.double().contiguous(), right=True)
    return (1 + better).double()


def shuffled_labels(labels: Tensor, which: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Labels permuted among the keys of each prompt [count, n, keys], alike in prompts of one cluster.

    ``labels`` [n, keys] are in the order of the keys' places; those of absent keys, the last, stay absent.
    """
    clusters = int(which.max()) + 1
    draw = torch.rand(count, clusters, labels.shape[1], generator=generator)[:, which]
    order = draw.masked_fill((labels < 0)[None], 2.0).argsort(-1)
    return (labels == 1).expand(count, -1, -1).gather(-1, order)


def choose_heads(scores: Sequence[HeadScore], rule: HeadRule, most: int = MOST) -> list[Head]:
    """The heads that do the task: right in ≥ 30 % of prompts, or the best ratios, beyond chance and looking there."""
    fit = [s.head for s in scores if s.claim.supported]
    return fit[: most if rule == "accuracy" else min(most, 3)]
