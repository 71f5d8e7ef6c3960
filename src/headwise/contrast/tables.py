"""From what was measured to the rows of tables: means over the test prompts, with intervals."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headwise.contrast.bank import BankFeature
from headwise.contrast.fit import HeadStudy
from headwise.contrast.measured import Measured
from headwise.contrast.rows import DoseRow, DrawRow, FeatureRow, SwapRow
from headwise.contrast.swap_tests import DOSES
from headwise.contrast.swaps import Edited, swap_test
from headwise.intervals import estimated, picked
from headwise.randomness import keyed
from headwise.types import Estimate, Head

RESAMPLES = 500
"""Bootstrap draws of the mean of one condition."""


def feature_row(study: HeadStudy, item: BankFeature, measured: Measured, *, seed: int) -> FeatureRow:
    """Ranks of one feature, and its swap against random subspaces with intervals."""
    reports, edits = study.reports_of(item), measured.features[item.name]
    test = swap_test(
        edits.swap,
        measured.full,
        edits.random,
        generator=keyed(seed, "bootstrap", f"{item.head}|{item.name}"),
    )
    salience = sum(r.salience_energy for r in reports)
    interaction = sum(r.interaction_energy for r in reports)
    single = reports[0] if not item.parts else None
    return FeatureRow(
        head=str(item.head),
        name=item.name,
        union=bool(item.parts),
        rank=item.rank,
        rank_energy=item.rank_energy,
        rank_null=item.rank_null,
        rank_interaction=single.rank_interaction if single else None,
        rank_low=single.rank_interval[0] if single else None,
        rank_high=single.rank_interval[1] if single else None,
        stable_rank=single.stable_rank if single else None,
        bound=single.bound if single else None,
        saturated=any(r.saturated for r in reports),
        interaction_share=interaction / (salience + interaction) if salience + interaction else 0.0,
        superposition=study.superposition,
        **_columns("original", test.original),
        **_columns("target", test.target),
        share_of_full=test.share.mean,
        share_low=test.share.low,
        share_high=test.share.high,
        percentile=test.percentile,
        p_value=test.p_value,
        random_original=test.random_original,
        random_target=test.random_target,
        random_share_99=float(torch.quantile(torch.tensor(test.random_shares), 0.99)),
    )


def full_change(measured: Measured) -> float:
    """What swapping whole keys does to the log-odds: the yardstick of every share."""
    return float(measured.full.log_odds.mean())


def changes_nothing(measured: Measured) -> bool:
    """Whether there is no yardstick."""
    return abs(full_change(measured)) < 1e-12


def swap_rows(head: Head, measured: Measured, *, seed: int) -> Iterator[SwapRow]:
    """Every condition of every feature."""
    whole = full_change(measured)
    every = [("", "none", measured.none), ("", "full", measured.full)]
    for name, feature in measured.features.items():
        every += [(name, condition, edited) for condition, edited in feature.conditions.items()]
    for name, condition, edited in every:
        n = edited.log_odds.shape[-1]
        picks = picked(n, RESAMPLES, keyed(seed, "condition", str(head), name, condition))
        yield SwapRow(
            head=str(head),
            name=name,
            condition=condition,
            **_columns("original", _mean(edited.original, picks)),
            **_columns("target", _mean(edited.target, picks)),
            **_columns("log_odds", _mean(edited.log_odds, picks)),
            share=float(edited.log_odds.mean() / whole),
        )


def _mean(values: Tensor, picks: Tensor) -> Estimate:
    return estimated(values.mean(), values[picks].mean(-1), len(values))


def _columns(name: str, found: Estimate) -> dict[str, float]:
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def draw_rows(head: Head, measured: Measured) -> Iterator[DrawRow]:
    """Every random subspace of every feature."""
    whole = full_change(measured)
    for name, feature in measured.features.items():
        for number, (original, target, odds) in enumerate(_means(feature.random)):
            yield DrawRow(
                head=str(head), name=name, draw=number, original=original, target=target, share=odds / whole
            )


def dose_rows(head: Head, measured: Measured) -> Iterator[DoseRow]:
    """Every feature's swap made in part."""
    whole = full_change(measured)
    for name, feature in measured.features.items():
        for dose, (original, target, odds) in zip(DOSES, _means(feature.dose), strict=True):
            yield DoseRow(
                head=str(head), name=name, dose=dose, original=original, target=target, share=odds / whole
            )


def _means(edited: Edited) -> list[tuple[float, float, float]]:
    """Means over prompts, one triple (original, target, log-odds) per subspace."""
    means = (edited.original.mean(-1), edited.target.mean(-1), edited.log_odds.mean(-1))
    return list(zip(*(value.tolist() for value in means), strict=True))
