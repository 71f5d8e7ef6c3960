"""From pairs to features: ranks, subspaces, unions, their geometry and how the rank grows with the design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.contrast.bank import BankFeature, FeatureBank
from headwise.contrast.collect import Pairs
from headwise.contrast.covariance import ContrastiveCovariance
from headwise.contrast.placebo import Placebos, RankCurve, covariance_root, placebo_union, rank_curves
from headwise.contrast.rank import RankReport, energy_rank, rank_reports
from headwise.contrast.rows import AngleRow, CurveRow, GrowthRow, SpectrumRow
from headwise.contrast.subspaces import (
    feature,
    mean_difference,
    principal_angles,
    principal_components,
    superposition_index,
    union,
)
from headwise.contrast.swap_tests import Probe
from headwise.randomness import keyed
from headwise.tasks.clusters import WORDINGS
from headwise.tasks.labelled.types import Contrast, Task
from headwise.types import Head, Side, Subspace

OTHER_HALF = "its other half"
"""What a feature's angles to itself are named: between two random halves of its prompts."""
_STEPS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64)
"""Numbers of query values for the curve of the rank."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """One contrast fitted in several heads: a rank report and a feature per head, and the keys' covariance."""

    contrast: Contrast
    heads: tuple[Head, ...]
    covariance: ContrastiveCovariance
    reports: tuple[RankReport, ...]
    features: tuple[BankFeature, ...]
    keys: Tensor
    """Means of positive and negative keys [2n, h, d_head], for principal components."""
    curves: tuple[RankCurve, ...]
    """Per head, how much of held-out logits each rank carries, beside placebos."""
    placebos: Placebos
    """What the same fit finds in shuffled labels."""
    root: Tensor
    """[h, d_head, d_head]: a square root of the keys' covariance, for random subspaces that follow it."""


@dataclass(frozen=True, eq=False)
class HeadStudy:
    """All that was fitted in one head."""

    head: Head
    place: int
    """The head's place along the head axis of what was fitted."""
    features: tuple[BankFeature, ...]
    """The fitted features, then the unions."""
    reports: Mapping[str, RankReport]
    """The rank of every fitted feature."""

    def reports_of(self, feature: BankFeature) -> list[RankReport]:
        """The reports of a feature, or of all that a union was made of."""
        return [self.reports[part] for part in (feature.parts or (feature.name,))]

    @property
    def superposition(self) -> float | None:
        """How far the head's fitted key subspaces share dimensions; None for a single feature."""
        single = [f.key for f in self.features if not f.parts]
        return superposition_index(single) if len(single) > 1 else None


def fit_contrast(
    contrast: Contrast,
    heads: Sequence[Head],
    pairs: Pairs,
    *,
    seed: int,
    energy: float,
    max_rank: int,
    placebos: int = 200,
    draws: int = 200,
) -> Fitted:
    """Ranks and subspaces of one contrast. A subspace has the rank, from 1 to ``max_rank``, whose share of held-out
    logits is furthest above that of placebos."""
    covariance = pairs.feed(ContrastiveCovariance())
    generator = keyed(seed, "rank", contrast.name)
    clusters, wordings = contrast.clusters(), contrast.clusters(names=WORDINGS, least=2)
    most = min(max_rank, covariance.d_head_)
    curves = rank_curves(pairs, most, clusters=clusters.which, seed=seed, labels=(contrast.name,))
    reports = rank_reports(
        covariance,
        generator=generator,
        energy=energy,
        draws=draws,
        distinct=contrast.distinct,
        groups=clusters.which,
        wordings=wordings.which if wordings.name in WORDINGS else None,
        interaction=True,
    )
    delta = covariance.delta_c_
    features = []
    for place, (head, report) in enumerate(zip(heads, reports, strict=True)):
        found = feature(delta[place], curves[place].rank, contrast.name)
        features.append(
            BankFeature(
                name=contrast.name,
                head=head,
                query=found.query,
                key=found.key,
                sigma=found.sigma,
                rank_energy=report.rank_energy,
                rank_null=report.rank_null,
            )
        )
    return Fitted(
        contrast=contrast,
        heads=tuple(heads),
        covariance=covariance,
        reports=tuple(reports),
        features=tuple(features),
        keys=torch.cat([pairs.plus, pairs.minus]),
        curves=tuple(curves),
        placebos=Placebos.fitted(pairs, most, placebos, seed, contrast.name),
        root=covariance_root(pairs),
    )


