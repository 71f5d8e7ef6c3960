"""The search: planted rules come back, noise has no name, and what was not given has no say."""

from __future__ import annotations

import numpy as np
import pytest
from pieces import drawn_cells, ordinary_texts, piece_tokenizer
from sklearn.tree import DecisionTreeClassifier

from headwise.naming.cells import Cells
from headwise.naming.predicates.library import library
from headwise.naming.rules import Rule
from headwise.naming.search import Found, find_rule, find_rules
from headwise.naming.texts import Texts

PLANTED = [
    [["source.comma"]],
    [["source.capitalised", "destination.class=preposition"]],
    [["source.only:number"]],
    [["source.last:class=article"]],
    [["relation.after-copy"]],
    [["relation.matching"]],
    [["relation.opened-bracket"]],
    [["relation.distance=1", "destination.class=content-word"]],
    [["source.pair=2"]],
    [["source.first-in-sentence"], ["source.closing-bracket"]],
    [["relation.last-copy", "not destination.class=function-word"]],
    [["source.word=the", "relation.distance<=4"]],
]


def halves(texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    known = np.flatnonzero(texts.lengths > 8)
    return known[::2], known[1::2]


def planted(rule: Rule, seed: int, strength: float, chosen: np.ndarray) -> tuple[Cells, Cells]:
    """The strongest cells of 1[rule] · lognormal + noise, at most 200, and 400 others."""
    texts, rng = ordinary_texts(), np.random.default_rng(seed)
    cells = drawn_cells(texts, 60_000, seed, chosen)
    alpha = strength * rule.holds(texts, cells) * rng.lognormal(0.0, 0.5, len(cells)) + rng.normal(
        0, 0.25, len(cells)
    )
    order = np.argsort(-alpha)
    wanted = min(200, max(30, int(rule.holds(texts, cells).sum()))) if strength else 200
    rest = rng.permutation(order[2 * wanted :])[:400]
    return cells[order[:wanted]], cells[rest]


def kappa(one: np.ndarray, other: np.ndarray) -> float:
    """Cohen's agreement of two yes-or-no answers."""
    agreed = (one == other).mean()
    chance = one.mean() * other.mean() + (1 - one.mean()) * (1 - other.mean())
    return 1.0 if chance == 1 else float((agreed - chance) / (1 - chance))


def is_found(rule: Rule, found: Found, chosen: np.ndarray, seed: int) -> bool:
    texts = ordinary_texts()
    cells = drawn_cells(texts, 60_000, 1000 + seed, chosen)
    return found.rule is not None and kappa(rule.holds(texts, cells), found.rule.holds(texts, cells)) >= 0.9


def recovered(strength: float, seeds: range) -> float:
    texts = ordinary_texts()
    explore, test = halves(texts)
    rules = [Rule.parse(ids) for ids in PLANTED]
    samples = [planted(rule, seed, strength, explore) for rule in rules for seed in seeds]
    found = find_rules(texts, samples)
    hits = [is_found(rule, next(found), test, seed) for rule in rules for seed in seeds]
    return float(np.mean(hits))


def test_planted_rules_come_back_and_noise_does_not() -> None:
    """An equivalent rule counts: it gives the same answers on texts that were not searched."""
    assert recovered(2.0, range(1)) >= 0.9
    assert recovered(0.0, range(1)) <= 0.05


@pytest.mark.calibration
def test_planted_rules_come_back_over_many_draws() -> None:
    assert recovered(2.0, range(10)) >= 0.9
    assert recovered(0.0, range(10)) <= 0.05


def test_pure_noise_has_no_name() -> None:
    texts = ordinary_texts()
    samples = [(c[:200], c[200:]) for c in (drawn_cells(texts, 600, seed) for seed in range(30))]
    named = [found.rule for found in find_rules(texts, samples) if found.rule is not None]
    assert len(named) <= 2


def test_too_little_to_go_by_is_no_name() -> None:
    texts = ordinary_texts()
    cells = drawn_cells(texts, 20, 0)
    for positives, negatives in (
        (cells[:0], cells),
        (cells, cells[:0]),
        (cells[:0], cells[:0]),
        (cells[:1], cells[1:2]),
    ):
        assert find_rule(texts, positives, negatives) == Found(None, 0.0)


def test_many_searches_are_the_same_as_one_by_one() -> None:
    texts = ordinary_texts()
    explore, _ = halves(texts)
    samples = [planted(Rule.parse(PLANTED[i]), i, 2.0, explore) for i in range(3)]
    assert list(find_rules(texts, samples)) == [find_rule(texts, *sample) for sample in samples]


def test_the_name_depends_on_nothing_but_the_given_cells() -> None:
    """Texts of the other half are another corpus here, and the rule and its gain stay what they were."""
    texts = ordinary_texts()
    explore, test = halves(texts)
    positives, negatives = planted(Rule.parse([["source.capitalised"]]), 0, 2.0, explore)
    other = [raw if i in set(explore.tolist()) else f"1 2 3 {raw[::-1]}" for i, raw in enumerate(texts.raw)]
    changed = Texts.read(piece_tokenizer(), other, tokens=64)
    unchanged = Texts.read(piece_tokenizer(), texts.raw, tokens=64)
    assert changed.ids_of(int(test[0])) != texts.ids_of(int(test[0]))
    assert find_rule(unchanged, positives, negatives) == find_rule(changed, positives, negatives)


def test_without_positions_no_rule_speaks_of_them() -> None:
    texts = ordinary_texts()
    cells = drawn_cells(texts, 4000, 3)
    near = cells.destination - cells.source <= 1
    assert str(find_rule(texts, cells[near][:200], cells[~near][:400]).rule).startswith(
        "either the source is"
    )
    found = find_rule(texts, cells[near][:200], cells[~near][:400], positional=False)
    assert found.rule is None or not any(one.predicate.positional for one in found.rule.literals)


def test_rules_that_are_as_good_are_shown() -> None:
    """Of texts in which every number is in brackets nobody can say which of the two it was."""
    texts = Texts.read(piece_tokenizer(), ["we went to ( 7 ) and on and on to it there"] * 100)
    at = texts.strings_of(0).index(" 7") if " 7" in texts.strings_of(0) else texts.strings_of(0).index("7")
    positives = Cells.of([(i, at + 3, at) for i in range(100)])
    negatives = Cells.of([(i, at + 3, at + 3) for i in range(100)])
    found = find_rule(texts, positives, negatives, predicates=[p for p in library() if p.id in BOTH])
    assert found.rule is not None
    shown = {str(found.rule), *map(str, found.equally_good)}
    assert {"the source is a number", "the source is inside brackets"} <= shown


BOTH = {"source.number", "source.in-brackets", "source.comma"}


def test_a_rule_is_as_good_as_the_best_path_of_a_tree() -> None:
    """A tree of depth 3 over the same predicates: no leaf of it explains the labels better than the rule."""
    texts = ordinary_texts()
    explore, _ = halves(texts)
    for number in (0, 1, 3, 7):
        positives, negatives = planted(Rule.parse(PLANTED[number]), number, 1.0, explore)
        cells = Cells.joined([positives, negatives])
        label = np.arange(len(cells)) < len(positives)
        answers = np.stack([one.holds(texts, cells) for one in library()], axis=1)
        tree = DecisionTreeClassifier(max_depth=3, criterion="entropy", random_state=0).fit(answers, label)
        leaf = tree.apply(answers)
        best = max(likelihood(leaf == one, label) for one in np.unique(leaf))
        found = find_rule(texts, positives, negatives)
        assert found.rule is not None
        # The rule pays for its words and the tree does not: three predicates cost about 20 nats.
        assert likelihood(found.rule.holds(texts, cells), label) >= best - 20


def likelihood(split: np.ndarray, label: np.ndarray) -> float:
    """Log-likelihood of labels by the two shares of a split."""
    total = 0.0
    for side in (split, ~split):
        share = label[side].mean() if side.any() else 0.0
        for value in (share, 1 - share):
            total += side.sum() * value * np.log(value) if value > 0 else 0.0
    return float(total)
