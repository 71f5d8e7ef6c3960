"""Which tokens are sinks, and which heads park their attention on them.

A token is a *sink* of its prompt if the tokens from ``AWAY`` positions on give it, averaged over them and over every
head of the model, at least the threshold. Nothing is assumed about where it stands. That is a definition, and claims
nothing. A head is *parked* if, from the same rows, it gives the sinks of a prompt at least ``PARKED`` of its attention,
averaged over prompts: these heads are looked at. That it *parks* is a claim: it gives them more than that in most
prompts (an exact sign test, whatever the distribution). With a half, this is more than all other tokens together get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from headwise.bases.singular import one_thread
from headwise.claims import claims
from headwise.errors import HeadwiseError
from headwise.intervals import mean_interval
from headwise.model.attend import AttentionCall
from headwise.model.batch import Batch, by_length
from headwise.model.forward import Instruments, forward
from headwise.progress import Tick
from headwise.scale.stages import Stages, ValuesJob, batched
from headwise.scale.work import Chunk
from headwise.tokens import shown
from headwise.types import Claim, Head

if TYPE_CHECKING:
    from headwise.model.model import Model

THRESHOLD = 0.3
PARKED = 0.5
PARKS = "as many prompts with less attention on sinks as with more (sign test)"
HEADS = "all heads of the model"
AWAY = 4
"""How many positions later a row must stand to count: nearby rows see few keys and give each much."""
MIN_ROWS = 4
"""How many such rows a token needs before its mean says anything."""
BATCH, MAX_TOKENS = 64, 1024
"""Prompts and tokens that are measured together."""


@dataclass(frozen=True)
class SinkToken:
    """A place and a token that were sinks: in how many prompts, and the attention received there."""

    position: int
    """Where it is in the prompt."""
    token: str
    """The token as text."""
    prompts: int
    """In how many prompts it is a sink."""
    share: float
    """Of the prompts that have a sink."""
    attention: float
    """Mean attention that it receives there."""


@dataclass(frozen=True, eq=False)
class Parking:
    """What every prompt's sinks are, and what every head gives them."""

    token_ids: list[list[int]]
    """Per prompt, its token ids."""
    sinks: list[tuple[int, ...]]
    """Per prompt, the positions of its sinks."""
    received: list[Tensor]
    """Per prompt, the mean attention each token receives over heads and rows away from it; NaN with too few rows."""
    attention: Tensor
    """[prompts, layers, heads]: mean attention on the prompt's sinks; NaN where there are none."""
    clusters: tuple[int, ...] = ()
    """Per prompt, the number of the cluster it belongs to; empty where each stands for itself."""

    @property
    def with_sinks(self) -> list[int]:
        """Prompts that have a sink, by number."""
        return [i for i, found in enumerate(self.sinks) if found]

    def some(self, prompts: Sequence[int]) -> Parking:
        """Some of the prompts alone."""
        chosen = list(prompts)
        return Parking(
            [self.token_ids[i] for i in chosen],
            [self.sinks[i] for i in chosen],
            [self.received[i] for i in chosen],
            self.attention[chosen],
            tuple(self.clusters[i] for i in chosen) if self.clusters else (),
        )

    def cluster_of(self, prompts: Sequence[int]) -> Tensor:
        """The cluster of some prompts: of one wording, or each its own."""
        return torch.tensor([self.clusters[i] if self.clusters else i for i in prompts], dtype=torch.long)

    def tokens(self, model: Model) -> list[SinkToken]:
        """Sinks by place and token, most frequent first."""
        count: Counter[tuple[int, str]] = Counter()
        total: Counter[tuple[int, str]] = Counter()
        for ids, found, received in zip(self.token_ids, self.sinks, self.received, strict=True):
            tokens = shown(model.tokenizer, ids)
            for s in found:
                name = (s, tokens[s])
                count[name] += 1
                total[name] += float(received[s])  # pyright: ignore[reportArgumentType]
        n = max(1, len(self.with_sinks))
        order = sorted(count, key=lambda name: (-count[name], name))
        return [SinkToken(*name, count[name], count[name] / n, total[name] / count[name]) for name in order]

    def heads(self, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Mean attention on sinks with its interval over clusters of prompts, [layers, heads] each."""
        here = self.with_sinks
        mean, low, high = mean_interval(self.attention[here], seed, "parking", clusters=self.cluster_of(here))
        return mean, low.clamp_min(0), torch.minimum(high, mean.clamp_min(1))

    def parks(self, parked: float) -> dict[Head, Claim]:
        """That a head gives sinks more than ``parked`` of its attention, on average and in most prompts (of a cluster,
        on average over its prompts); all heads corrected together."""
        from scipy.special import bdtrc

        given = self.attention[self.with_sinks]  # NaN where a head sees no sink
        which = self.cluster_of(self.with_sinks)
        each = torch.stack([given[which == one].nanmean(0) for one in which.unique()])
        above, seen = (each > parked).sum(0), (~each.isnan()).sum(0)
        # P(at least so many of n fair coins)
        p = np.where(above > 0, bdtrc(above.numpy() - 1.0, np.maximum(seen.numpy(), 1), 0.5), 1.0)
        fit = given.nanmean(0) >= parked
        null = PARKS.replace("prompts", "clusters of prompts") if self.clusters else PARKS
        made = claims(p.flatten().tolist(), null=null, draws=0, group=HEADS, fit=fit.flatten().tolist())
        return {Head(i // p.shape[1], i % p.shape[1]): one for i, one in enumerate(made)}


def find_parking(
    model: Model,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    *,
    threshold: float = THRESHOLD,
    clusters: Sequence[int] = (),
    work: Stages | None = None,
) -> Parking:
    """Measure sinks and parking in forward passes of all prompts; ``clusters`` are the numbers of those they share."""
    check_threshold(threshold)
    token_ids = model.token_ids(list(prompts))
    batches = list(by_length(token_ids, BATCH, MAX_TOKENS))
    run = work or Stages.here(model)
    parts = run(
        "attention", _MeasureJob(threshold), batched([[token_ids[i] for i in batch] for batch in batches])
    )
    found: dict[int, _Received] = {}
    for batch, part in zip(batches, parts, strict=True):
        found |= zip(batch, part, strict=True)
    ordered = [found[i] for i in range(len(token_ids))]
    attention = torch.stack([one.attention for one in ordered]).view(-1, model.n_layers, model.n_heads)
    sinks, received = [one.sinks for one in ordered], [one.received for one in ordered]
    return Parking(token_ids, sinks, received, attention, tuple(clusters))


def check_threshold(threshold: float) -> None:
    if not 0 < threshold < 1:
        raise HeadwiseError(f"threshold={threshold} is not an attention: give a number between 0 and 1")


@dataclass(frozen=True, eq=False)
class _Received:
    """One prompt's sinks, what every token receives, and what every head gives the sinks."""

    sinks: tuple[int, ...]
    received: Tensor
    attention: Tensor


@dataclass(frozen=True)
class _MeasureJob(ValuesJob):
    """Measures a batch of prompts, given as token ids."""

    kind: ClassVar = _Received
    threshold: float

    def make(self, model: Model, chunk: Chunk[list[int]], tick: Tick, /) -> list[_Received]:
        batch = Batch.of([list(ids) for ids in chunk.items])
        with one_thread():
            tally = Tally(model, batch)
            forward(model, batch, Instruments(observe=tally.add, stop_at=model.n_layers - 1))
        made = []
        for place in range(len(chunk)):
            received = tally.received(place)
            sinks = tuple(
                s for s, value in enumerate(received.tolist()) if value == value and value >= self.threshold
            )
            made.append(_Received(sinks, received, tally.on_sinks(place, sinks)))
        return made


class Tally:
    """What every head gives every token of a batch from the rows away from it, added up some rows at a time: patterns
    would be the square of a long prompt. n prompts, L layers, H heads of a layer, T columns."""

    def __init__(self, model: Model, batch: Batch) -> None:
        n, columns = batch.ids.shape
        self.batch = batch
        self.attention = torch.zeros(n, model.n_layers, model.n_heads, columns)
        """[n, L, H, T]: Σ of attention over rows."""
        self.rows = torch.zeros(n, model.n_layers, columns)
        """[n, L, T]: how many rows away see the token."""
        self._calls: list[AttentionCall] = []

    def add(self, call: AttentionCall) -> None:
        """All heads of a layer."""
        self._calls.append(call.blind())
        real = torch.arange(self.rows.shape[-1]) < self.batch.lengths[:, None]  # right padding
        for rows, pattern, visible in call.in_rows():
            far = away(range(rows.start, rows.stop), range(visible.shape[-1]))
            cells = visible & far.to(visible.device)
            cells &= real[:, rows, None].to(visible.device)
            self.attention[:, call.layer] += (pattern * cells[:, None]).sum(2).float().cpu()
            self.rows[:, call.layer] += cells.sum(1).cpu()

    def received(self, prompt: int) -> Tensor:
        """Mean attention each token receives, over heads and rows [tokens]; NaN with too few rows."""
        t = int(self.batch.lengths[prompt])
        attention, rows = self.attention[prompt, ..., :t], self.rows[prompt, :, :t]
        mean = attention.sum((0, 1)) / (rows.sum(0) * attention.shape[1])
        # A layer's mask is causal, or a window of it: the widest sees what any sees.
        return mean.masked_fill(rows.amax(0) < MIN_ROWS, float("nan")).double()

    def on_sinks(self, prompt: int, sinks: Sequence[int]) -> Tensor:
        """Attention each head gives the sinks, over the rows away from them [heads of all layers]; NaN if it sees
        none."""
        t, chosen = int(self.batch.lengths[prompt]), torch.tensor(sinks, dtype=torch.long)
        given = self.attention[prompt][..., chosen].sum(-1)
        far = away(range(t), sinks).mT
        rows = torch.stack(
            [(call.of_prompt(prompt).readers(chosen).cpu()[:, :t] & far).any(0).sum() for call in self._calls]
        )
        return (given / rows[:, None]).flatten().double()


def away(rows: range, keys: Iterable[int]) -> Tensor:
    """Which keys are ``AWAY`` positions or more before some rows: [rows, keys]."""
    return torch.tensor(rows, dtype=torch.long)[:, None] - torch.tensor([*keys], dtype=torch.long) >= AWAY


def tokens_received(pattern: Tensor, visible: Tensor) -> Tensor:
    """Mean attention each token receives, over heads and rows away from it [tokens]; NaN with too few rows.

    >>> pattern = torch.zeros(1, 9, 9); pattern[:, :, 0] = 1.0
    >>> tokens_received(pattern, torch.ones(9, 9).tril().bool()[None]).tolist()
    [1.0, 0.0, nan, nan, nan, nan, nan, nan, nan]
    """
    every = range(visible.shape[-1])
    cells = visible & away(every, every).to(visible.device)
    rows = cells.any(0).sum(0)
    mean = (pattern * cells).sum((0, 1)) / cells.sum((0, 1))
    return mean.masked_fill(rows < MIN_ROWS, float("nan")).double()


def on_sinks(pattern: Tensor, visible: Tensor, sinks: Sequence[int]) -> Tensor:
    """Attention each head gives the sinks, over the rows away from them [heads]; NaN if a head sees none."""
    chosen = list(sinks)
    return on_columns(pattern[..., chosen], visible[..., chosen], sinks)


def on_columns(pattern: Tensor, visible: Tensor, sinks: Sequence[int]) -> Tensor:
    """The same from the sinks' columns alone: [heads, rows, sinks]."""
    cells = visible & away(range(visible.shape[1]), sinks).to(visible.device)
    given = (pattern * cells).sum(-1)
    return (given.sum(1) / cells.any(-1).sum(1)).double()


def parked_heads(attention: Tensor, parked: float) -> list[Head]:
    """Heads whose mean attention on sinks [layers, heads] reaches ``parked``."""
    return [Head(*place) for place in (attention >= parked).nonzero().tolist()]