def head_studies(task: Task, fitted: Mapping[str, Fitted], heads: Sequence[Head]) -> list[HeadStudy]:
    """What was fitted contrast by contrast, head by head, with the task's unions."""
    found = []
    for place, head in enumerate(heads):
        single = {name: item.features[place] for name, item in fitted.items()}
        reports = {name: item.reports[place] for name, item in fitted.items()}
        found.append(HeadStudy(head, place, (*single.values(), *_unions(task, single)), reports))
    return found


def _unions(task: Task, single: Mapping[str, BankFeature]) -> list[BankFeature]:
    """The task's joint features of one head. A part without any direction above its null adds no rank_null."""
    made = []
    for name, parts in task.unions.items():
        members = [single[part] for part in parts]
        real = [m for m in members if m.rank_null]
        key = union([m.key for m in members])
        made.append(
            BankFeature(
                name=name,
                head=members[0].head,
                query=union([m.query for m in members]),
                key=key,
                sigma=torch.cat([m.sigma for m in members]),
                rank_energy=key.rank,
                rank_null=union([Subspace(m.key.basis[:, : m.rank_null]) for m in real]).rank if real else 0,
                parts=tuple(parts),
            )
        )
    return made


def probes_of(study: HeadStudy, fitted: Mapping[str, Fitted], *, seed: int, draws: int) -> list[Probe]:
    """A head's features with their nulls, and controls: the keys' principal components, the mean difference."""
    return [_probe(f, fitted, study.place, seed=seed, draws=draws) for f in study.features]


def _probe(item: BankFeature, fitted: Mapping[str, Fitted], place: int, *, seed: int, draws: int) -> Probe:
    of = [fitted[part] for part in (item.parts or (item.name,))]
    keys = torch.cat([f.keys[:, place] for f in of])
    controls: dict[str, Subspace] = {}
    # A few keys have fewer principal components than a feature may have dimensions: then there is no such control.
    if item.rank <= len(keys):
        controls["principal components"] = principal_components(keys, item.rank)
    means = [mean_difference(f.covariance, place) for f in of]
    means = [m for m in means if m.rank]
    if means:
        controls["mean difference"] = union(means)
    ranks = [f.features[place].rank for f in of]
    placebos = [f.placebos.key[:draws, place, :, :rank] for f, rank in zip(of, ranks, strict=True)]
    return Probe(
        head=item.head,
        name=item.name,
        query=item.query,
        key=item.key,
        controls=controls,
        placebo=placebos[0] if not item.parts else placebo_union(placebos, item.rank),
        root=torch.cat([f.root[place] for f in of], 1),
        draws=draws,
        seed=seed,
    )


def spectrum_rows(fitted: Fitted) -> list[SpectrumRow]:
    """Singular values with their interval and null, one row per value."""
    return [
        SpectrumRow(
            head=str(head),
            name=fitted.contrast.name,
            index=j + 1,
            sigma=float(report.singular_values[j]),
            low=float(report.sigma_interval[j, 0]),
            high=float(report.sigma_interval[j, 1]),
            null=float(report.null_sigma[j]),
        )
        for head, report in zip(fitted.heads, fitted.reports, strict=True)
        for j in range(report.singular_values.shape[0])
    ]


def curve_rows(fitted: Fitted) -> list[CurveRow]:
    """The curve that the rank was chosen by, one row per rank."""
    return [
        CurveRow(
            head=str(head),
            name=fitted.contrast.name,
            rank=j + 1,
            share=float(curve.share[j]),
            placebo_share=float(curve.placebo[j]),
            placebo_high=float(curve.high[j]),
            chosen=j + 1 == curve.rank,
        )
        for head, curve in zip(fitted.heads, fitted.curves, strict=True)
        for j in range(len(curve.share))
    ]


def crowding_null(study: HeadStudy, fitted: Mapping[str, Fitted], draws: int) -> tuple[float, float] | None:
    """The superposition index of placebos of the same ranks, the first ``draws`` of them: its mean and 95th percentile;
    None for one feature."""
    single = [f for f in study.features if not f.parts]
    if len(single) < 2:
        return None
    bases = [fitted[f.name].placebos.key[:draws, study.place, :, : f.rank] for f in single]
    drawn = torch.tensor(
        [superposition_index([Subspace(one[i]) for one in bases]) for i in range(len(bases[0]))]
    )
    return float(drawn.mean()), float(drawn.quantile(0.95))


