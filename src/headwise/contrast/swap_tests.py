"""Every causal test of every feature, head and control, from one forward pass per test prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from headwise.contrast.collect import BATCH
from headwise.contrast.measured import ABLATIONS, SIDES, Measured, MeasuredFeature, Shard, pad_keys
from headwise.contrast.placebo import COVARIANCE, NAME, UNIFORM, covariance_subspaces
from headwise.contrast.subspaces import random_subspaces
from headwise.contrast.swaps import Edited, SwapRows, dose_response, edit_rows, swap_keys
from headwise.errors import HeadwiseError
from headwise.model.attend import soft_cap
from headwise.model.threads import steady
from headwise.progress import Tick
from headwise.randomness import keyed
from headwise.scale.stages import ValueJob
from headwise.scale.work import Chunk
from headwise.tasks.labelled.types import Example
from headwise.types import Head, Subspace

if TYPE_CHECKING:
    from headwise.model.model import Model

DOSES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Parts of a swap that are made, from nothing to all of it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Probe:
    """What is tested of one feature of one head, and what it is compared with."""

    head: Head
    name: str
    query: Subspace
    key: Subspace
    controls: Mapping[str, Subspace]
    """Other subspaces of keys to swap: principal components of the same rank, the mean difference."""
    placebo: Tensor
    """[draws, d_head, rank]: key subspaces fitted to shuffled labels."""
    root: Tensor
    """[d_head, …]: a square root of the keys' covariance."""
    draws: int
    seed: int

    def nulls(self) -> dict[str, Tensor]:
        """Bases of the same rank by the name of their null [draws, d_head, rank]; random ones are always the same."""
        d_head, rank = self.key.d_head, self.key.rank
        generator = keyed(self.seed, "random", str(self.head), self.name)
        follow = keyed(self.seed, COVARIANCE, str(self.head), self.name)
        return {
            NAME: self.placebo,
            COVARIANCE: covariance_subspaces(self.root, rank, self.draws, follow),
            UNIFORM: random_subspaces(d_head, rank, self.draws, generator=generator),
        }


def swap_positions(examples: Sequence[Example]) -> list[tuple[int, int]]:
    """Original and target key of every example."""
    for number, e in enumerate(examples):
        if e.swap is None:
            raise HeadwiseError(f"test prompt {number} names no keys to swap")
    return [e.swap for e in examples if e.swap is not None]


@dataclass(frozen=True, eq=False, kw_only=True)
class TestRows:
    """Captured rows of test prompts: q [n, h, d], all visible keys [n, h, T, d], visible [n, h, T], and the model's
    scale [h] and cap.
    """

    examples: Sequence[Example]
    heads: Sequence[Head]
    q: Tensor
    keys: Tensor
    visible: Tensor
    scale: Tensor
    cap: Sequence[float | None]

    def rows(self, head: int) -> SwapRows:
        """One head's rows for the swap functions."""
        original, target = torch.tensor(swap_positions(self.examples)).T
        return SwapRows.from_keys(
            self.q[:, head],
            self.keys[:, head],
            original,
            target,
            scale=float(self.scale[head]),
            cap=self.cap[head],
            mask=self.visible[:, head],
        )

    def key_attention(self, head: int) -> Tensor:
        """One head's attention on the labelled keys [n, K], in the order of their places; 0 where there are fewer."""
        scores = self.scale[head].double() * (self.keys[:, head] @ self.q[:, head, :, None])[..., 0]
        capped = soft_cap(scores, self.cap[head]).masked_fill(~self.visible[:, head], float("-inf"))
        pattern = capped.softmax(-1).cpu()
        found = torch.zeros(len(self.examples), max(len(e.keys) for e in self.examples), dtype=torch.float64)
        for row, seen, e in zip(found, pattern, self.examples, strict=True):
            row[: len(e.keys)] = seen[sorted(e.keys)]
        return found

    def vectors(self) -> tuple[Tensor, Tensor]:
        """Queries [h, n, d] and labelled keys [h, n, K, d] in float32, for pictures."""
        keys = [self.keys[i][:, list(e.keys)] for i, e in enumerate(self.examples)]
        return self.q.transpose(0, 1).float().contiguous(), pad_keys(keys).contiguous()

    def partner_queries(self, head: int, offset: int) -> Tensor | None:
        """The queries that ask for the targets [n, d], if every partner is in this batch."""
        places = [-1 if e.partner is None else e.partner - offset for e in self.examples]
        if not all(0 <= place < len(self.examples) for place in places):
            return None
        return self.q[places, head]


