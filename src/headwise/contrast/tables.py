"""From what was measured to the rows of tables: means over the test prompts, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headwise.claims import claims, p_value
from headwise.contrast.bank import BankFeature
from headwise.contrast.fit import HeadStudy
from headwise.contrast.measured import Measured
from headwise.contrast.placebo import COVARIANCE, HIGH, NAME, UNIFORM
from headwise.contrast.rows import UNTOUCHED, DoseRow, DrawRow, FeatureRow, SwapRow
from headwise.contrast.swap_tests import DOSES
from headwise.contrast.swaps import Edited, swap_test
from headwise.intervals import as_share, estimated, numbered, weights_of
from headwise.randomness import keyed
from headwise.tasks.labelled.types import Task
from headwise.types import Estimate, Head

RESAMPLES = 500
"""Bootstrap draws of the mean of one condition."""
AGAINST = "placebo labels shuffled within prompts, and random subspaces of the keys' covariance"
GROUP = "all features and unions of all heads of the run"


@dataclass(frozen=True, eq=False)
class Chosen:
    """The test prompts that a feature is tested on, and which of them belong together."""

    prompts: Tensor
    clusters: Tensor

    @classmethod
    def of(cls, task: Task, name: str) -> Chosen:
        """Those whose swap involves the feature; every prompt where the feature is none (``""``)."""
        places = torch.tensor(task.involved(name) if name else range(len(task.test)))
        return cls(places, task.test.clusters().which[places])


def feature_row(
    study: HeadStudy,
    item: BankFeature,
    measured: Measured,
    chosen: Chosen,
    *,
    seed: int,
    crowding: tuple[float, float] | None,
) -> FeatureRow:
    """Ranks of one feature, and its swap against its nulls with intervals, on the prompts that involve it."""
    reports, edits = study.reports_of(item), measured.features[item.name].of(chosen.prompts)
    test = swap_test(
        edits.swap,
        measured.full.of(chosen.prompts),
        edits.nulls[UNIFORM],
        generator=keyed(seed, "bootstrap", f"{item.head}|{item.name}"),
        clusters=chosen.clusters,
    )
    whole = measured.full.log_odds[chosen.prompts].mean()
    placebo, follow = (edits.nulls[null].log_odds.mean(1) / whole for null in (NAME, COVARIANCE))
    p_placebo, p_covariance = (p_value(test.share.mean, drawn) for drawn in (placebo, follow))
    salience = sum(r.salience_energy for r in reports)
    interaction = sum(r.interaction_energy for r in reports)
    single = reports[0] if not item.parts else None
    return FeatureRow(
        head=str(item.head),
        name=item.name,
        union=bool(item.parts),
        rank=item.rank,
        rank_energy=item.rank_energy,
        rank_interaction=single.rank_interaction if single else None,
        rank_null=item.rank_null,
        rank_prompts=single.rank_prompts if single else None,
        rank_low=single.rank_interval[0] if single else None,
        rank_high=single.rank_interval[1] if single else None,
        stable_rank=single.stable_rank if single else None,
        bound=single.bound if single else None,
        values=single.values if single else None,
        saturated=any(r.saturated for r in reports),
        interaction_share=interaction / (salience + interaction) if salience + interaction else 0.0,
        superposition=study.superposition,
        superposition_null=crowding and crowding[0],
        superposition_high=crowding and crowding[1],
        prompts=test.share.n,
        clusters=test.share.clusters,
        **_columns("original", test.original),
        **_columns("target", test.target),
        share_of_full=test.share.mean,
        share_low=test.share.low,
        share_high=test.share.high,
        placebo_share=float(placebo.mean()),
        placebo_high=float(placebo.quantile(HIGH)),
        p_placebo=p_placebo,
        p_covariance=p_covariance,
        against=AGAINST,
        against_draws=len(placebo),
        p_value=max(p_placebo, p_covariance),
        q_value=1.0,
        group=GROUP,
        supported=False,
        percentile=test.percentile,
        p_uniform=test.p_value,
        random_original=test.random_original,
        random_target=test.random_target,
        random_share_99=float(torch.quantile(torch.tensor(test.random_shares), 0.99)),
    )


def judged(rows: Sequence[FeatureRow]) -> tuple[FeatureRow, ...]:
    """The features of a run, corrected together: which of them move the attention beyond what means nothing."""
    p = [row.p_value for row in rows]
    found = claims(p, null=AGAINST, draws=rows[0].against_draws if rows else 0, group=GROUP)
    return tuple(
        replace(row, q_value=one.q, supported=one.supported) for row, one in zip(rows, found, strict=True)
    )


def full_change(measured: Measured, chosen: Chosen | None = None) -> float:
    """What swapping whole keys does to the log-odds: the yardstick of every share."""
    odds = measured.full.log_odds
    return float((odds if chosen is None else odds[chosen.prompts]).mean())


def changes_nothing(measured: Measured) -> bool:
    """Whether there is no yardstick."""
    return abs(full_change(measured)) < 1e-12


def swap_rows(
    head: Head, measured: Measured, chosen: Mapping[str, Chosen], *, seed: int
) -> Iterator[SwapRow]:
    """Every condition of every feature, each on the prompts that involve it; ``chosen`` by name, "" for all."""
    every = [("", "none", measured.none), ("", "full", measured.full)]
    for name, feature in measured.features.items():
        conditions = {UNTOUCHED: measured.none, **feature.conditions}
        every += [(name, condition, edited) for condition, edited in conditions.items()]
    for name, condition, whole in every:
        on = chosen[name]
        edited, n = whole.of(on.prompts), len(on.prompts)
        weights = weights_of(on.clusters, n, RESAMPLES, keyed(seed, "condition", str(head), name, condition))
        count = numbered(on.clusters, n)[1]
        original, target, odds = (
            estimated(x.mean(), weights @ x, n, count)
            for x in (edited.original, edited.target, edited.log_odds)
        )
        yield SwapRow(
            head=str(head),
            name=name,
            condition=condition,
            **_columns("original", as_share(original)),
            **_columns("target", as_share(target)),
            **_columns("log_odds", odds),
            share=odds.mean / full_change(measured, on),
        )


def _columns(name: str, found: Estimate) -> dict[str, float]:
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def draw_rows(head: Head, measured: Measured, chosen: Mapping[str, Chosen]) -> Iterator[DrawRow]:
    """Every subspace that means nothing, of every feature."""
    for name, feature in measured.features.items():
        whole = full_change(measured, chosen[name])
        for null, edited in feature.of(chosen[name].prompts).nulls.items():
            for number, (original, target, odds) in enumerate(_means(edited)):
                share = odds / whole
                yield DrawRow(
                    head=str(head),
                    name=name,
                    against=null,
                    draw=number,
                    original=original,
                    target=target,
                    share=share,
                )


def dose_rows(head: Head, measured: Measured, chosen: Mapping[str, Chosen]) -> Iterator[DoseRow]:
    """Every feature's swap made in part."""
    for name, feature in measured.features.items():
        whole = full_change(measured, chosen[name])
        doses = _means(feature.of(chosen[name].prompts).dose)
        for dose, (original, target, odds) in zip(DOSES, doses, strict=True):
            yield DoseRow(
                head=str(head), name=name, dose=dose, original=original, target=target, share=odds / whole
            )


def _means(edited: Edited) -> list[tuple[float, float, float]]:
    """Means over prompts, one triple (original, target, log-odds) per subspace."""
    means = (edited.original.mean(-1), edited.target.mean(-1), edited.log_odds.mean(-1))
    return list(zip(*(value.tolist() for value in means), strict=True))
