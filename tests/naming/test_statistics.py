"""Tests of names: exact where they can be, honest about what is rare, and not fooled by signals that mean nothing."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from pieces import drawn_cells, ordinary_texts
from scipy import stats

from headwise.errors import HeadwiseError
from headwise.intervals import wilson
from headwise.naming.cells import Cells
from headwise.naming.rules import Rule
from headwise.naming.search import find_rules
from headwise.naming.statistics import (
    LEAST,
    NameTest,
    NameVerdict,
    above,
    discoveries,
    fisher,
    judged,
    mcnemar,
    name_test,
    share_difference,
    share_named,
    too_rare,
)


def drawn(n: int, rate: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(n) < rate


def a_test(recall: float, alarms: float, seed: int = 0, n: int = 80) -> NameTest:
    return name_test(drawn(n, recall, seed), drawn(n, alarms, seed + 1), drawn(n, alarms, seed + 2))


def test_mcnemar_is_the_binomial_of_pairs_that_differ() -> None:
    one, other = np.array([1] * 9 + [0] * 3 + [1] * 20, bool), np.array([0] * 9 + [1] * 3 + [1] * 20, bool)
    assert mcnemar(one, other) == pytest.approx(stats.binomtest(9, 12, alternative="greater").pvalue)
    assert mcnemar(one[12:], other[12:]) == 1.0
    assert mcnemar(other, one) > 0.5


def test_fisher_is_one_sided_and_needs_both_kinds() -> None:
    assert fisher(drawn(50, 0.9, 0), drawn(50, 0.1, 1)) < 1e-6
    assert fisher(drawn(50, 0.1, 1), drawn(50, 0.9, 0)) > 0.999
    assert fisher(np.ones(3, bool), np.ones(0, bool)) == 1.0


def test_fisher_and_mcnemar_are_counted_over_all_outcomes() -> None:
    """Which of nine cells hold, and which way each pair that differs goes: every one of them listed."""
    one, other = np.array([1, 1, 1, 0], bool), np.array([1, 0, 0, 0, 0], bool)
    ways = [sum(i < 4 for i in held) for held in combinations(range(9), 4)]
    assert fisher(one, other) == pytest.approx(sum(in_first >= 3 for in_first in ways) / len(ways))
    first, second = np.array([1, 1, 1, 0, 1, 0], bool), np.array([0, 0, 0, 1, 1, 0], bool)
    turns = [sum(turn) for turn in product((0, 1), repeat=4)]
    assert mcnemar(first, second) == pytest.approx(sum(gained >= 3 for gained in turns) / 16)


def test_both_negatives_must_be_told_apart() -> None:
    """A name that any cell of a text with the right word would get beats random cells, and not the own slot."""
    held = drawn(80, 0.9, 0)
    found = name_test(held, held, drawn(80, 0.05, 1))
    assert found.p_random < 1e-6 and found.p_own_slot == 1.0 and found.p == 1.0


def test_balanced_accuracy_counts_both_kinds_of_negatives_alike() -> None:
    positive = np.array([True] * 8 + [False] * 2)
    found = name_test(positive, np.array([True] * 4 + [False] * 6), np.zeros(1000, bool))
    assert found.balanced_accuracy.mean == pytest.approx(0.5 * 0.8 + 0.25 * 0.6 + 0.25 * 1.0)
    assert found.balanced_accuracy.low < found.balanced_accuracy.mean < found.balanced_accuracy.high
    assert found.recall == 0.8 and found.false_alarms == {"own slot": 0.4, "random": 0.0}


def test_cells_of_one_text_are_resampled_together() -> None:
    """Forty cells of two texts say little more than two cells do."""
    positive = np.array([True] * 20 + [False] * 20)
    together = name_test(
        positive, ~positive, ~positive, texts=np.repeat([0, 1], 20), random_texts=np.repeat([2, 3], 20)
    )
    apart = name_test(positive, ~positive, ~positive)
    width = [found.balanced_accuracy.high - found.balanced_accuracy.low for found in (together, apart)]
    assert width[0] > 2 * width[1]


def test_own_slot_negatives_come_in_pairs() -> None:
    with pytest.raises(HeadwiseError, match="3 positive cells have 2 own-slot negatives"):
        name_test(np.ones(3, bool), np.ones(2, bool), np.ones(3, bool))


@pytest.mark.parametrize(
    ("n", "recall", "alarms"), [(30, 0.35, 0.05), (80, 0.6, 0.3), (80, 0.97, 0.67), (40, 1.0, 0.7)]
)
def test_quality_is_not_claimed_at_the_bound(n: int, recall: float, alarms: float) -> None:
    """At a balanced accuracy of exactly 0.65 at most 5 % of the tests reject."""
    rng = np.random.default_rng(0)
    p = [above(0.65, *(rng.random(n) < rate for rate in (recall, alarms, alarms))) for _ in range(1000)]
    assert wilson(sum(one <= 0.05 for one in p), len(p))[0] <= 0.05
    assert above(0.65, *(drawn(n, rate, 9) for rate in (0.95, 0.05, 0.05))) < 1e-4


def test_verdicts() -> None:
    tests = [
        a_test(0.95, 0.05),
        a_test(0.97, 0.69, 10, 2000),
        a_test(0.5, 0.5, 20),
        None,
        too_rare(),
        a_test(1, 0, 30, LEAST - 1),
    ]
    found = judged(tests, positional=[True] * 6, corpus_bound=[False, True, True, True, True, True])
    assert [one.verdict for one in found] == [
        "named",
        "beyond chance",
        "no name",
        "no name",
        "too rare",
        "too rare",
    ]
    assert [one.q for one in found][3:] == [1.0, 1.0, 1.0]
    assert found[0].flags == ("positional",) and found[1].flags == ("positional", "corpus-bound")
    assert found[2].flags == ()
    assert all(one.q_dependent >= one.q for one in found)


def test_a_name_that_positions_explain_is_flagged() -> None:
    held, own, random = drawn(80, 0.9, 0), drawn(80, 0.1, 1), drawn(80, 0.1, 2)
    by_place, beyond = (name_test(held, own, random, drawn(80, rate, 3)) for rate in (0.9, 0.1))
    assert [one.flags for one in judged([by_place, beyond])] == [("positional",), ()]


def test_rare_and_nameless_signals_stay_in_the_denominator() -> None:
    """q of a signal rises with every other signal that was asked for, named or not."""
    one = a_test(0.65, 0.4, 4)
    alone, among = judged([one])[0], judged([one, *[None] * 99])[0]
    assert among.q == pytest.approx(min(1.0, 100 * alone.q))
    share = share_named(["named", "named", "named", "too rare", "too rare", "no name"], ["a"] * 6)
    assert (share.mean, share.n) == (0.5, 6)


def test_discoveries_are_scipys() -> None:
    p = [0.001, 0.02, 0.03, 0.9]
    assert discoveries(p) == pytest.approx(stats.false_discovery_control(p, method="bh").tolist())
    assert discoveries(p, dependent=True) == pytest.approx(
        stats.false_discovery_control(p, method="by").tolist()
    )


def test_a_share_has_an_interval_over_heads_that_is_wider_where_heads_agree() -> None:
    verdicts: list[NameVerdict] = ["named" if i < 50 else "no name" for i in range(100)]
    agree = share_named(verdicts, [i // 10 for i in range(100)])
    alone = share_named(verdicts, list(range(100)))
    assert (agree.low, agree.high) == (alone.low, alone.high)
    assert agree.by_head.high - agree.by_head.low > 2 * (alone.by_head.high - alone.by_head.low)
    with pytest.raises(HeadwiseError, match="no signals were asked for"):
        share_named([], [])


def test_the_difference_to_controls_is_of_pairs() -> None:
    verdicts: list[NameVerdict] = ["named", "no name"]
    same = share_difference(verdicts * 20, verdicts * 20, list(range(40)))
    assert (same.mean, same.low, same.high) == (0.0, 0.0, 0.0)
    with pytest.raises(HeadwiseError, match="2 signals have 1 controls"):
        share_difference(["named", "named"], ["named"], [0, 1])


# --- signals that mean nothing -------------------------------------------------------------------------------------


def swapped(seed: int, signals: int) -> list[NameTest | None]:
    """Signals that follow rules in one text, read against another text of the same length: search and test."""
    texts, rng = ordinary_texts(), np.random.default_rng(seed)
    known = np.flatnonzero(texts.lengths == 64)
    explore, test = known[::2], known[1::2]
    rules = [
        Rule.parse([ids])
        for ids in (
            ["source.comma"],
            ["source.capitalised"],
            ["relation.after-copy"],
            ["destination.class=article"],
            ["source.class=preposition"],
            ["source.in-brackets"],
            ["relation.same-word"],
            ["source.long"],
        )
    ]
    chosen = [rules[i % len(rules)] for i in range(signals)]
    samples = [_sample(rule, explore, rng, 2) for rule in chosen]
    found = find_rules(texts, [(p, Cells.joined([a, b])) for p, a, b in samples], positional=False)
    made: list[NameTest | None] = []
    for rule, one in zip(chosen, found, strict=True):
        cells = _sample(rule, test, rng, 1)
        made.append(name_test(*(one.rule.holds(texts, part) for part in cells)) if one.rule else None)
    return made


def _sample(
    rule: Rule, chosen: np.ndarray, rng: np.random.Generator, times: int
) -> tuple[Cells, Cells, Cells]:
    """Positives where a rule holds at the same places of *another* text; own-slot and random negatives."""
    texts = ordinary_texts()
    parts: list[list[Cells]] = [[], [], []]
    for _ in range(times):
        reading, writing = rng.permutation(chosen), rng.permutation(chosen)
        cells = drawn_cells(texts, 40 * len(chosen), int(rng.integers(2**31)), chosen)
        at = np.full(len(texts), -1)
        at[writing] = reading
        fires = rule.holds(texts, cells)
        moved = Cells(at[cells.text], cells.destination, cells.source)
        _, first = np.unique(np.where(fires, moved.text, -1), return_index=True)
        first = first[fires[first]]
        positive = moved[first]
        other = 1 + (rng.random(len(first)) * positive.destination).astype(int)
        parts[0].append(positive)
        parts[1].append(Cells(positive.text, positive.destination, other))
        parts[2].append(drawn_cells(texts, len(first), int(rng.integers(2**31)), chosen))
    positives, own, random = (Cells.joined(part) for part in parts)
    return positives, own, random


def test_swapped_signals_are_not_named() -> None:
    found = judged(swapped(0, 40))
    named = sum(one.verdict in ("named", "beyond chance") for one in found)
    assert wilson(named, len(found))[0] <= 0.05


@pytest.mark.calibration
def test_400_swapped_signals_are_named_in_at_most_5_percent() -> None:
    tests = swapped(1, 400)
    named = sum(one.verdict in ("named", "beyond chance") for one in judged(tests))
    assert wilson(named, len(tests))[0] <= 0.05
    # p values are no smaller than chance makes them.
    p = [1.0 if one is None else one.p for one in tests]
    assert stats.kstest(p, "uniform", alternative="greater").pvalue > 0.01


def test_nothing_is_said_of_an_empty_test() -> None:
    found = too_rare()
    assert math.isnan(found.balanced_accuracy.mean) and found.p == 1.0 and found.p_quality == 1.0
    assert found.to_json()["recall_by_band"] == {}
