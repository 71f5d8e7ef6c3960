"""Every causal test of every feature, head and control, from one forward pass a test prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.contrast.collect import BATCH, Tick
from headwise.contrast.swaps import Edited, Rows, dose_response, edit_rows, swap_keys
from headwise.errors import HeadwiseError
from headwise.tasks.labelled.types import Example
from headwise.types import Head, Subspace

if TYPE_CHECKING:
    from headwise.model.model import Model

DOSES = (0.0, 0.25, 0.5, 0.75, 1.0)
SIDES = ("query", "both sides")
"""Conditions that need a query that asks for the target."""


@dataclass(frozen=True, eq=False)
class Probe:
    """What is tested of one feature of one head, and what it is compared with."""

    name: str
    query: Subspace
    key: Subspace
    random: Tensor
    """Random bases of the same rank [draws, d_head, rank]."""
    controls: Mapping[str, Subspace]
    """Other subspaces of keys to swap: principal components of the same rank, the mean difference."""


def swap_positions(examples: Sequence[Example]) -> list[tuple[int, int]]:
    """Original and target key of every example."""
    for number, e in enumerate(examples):
        if e.swap is None:
            raise HeadwiseError(f"test prompt {number} names no keys to swap")
    return [e.swap for e in examples if e.swap is not None]


@dataclass(frozen=True, eq=False)
class TestRows:
    """Captured rows of test prompts: q [n, h, d], all visible keys [n, h, T, d], visible [n, h, T], and the
    model's scale [h] and cap.
    """

    examples: Sequence[Example]
    heads: Sequence[Head]
    q: Tensor
    keys: Tensor
    visible: Tensor
    scale: Tensor
    cap: Sequence[float | None]

    def rows(self, head: int) -> Rows:
        """One head's rows for the swap functions."""
        original, target = torch.tensor(swap_positions(self.examples)).T
        return Rows.from_keys(
            self.q[:, head],
            self.keys[:, head],
            original,
            target,
            scale=float(self.scale[head]),
            cap=self.cap[head],
            mask=self.visible[:, head],
        )

    def partner_queries(self, head: int, offset: int) -> Tensor | None:
        """The queries that ask for the targets [n, d], if every partner stands in this batch."""
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
    assert seen.q is not None
    assert seen.k is not None
    if not (torch.isfinite(seen.q).all() and torch.isfinite(seen.k).all()):
        raise HeadwiseError(
            "a query or key is NaN or infinite: the model's output cannot be used, use float32"
        )
    if tick is not None:
        tick(len(examples))
    q, keys = seen.q[:, :, 0].double(), seen.k.double()
    return TestRows(examples, heads, q, keys, seen.visible[:, :, 0], seen.scale, seen.cap)


def measure(rows: TestRows, probes: Mapping[Head, Sequence[Probe]], *, offset: int = 0) -> dict[str, Tensor]:
    """All conditions of all probes: name → [3, n] (original, target, change of log-odds), or [S, 3, n] for
    random draws and doses. Names are ``head|none``, ``head|full`` and ``head|feature|condition``.
    """
    found: dict[str, Tensor] = {}
    for place, head in enumerate(rows.heads):
        row = rows.rows(place)
        new_q = rows.partner_queries(place, offset)
        found[f"{head}|none"] = _one(row.clean())
        found[f"{head}|full"] = _one(swap_keys(row, None))
        for probe in probes[head]:
            name = f"{head}|{probe.name}"
            u, v = probe.query.basis.double()[None], probe.key.basis.double()[None]
            found[f"{name}|swap"] = _one(swap_keys(row, v))
            found[f"{name}|random"] = _many(swap_keys(row, probe.random))
            found[f"{name}|dose"] = torch.stack([_one(_dose(row, v, d)) for d in DOSES])
            for control, subspace in probe.controls.items():
                found[f"{name}|{control}"] = _one(swap_keys(row, subspace.basis.double()[None]))
            found[f"{name}|ablate keys"] = _one(edit_rows(row, key_bases=v, mode="ablate"))
            found[f"{name}|ablate query"] = _one(edit_rows(row, query_bases=u, mode="ablate"))
            if new_q is not None:
                found[f"{name}|query"] = _one(edit_rows(row, query_bases=u, new_q=new_q))
                found[f"{name}|both sides"] = _one(edit_rows(row, query_bases=u, key_bases=v, new_q=new_q))
    return found


def _dose(row: Rows, basis: Tensor, dose: float) -> Edited:
    run = dose_response(row, basis, torch.tensor([dose]))
    return Edited(run.original[0], run.target[0], run.log_odds[0])


def _one(edited: Edited) -> Tensor:
    return torch.stack([x.reshape(-1) for x in (edited.original, edited.target, edited.log_odds)])


def _many(edited: Edited) -> Tensor:
    return torch.stack([edited.original, edited.target, edited.log_odds], 1)


def as_edited(values: Tensor) -> Edited:
    """Back from [..., 3, n]."""
    values = values.double()
    return Edited(values[..., 0, :], values[..., 1, :], values[..., 2, :])


def join(shards: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The shards' conditions, one after another along the prompts; those that some shard lacks are left
    out.
    """
    names = [name for name in shards[0] if all(name in shard for shard in shards)]
    return {name: torch.cat([shard[name] for shard in shards], -1) for name in names}
