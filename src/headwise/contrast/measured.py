"""What the test prompts give: the attention of every edit of every feature, and vectors for pictures.

Both are measured shard by shard and joined along the prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.contrast.swaps import Edited
from headwise.tasks.labelled.types import Example
from headwise.types import Head

ABLATIONS = ("ablate keys", "ablate query")
SIDES = ("query", "both sides")
"""Edits that need a query that asks for the target."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredFeature:
    """Every edit of one feature of one head, per prompt [n]; draws of nulls [draws, n] and doses [doses, n]."""

    swap: Edited
    nulls: Mapping[str, Edited]
    """Swaps of subspaces that mean nothing, by the name of their null."""
    dose: Edited
    controls: Mapping[str, Edited]
    """Swaps of other subspaces of the same keys."""
    ablations: Mapping[str, Edited]
    sides: Mapping[str, Edited]
    """Edits of the query, alone and with the keys; none where some prompt has no partner."""

    @property
    def conditions(self) -> dict[str, Edited]:
        """Every single edit by name, in the order in which tables list them."""
        return {"swap": self.swap, **self.controls, **self.ablations, **self.sides}

    def of(self, prompts: Tensor) -> MeasuredFeature:
        """The same on some of the prompts."""

        def some(edits: Mapping[str, Edited]) -> dict[str, Edited]:
            return {name: edited.of(prompts) for name, edited in edits.items()}

        return MeasuredFeature(
            swap=self.swap.of(prompts),
            nulls=some(self.nulls),
            dose=self.dose.of(prompts),
            controls=some(self.controls),
            ablations=some(self.ablations),
            sides=some(self.sides),
        )


@dataclass(frozen=True, eq=False)
class Measured:
    """One head on the test prompts: as it is, with whole keys swapped, and with every edit of every feature."""

    none: Edited
    full: Edited
    features: Mapping[str, MeasuredFeature]
    keys: Tensor
    """[n, K]: attention on the labelled keys as it is, in the order of their places."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """Queries [h, n, d] and labelled keys [h, n, K, d] of some test prompts, for pictures, and their labels.

    ``query`` and ``keys``: group → labels of these vectors, one per prompt and one per key; ``colours``: feature →
    the group that its picture is coloured by.
    """

    q: Tensor
    """[heads, prompts, d_head]: queries."""
    k: Tensor
    """[heads, prompts, keys, d_head]: labelled keys."""
    query: Mapping[str, Sequence[str]]
    """Group → the label of each prompt's query."""
    keys: Mapping[str, Sequence[Sequence[str]]]
    """Group → the labels of each prompt's keys."""
    colours: Mapping[str, str]
    """Feature → the group that its picture is coloured by."""

    @classmethod
    def of(cls, shards: Sequence[Shard], examples: Sequence[Example], colours: Mapping[str, str]) -> Gallery:
        """The vectors that the first shards carry, with the labels of their prompts."""
        shown = [shard.vectors for shard in shards if shard.vectors is not None]
        q = torch.cat([q for q, _ in shown], 1)
        k = pad_keys([one for _, k in shown for one in k.unbind(1)])
        examples = examples[: q.shape[1]]
        groups = sorted({g for e in examples for g in e.groups})
        key_groups = sorted({g for e in examples for g in e.key_groups})
        return cls(
            q,
            k,
            query={g: [e.groups.get(g, "") for e in examples] for g in groups},
            keys={g: [list(e.key_groups.get(g, ())) for e in examples] for g in key_groups},
            colours=dict(colours),
        )

    def of_heads(self, places: Sequence[int]) -> Gallery:
        """The vectors of some of the heads."""
        return replace(self, q=self.q[list(places)], k=self.k[list(places)])

    @property
    def labels(self) -> dict[str, Any]:
        """What is written beside the vectors."""
        return {"query": self.query, "keys": self.keys, "colours": self.colours}


@dataclass(frozen=True, eq=False)
class Shard:
    """Some test prompts: what was measured on them, and their vectors (q, k) if they are to be shown."""

    measured: Mapping[Head, Measured]
    vectors: tuple[Tensor, Tensor] | None = None


def join(shards: Sequence[Shard]) -> dict[Head, Measured]:
    """The shards one after another along the prompts; an edit that some shard lacks is left out."""
    return {head: _joined([shard.measured[head] for shard in shards]) for head in shards[0].measured}


def _joined(parts: Sequence[Measured]) -> Measured:
    features = {
        name: MeasuredFeature(
            swap=Edited.cat([part.features[name].swap for part in parts]),
            nulls=_common([part.features[name].nulls for part in parts]),
            dose=Edited.cat([part.features[name].dose for part in parts]),
            controls=_common([part.features[name].controls for part in parts]),
            ablations=_common([part.features[name].ablations for part in parts]),
            sides=_common([part.features[name].sides for part in parts]),
        )
        for name in parts[0].features
    }
    none, full = Edited.cat([part.none for part in parts]), Edited.cat([part.full for part in parts])
    width = max(part.keys.shape[1] for part in parts)
    keys = [torch.nn.functional.pad(part.keys, (0, width - part.keys.shape[1])) for part in parts]
    return Measured(none, full, features, torch.cat(keys))


def _common(parts: Sequence[Mapping[str, Edited]]) -> dict[str, Edited]:
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: Edited.cat([part[name] for part in parts]) for name in names}


def pad_keys(keys: Sequence[Tensor]) -> Tensor:
    """Keys [h, K_i, d] of several prompts as float32 [h, n, K, d], zero where a prompt has fewer."""
    width = max(k.shape[1] for k in keys)
    out = keys[0].new_zeros(keys[0].shape[0], len(keys), width, keys[0].shape[2])
    for i, k in enumerate(keys):
        out[:, i, : k.shape[1]] = k
    return out.to(torch.float32)
