"""Does a name hold on texts that it was not found on? Exact tests, effects with intervals, verdicts, shares.

* p_A: McNemar's exact test on pairs of one text: the positive cell and its own-slot negative (the signal's own token
  changed). p_B: Fisher's exact test against random cells of other texts. Both must hold, so **p = max(p_A, p_B)**,
  which is valid without correction.
* One p per signal; a signal that is too rare or has no rule has p = 1 and stays in the family. Benjamini–Hochberg
  decides, Benjamini–Yekutieli is given beside it.
* Significance is not quality. *Balanced accuracy* is the mean of the share of positives where the name holds and of
  the share of negatives where it does not, both kinds of negatives counting alike. A second family of tests, of
  "balanced accuracy is at most 0.65", separates **named** from merely **beyond chance**.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from scipy import stats

from headwise.errors import HeadwiseError
from headwise.intervals import estimate, estimated, resampled, wilson
from headwise.types import Estimate

LEAST = 30
"""Positive cells (each of a text of its own) below which a signal is too rare to be named."""
QUALITY = 0.65
"""The balanced accuracy that a name must exceed."""
RATE = 0.05
"""The share of false discoveries that is allowed."""

NameVerdict = Literal["named", "beyond chance", "no name", "too rare"]


@dataclass(frozen=True)
class BandRecall:
    """How many cells of one band of activation a name holds of."""

    n: int
    """How many cells of the band there were."""
    recall: float
    """The share of them where the name holds."""
    low: float
    """The lower end of its 95 % interval (Wilson)."""
    high: float
    """The upper end."""

    @classmethod
    def of(cls, holds: np.ndarray) -> BandRecall:
        """
        >>> BandRecall.of(np.array([True, True, False, True])).recall
        0.75
        """
        if not len(holds):
            return cls(0, math.nan, math.nan, math.nan)
        low, high = wilson(int(holds.sum()), len(holds))
        return cls(len(holds), float(holds.mean()), low, high)


@dataclass(frozen=True)
class NameTest:
    """What the test half says about one name. Nothing in it depends on other signals."""

    positives: int
    """Test positives, one per text."""
    p_own_slot: float
    """p_A: against the same text with the signal's own token changed."""
    p_random: float
    """p_B: against random cells of other texts."""
    p_quality: float
    """Of "balanced accuracy is at most 0.65"."""
    p_position: float | None
    """Against cells of other texts at the same positions; None if there were none."""
    balanced_accuracy: Estimate
    """Mean of the share of positives where the name holds and of negatives where it does not."""
    recall: float
    """NamedShare of positives where the name holds."""
    false_alarms: Mapping[str, float]
    """NamedShare of negatives where it holds: ``own slot``, ``random``, ``position-matched``."""
    recall_by_band: Mapping[str, BandRecall] = field(default_factory=dict)
    """The share of cells of each band of activation where it holds."""

    @property
    def p(self) -> float:
        """Both tests must hold."""
        return max(self.p_own_slot, self.p_random)

    def to_json(self) -> dict[str, Any]:
        """All numbers; NaN becomes null."""
        effect = self.balanced_accuracy
        return {
            "positives": self.positives,
            "p": self.p,
            "p_own_slot": self.p_own_slot,
            "p_random": self.p_random,
            "p_quality": self.p_quality,
            "p_position": self.p_position,
            "balanced_accuracy": {"mean": effect.mean, "low": effect.low, "high": effect.high},
            "recall": self.recall,
            "false_alarms": dict(self.false_alarms),
            "recall_by_band": {name: vars(one) for name, one in self.recall_by_band.items()},
        }


def name_test(
    holds_positive: np.ndarray,
    holds_own_slot: np.ndarray,
    holds_random: np.ndarray,
    holds_position_matched: np.ndarray | None = None,
    *,
    bands: Mapping[str, np.ndarray] | None = None,
    texts: np.ndarray | None = None,
    random_texts: np.ndarray | None = None,
    seed: int = 0,
) -> NameTest:
    """Test a name by where its rule holds on cells of the test half.

    ``holds_own_slot`` has one entry per positive, of the same text; the other negatives may be of any number. ``texts``
    and ``random_texts`` say which text positives and random negatives are from, for the interval (each its own if they
    are not given). ``bands`` are cells of activation bands, for the recall in each.
    """
    positive, own, random = (
        np.asarray(x, dtype=bool) for x in (holds_positive, holds_own_slot, holds_random)
    )
    if len(positive) != len(own):
        raise HeadwiseError(
            f"{len(positive)} positive cells have {len(own)} own-slot negatives: give one for each"
        )
    matched = None if holds_position_matched is None else np.asarray(holds_position_matched, dtype=bool)
    false_alarms = {"own slot": _share(own), "random": _share(random)}
    if matched is not None and len(matched):
        false_alarms["position-matched"] = _share(matched)
    return NameTest(
        positives=len(positive),
        p_own_slot=mcnemar(positive, own),
        p_random=fisher(positive, random),
        p_quality=above(QUALITY, positive, own, random),
        p_position=fisher(positive, matched) if matched is not None and len(matched) else None,
        balanced_accuracy=_balanced(positive, own, random, texts, random_texts, seed),
        recall=_share(positive),
        false_alarms=false_alarms,
        recall_by_band={
            name: BandRecall.of(np.asarray(one, dtype=bool)) for name, one in (bands or {}).items()
        },
    )


