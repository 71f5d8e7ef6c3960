"""From pairs to features: ranks, subspaces, unions, their geometry and how the rank grows with the design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.contrast.bank import BankFeature
from headwise.contrast.collect import Pairs
from headwise.contrast.covariance import ContrastiveCovariance
from headwise.contrast.rank import RankReport, energy_rank, rank_reports
from headwise.contrast.subspaces import (
    feature,
    mean_difference,
    principal_angles,
    principal_components,
    random_subspaces,
    superposition_index,
    union,
)
from headwise.contrast.swap_tests import Probe
from headwise.randomness import keyed
from headwise.tasks.labelled.types import Contrast, Task
from headwise.types import Head, Subspace

Record = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Fitted:
    """One contrast fitted in several heads: a rank report and a feature a head, and the keys' covariance."""

    contrast: Contrast
    heads: tuple[Head, ...]
    covariance: ContrastiveCovariance
    reports: tuple[RankReport, ...]
    features: tuple[BankFeature, ...]
    keys: Tensor
    """Means of positive and negative keys [2n, h, d_head], for principal components."""


def fit_contrast(
    contrast: Contrast,
    heads: Sequence[Head],
    pairs: Pairs,
    *,
    seed: int,
    energy: float,
    max_rank: int,
    draws: int = 200,
) -> Fitted:
    """Ranks and subspaces of one contrast. The subspace has the largest of the energy and null
    ranks, from 1 to ``max_rank``.
    """
    covariance = pairs.feed(ContrastiveCovariance())
    generator = keyed(seed, "rank", contrast.name)
    reports = rank_reports(
        covariance,
        generator=generator,
        energy=energy,
        draws=draws,
        distinct=contrast.distinct,
        interaction=True,
    )
    delta = covariance.delta_c_
    features = []
    for place, (head, report) in enumerate(zip(heads, reports, strict=True)):
        # The published rule hides weak directions that are real: the subspace has room for those too, up to
        # the number of query values that the design holds.
        wanted = max(report.rank_energy, report.rank_null, report.rank_interaction or 0, 1)
        found = feature(delta[place], min(wanted, report.bound, max_rank), contrast.name)
        features.append(
            BankFeature(
                contrast.name, head, found.query, found.key, found.sigma, report.rank_energy, report.rank_null
            )
        )
    keys = torch.cat([pairs.plus, pairs.minus])
    return Fitted(contrast, tuple(heads), covariance, tuple(reports), tuple(features), keys)


def unite(task: Task, fitted: Mapping[str, Fitted], head: Head, place: int) -> list[BankFeature]:
    """The task's joint features of one head. A part without any direction above its null adds no
    rank_null.
    """
    made = []
    for name, parts in task.unions.items():
        members = [fitted[part].features[place] for part in parts]
        real = [m for m in members if m.rank_null]
        key = union([m.key for m in members])
        made.append(
            BankFeature(
                name,
                head,
                union([m.query for m in members]),
                key,
                torch.cat([m.sigma for m in members]),
                key.rank,
                union([Subspace(m.key.basis[:, : m.rank_null]) for m in real]).rank if real else 0,
                tuple(parts),
            )
        )
    return made


def probe(item: BankFeature, fitted: Mapping[str, Fitted], place: int, *, seed: int, draws: int) -> Probe:
    """A feature with its controls: random subspaces, principal components of the keys, the mean
    difference.
    """
    of = [fitted[part] for part in (item.parts or (item.name,))]
    keys = torch.cat([f.keys[:, place] for f in of])
    generator = keyed(seed, "random", str(item.head), item.name)
    controls = {"principal components": principal_components(keys, item.rank)}
    means = [mean_difference(f.covariance, place) for f in of]
    means = [m for m in means if m.rank]
    if means:
        controls["mean difference"] = union(means)
    random = random_subspaces(item.key.d_head, item.rank, draws, generator=generator)
    return Probe(item.name, item.query, item.key, random, controls)


def spectrum_records(fitted: Fitted) -> list[Record]:
    """Singular values with their interval and null, one row a value."""
    rows = []
    for head, report in zip(fitted.heads, fitted.reports, strict=True):
        for j in range(report.singular_values.shape[0]):
            rows.append(
                {
                    "head": str(head),
                    "name": fitted.contrast.name,
                    "index": j + 1,
                    "sigma": float(report.singular_values[j]),
                    "low": float(report.sigma_interval[j, 0]),
                    "high": float(report.sigma_interval[j, 1]),
                    "null": float(report.null_sigma[j]),
                }
            )
    return rows


def angle_records(
    head: Head, features: Sequence[BankFeature], fitted: Mapping[str, Fitted], place: int
) -> list[Record]:
    """Principal angles between the head's features on both sides, and between random halves of each."""
    rows: list[Record] = []

    def add(first: str, second: str, side: str, degrees: Tensor) -> None:
        for j, value in enumerate(degrees.tolist()):
            rows.append(
                {
                    "head": str(head),
                    "first": first,
                    "second": second,
                    "side": side,
                    "index": j + 1,
                    "degrees": value,
                }
            )

    single = [f for f in features if not f.parts]
    for i, a in enumerate(single):
        for b in single[i + 1 :]:
            add(a.name, b.name, "query", principal_angles(a.query, b.query))
            add(a.name, b.name, "key", principal_angles(a.key, b.key))
        report = fitted[a.name].reports[place]
        for side, cosines in (("query", report.split_half_query), ("key", report.split_half_key)):
            add(a.name, "its other half", side, torch.rad2deg(torch.acos(cosines.clamp(-1, 1))))
    return rows


def superposition(features: Sequence[BankFeature]) -> float | None:
    """How far the head's fitted key subspaces share dimensions; None for a single feature."""
    single = [f.key for f in features if not f.parts]
    return superposition_index(single) if len(single) > 1 else None


def growth_records(fitted: Fitted, *, seed: int, energy: float) -> list[Record]:
    """The energy rank against the number of distinct query values used (Figure 16), without another pass."""
    contrast = fitted.contrast
    if contrast.varies is None:
        return []
    values = contrast.values(contrast.varies)
    label = [values.index(e.groups[contrast.varies]) for e in contrast.examples]
    shuffled = torch.randperm(len(values), generator=keyed(seed, "growth", contrast.name))
    steps = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64)
    counts, weights = [], []
    for k in [*(k for k in steps if k < len(values)), len(values)]:
        chosen = torch.isin(torch.tensor(label), shuffled[:k]).double()
        if chosen.sum() >= 4:
            counts.append((k, int(chosen.sum())))
            weights.append(chosen / chosen.sum())
    if not weights:
        return []
    sigma = torch.linalg.svdvals(fitted.covariance.weighted(torch.stack(weights)))
    ranks = energy_rank(sigma, energy)
    return [
        {"head": str(head), "name": contrast.name, "varies": contrast.varies, "values": k, "prompts": n,
         "rank_energy": int(ranks[i, place])}
        for i, (k, n) in enumerate(counts)
        for place, head in enumerate(fitted.heads)
    ]  # fmt: skip