def placebo_banks(
    bank: FeatureBank, studies: Sequence[HeadStudy], fitted: Mapping[str, Fitted], number: int = 40
) -> list[FeatureBank]:
    """Banks of the same heads, names and ranks whose features were fitted to shuffled labels."""

    def placebo(study: HeadStudy, item: BankFeature, draw: int) -> BankFeature:
        of = fitted[item.name].placebos
        query, key = (Subspace(x[draw, study.place, :, : item.rank]) for x in (of.query, of.key))
        return replace(item, query=query, key=key, supported=None)

    draws = min(number, *(len(f.placebos.key) for f in fitted.values()))
    return [
        replace(bank, features=tuple(placebo(s, f, draw) for s in studies for f in s.features if not f.parts))
        for draw in range(draws)
    ]


def angle_rows(study: HeadStudy) -> list[AngleRow]:
    """Principal angles between the head's features on both sides, and between random halves of each."""
    rows: list[AngleRow] = []

    def add(first: str, second: str, side: Side, degrees: Tensor) -> None:
        rows.extend(
            AngleRow(head=str(study.head), first=first, second=second, side=side, index=j + 1, degrees=value)
            for j, value in enumerate(degrees.tolist())
        )

    single = [f for f in study.features if not f.parts]
    for i, a in enumerate(single):
        for b in single[i + 1 :]:
            add(a.name, b.name, "query", principal_angles(a.query, b.query))
            add(a.name, b.name, "key", principal_angles(a.key, b.key))
        report = study.reports[a.name]
        add(a.name, OTHER_HALF, "query", _degrees(report.split_half_query))
        add(a.name, OTHER_HALF, "key", _degrees(report.split_half_key))
    return rows


def _degrees(cosines: Tensor) -> Tensor:
    return torch.rad2deg(torch.acos(cosines.clamp(-1, 1)))


def growth_rows(fitted: Fitted, *, seed: int, energy: float) -> list[GrowthRow]:
    """The energy rank against the number of distinct query values used, without another pass."""
    contrast = fitted.contrast
    if contrast.varies is None:
        return []
    values = contrast.values(contrast.varies)
    label = [values.index(e.groups[contrast.varies]) for e in contrast.examples]
    shuffled = torch.randperm(len(values), generator=keyed(seed, "growth", contrast.name))
    counts, weights = [], []
    for k in [*(k for k in _STEPS if k < len(values)), len(values)]:
        chosen = torch.isin(torch.tensor(label), shuffled[:k]).double()
        if chosen.sum() >= 4:
            counts.append((k, int(chosen.sum())))
            weights.append(chosen / chosen.sum())
    if not weights:
        return []
    sigma = torch.linalg.svdvals(fitted.covariance.weighted(torch.stack(weights)))
    ranks = energy_rank(sigma, energy)
    return [
        GrowthRow(
            head=str(head),
            name=contrast.name,
            varies=contrast.varies,
            values=k,
            prompts=n,
            rank_energy=int(ranks[i, place]),
        )
        for i, (k, n) in enumerate(counts)
        for place, head in enumerate(fitted.heads)
    ]


def rank_warnings(fitted: Mapping[str, Fitted], heads: Sequence[Head]) -> list[str]:
    """What the rank reports warn of: one line per warning, with every head and feature it holds for."""
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for name, item in fitted.items():
        for head, report in zip(item.heads, item.reports, strict=True):
            for what, numbers in report.findings if head in heads else ():
                found.setdefault(what, {}).setdefault(str(head), {}).setdefault(numbers, []).append(name)
    return [f"{what}: {_held(where, list(fitted))}" for what, where in found.items()]


def _held(heads: Mapping[str, Mapping[str, list[str]]], features: list[str]) -> str:
    """Heads and their features by the numbers behind a warning; heads of which the same is true are named together.

    >>> _held({"L1H0": {"1, bound 1": ["a", "b"]}, "L2H3": {"1, bound 1": ["a", "b"]}, "L4H0": {"": ["b"]}}, ["a", "b"])
    'L1H0, L2H3 all features (1, bound 1); L4H0 b'
    """
    alike: dict[str, list[str]] = {}
    for head, by_numbers in heads.items():
        said = ", ".join(
            ("all features" if names == features and len(names) > 1 else ", ".join(names))
            + (f" ({numbers})" if numbers else "")
            for numbers, names in by_numbers.items()
        )
        alike.setdefault(said, []).append(head)
    return "; ".join(f"{', '.join(names)} {said}" for said, names in alike.items())