def _share(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan


def mcnemar(one: np.ndarray, other: np.ndarray) -> float:
    """Exact one-sided test that the first of each pair is true more often than the second.

    >>> round(mcnemar(np.array([1, 1, 1, 1, 1, 0], bool), np.array([0, 0, 0, 0, 0, 0], bool)), 5)
    0.03125
    """
    gained, lost = int((one & ~other).sum()), int((~one & other).sum())
    return float(stats.binom.sf(gained - 1, gained + lost, 0.5)) if gained + lost else 1.0


def fisher(one: np.ndarray, other: np.ndarray) -> float:
    """Exact one-sided test that the first are true more often than the second."""
    if not len(one) or not len(other):
        return 1.0
    table = [[int(one.sum()), int((~one).sum())], [int(other.sum()), int((~other).sum())]]
    found: Any = stats.fisher_exact(table, alternative="greater")
    return float(found.pvalue)


def above(bound: float, positive: np.ndarray, own: np.ndarray, random: np.ndarray) -> float:
    """One-sided test that balanced accuracy exceeds a bound.

    A pair of one text gives ½[holds] + ¼[does not hold of its own-slot negative], a random cell ¼[does not hold]; the
    sum of the two means is balanced accuracy. It is studentised after two failures and two successes were added to each
    kind (Agresti and Caffo's correction), without which the normal tail is too thin where a share is near 0 or 1.
    """
    if not len(positive) or not len(random):
        return 1.0
    added = np.array([True, True, False, False])
    pairs = 0.5 * np.concatenate([positive, added]) + 0.25 * np.concatenate([~own, added])
    others = 0.25 * np.concatenate([~random, added])
    mean = pairs.mean() + others.mean()
    variance = pairs.var(ddof=1) / len(pairs) + others.var(ddof=1) / len(others)
    return float(stats.norm.sf((mean - bound) / math.sqrt(variance)))


def _balanced(
    positive: np.ndarray,
    own: np.ndarray,
    random: np.ndarray,
    texts: np.ndarray | None,
    random_texts: np.ndarray | None,
    seed: int,
) -> Estimate:
    """Balanced accuracy, with an interval from resampling texts."""
    of_pairs = np.arange(len(positive)) if texts is None else np.asarray(texts)
    of_random = -1 - np.arange(len(random)) if random_texts is None else np.asarray(random_texts)
    names, which = np.unique(np.concatenate([of_pairs, of_random]), return_inverse=True)
    if not len(positive) or not len(random):
        return Estimate(math.nan, math.nan, math.nan, n=0, clusters=0)
    weights = resampled(len(names), seed, "balanced accuracy").numpy()
    pair, other = weights[:, which[: len(positive)]], weights[:, which[len(positive) :]]
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = 0.5 * (pair @ positive) / pair.sum(1) + 0.25 * (pair @ ~own) / pair.sum(1)
        drawn = drawn + 0.25 * (other @ ~random) / other.sum(1)
    mean = 0.5 * positive.mean() + 0.25 * (~own).mean() + 0.25 * (~random).mean()
    return estimated(float(mean), torch.from_numpy(drawn), len(names))


def kappa(one: np.ndarray, other: np.ndarray) -> float:
    """Cohen's κ of two sets of labels.

    >>> kappa(np.array([True, True, False, False]), np.array([True, False, False, False]))
    0.5
    """
    same = float((one == other).mean())
    chance = float(one.mean() * other.mean() + (~one).mean() * (~other).mean())
    return 1.0 if chance == 1 else (same - chance) / (1 - chance)


# --- families ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """What a name came to among all signals that were asked for."""

    verdict: NameVerdict
    """``named``, ``beyond chance``, ``no name`` or ``too rare``."""
    q: float
    """Benjamini–Hochberg."""
    q_dependent: float
    """Benjamini–Yekutieli: valid however the tests depend on one another."""
    q_quality: float
    """Of "balanced accuracy is at most 0.65", in its own family."""
    flags: tuple[str, ...] = ()
    """``positional``: the name speaks of places, or does not hold beyond them. ``corpus-bound``: it rests on single
    tokens or words of one kind of text."""


def judged(
    tests: Sequence[NameTest | None],
    *,
    positional: Sequence[bool] | None = None,
    corpus_bound: Sequence[bool] | None = None,
) -> list[Judged]:
    """Verdicts over the whole family of distinct signals, in their order; None is a signal without a rule.

    ``positional`` and ``corpus_bound`` say of each signal what its rule says of itself.
    """
    rare = [test is not None and test.positives < LEAST for test in tests]
    p = [1.0 if test is None or few else test.p for test, few in zip(tests, rare, strict=True)]
    quality = [1.0 if test is None or few else test.p_quality for test, few in zip(tests, rare, strict=True)]
    q, q_dependent, q_quality = discoveries(p), discoveries(p, dependent=True), discoveries(quality)
    made = []
    for i, test in enumerate(tests):
        verdict: NameVerdict = "no name"
        if rare[i]:
            verdict = "too rare"
        elif test is not None and q[i] <= RATE:
            verdict = "named" if q_quality[i] <= RATE else "beyond chance"
        flags = []
        by_place = test is not None and test.p_position is not None and test.p_position > RATE
        if verdict in ("named", "beyond chance"):
            flags += ["positional"] * bool((positional and positional[i]) or by_place)
            flags += ["corpus-bound"] * bool(corpus_bound and corpus_bound[i])
        made.append(Judged(verdict, q[i], q_dependent[i], q_quality[i], tuple(flags)))
    return made


def too_rare() -> NameTest:
    """The test of a signal with too few positive cells: p = 1, and it stays in the family."""
    nothing = np.zeros(0, dtype=bool)
    return name_test(nothing, nothing, nothing)


def discoveries(p: Sequence[float], *, dependent: bool = False) -> list[float]:
    """q values of a family of p values.

    >>> discoveries([0.01, 0.04, 1.0])
    [0.03, 0.06, 1.0]
    >>> discoveries([])
    []
    """
    if not len(p):
        return []
    found = stats.false_discovery_control(np.asarray(p, dtype=float), method="by" if dependent else "bh")
    return [float(one) for one in found]


# --- shares --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedShare:
    """How many of the distinct signals were named."""

    mean: float
    """The share."""
    low: float
    """Wilson's interval: signals as if they were independent."""
    high: float
    """Its upper end."""
    n: int
    """How many distinct signals there are, those without a name among them."""
    by_head: Estimate
    """The same with an interval from resampling heads, whose signals hang together."""

    def to_json(self) -> dict[str, Any]:
        """The share, both intervals and the denominator."""
        return {
            "mean": self.mean,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "by_head": {"low": self.by_head.low, "high": self.by_head.high, "heads": self.by_head.clusters},
        }


def share_named(
    verdicts: Sequence[NameVerdict], heads: Sequence[object], *, least: NameVerdict = "named", seed: int = 0
) -> NamedShare:
    """The share of signals with a verdict of at least ``least`` (``named`` or ``beyond chance``).

    >>> share_named(["named", "no name", "beyond chance", "too rare"], ["L0H0", "L0H0", "L1H0", "L1H0"]).mean
    0.25
    """
    if not len(verdicts):
        raise HeadwiseError("no signals were asked for: there is no share of named ones")
    hits = np.array([_counts(one, least) for one in verdicts])
    low, high = wilson(int(hits.sum()), len(hits))
    return NamedShare(float(hits.mean()), low, high, len(hits), _by_head(hits.astype(float), heads, seed))


def share_difference(
    verdicts: Sequence[NameVerdict],
    controls: Sequence[NameVerdict],
    heads: Sequence[object],
    *,
    least: NameVerdict = "named",
    seed: int = 0,
) -> Estimate:
    """By how much more signals are named than their own controls; the interval resamples heads.

    >>> share_difference(["named", "named"], ["no name", "named"], ["L0H0", "L1H0"]).mean
    0.5
    """
    if len(verdicts) != len(controls):
        raise HeadwiseError(f"{len(verdicts)} signals have {len(controls)} controls: give one for each")
    difference = np.array([_counts(one, least) for one in verdicts], dtype=float)
    difference -= np.array([_counts(one, least) for one in controls], dtype=float)
    return _by_head(difference, heads, seed)


def _counts(verdict: NameVerdict, least: NameVerdict) -> bool:
    return verdict == "named" or (verdict == "beyond chance" and least == "beyond chance")


def _by_head(values: np.ndarray, heads: Sequence[object], seed: int) -> Estimate:
    names = {str(head): number for number, head in enumerate(dict.fromkeys(map(str, heads)))}
    clusters = torch.tensor([names[str(head)] for head in heads])
    return estimate(torch.from_numpy(values), seed, "share of names", clusters=clusters)