def capture_rows(
    model: Model, examples: Sequence[Example], heads: Sequence[Head], tick: Tick | None = None
) -> TestRows:
    """Run the test prompts once and keep the query row of every head."""
    seen = model.capture(
        [e.tokens[: e.query + 1] for e in examples],
        heads=heads,
        queries=-1,
        want=("q", "k"),
        batch_size=BATCH,
    )
    if not (torch.isfinite(seen.q).all() and torch.isfinite(seen.k).all()):
        raise HeadwiseError(
            "a query or key is NaN or infinite: the model's output cannot be used, use float32"
        )
    if tick is not None:
        tick(len(examples))
    return TestRows(
        examples=examples,
        heads=heads,
        q=seen.q[:, :, 0].double(),
        keys=seen.k.double(),
        visible=seen.visible[:, :, 0],
        scale=seen.scale,
        cap=seen.cap,
    )


def measure(
    rows: TestRows, probes: Mapping[Head, Sequence[Probe]], *, offset: int = 0
) -> dict[Head, Measured]:
    """Every edit of every probe. ``offset`` is the number of the first prompt, from which partners are counted."""
    found: dict[Head, Measured] = {}
    for place, head in enumerate(rows.heads):
        row = rows.rows(place)
        new_q = rows.partner_queries(place, offset)
        features = {probe.name: _measure_feature(row, probe, new_q) for probe in probes[head]}
        found[head] = Measured(
            row.clean().first(), swap_keys(row, None).first(), features, rows.key_attention(place)
        )
    return found


def _measure_feature(row: SwapRows, probe: Probe, new_q: Tensor | None) -> MeasuredFeature:
    u, v = probe.query.basis.double()[None], probe.key.basis.double()[None]
    sides: dict[str, Edited] = {}
    if new_q is not None:
        asked = edit_rows(row, query_bases=u, new_q=new_q)
        both = edit_rows(row, query_bases=u, key_bases=v, new_q=new_q)
        sides = dict(zip(SIDES, (asked.first(), both.first()), strict=True))
    without = edit_rows(row, key_bases=v, mode="ablate"), edit_rows(row, query_bases=u, mode="ablate")
    return MeasuredFeature(
        swap=swap_keys(row, v).first(),
        nulls={name: swap_keys(row, bases) for name, bases in probe.nulls().items()},
        dose=dose_response(row, v, torch.tensor(DOSES)).first(),
        controls={
            name: swap_keys(row, subspace.basis.double()[None]).first()
            for name, subspace in probe.controls.items()
        },
        ablations=dict(zip(ABLATIONS, (edited.first() for edited in without), strict=True)),
        sides=sides,
    )


@dataclass(frozen=True, eq=False)
class SwapJob(ValueJob):
    """Makes every edit of every probe on test prompts."""

    kind: ClassVar = Shard
    probes: Mapping[Head, Sequence[Probe]]
    shown: int
    """Test prompts whose vectors are kept for pictures, up to a whole chunk."""

    def make(self, model: Model, chunk: Chunk[Example], tick: Tick, /) -> Shard:
        with steady():
            rows = capture_rows(model, chunk.items, list(self.probes), tick)
            vectors = rows.vectors() if chunk.start < self.shown else None
            return Shard(measure(rows, self.probes, offset=chunk.start), vectors)
