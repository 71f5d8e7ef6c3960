"""Causal evidence: a planted cause passes, a mere correlate that was named does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pieces import drawn_cells, ordinary_texts, piece_tokenizer

from headwise.naming.causal import FEWEST, ChangeTest, broken, causal_flags, made_true, removed
from headwise.naming.cells import Cells
from headwise.naming.rewriting import rewritten
from headwise.naming.rules import Rule
from headwise.naming.search import find_rule
from headwise.naming.statistics import judged, name_test
from headwise.naming.texts import Texts

Planted = Callable[[Texts, Cells], np.ndarray]


def planted(rule: Rule) -> Planted:
    """A signal that a rule causes: 1 where it holds, and a little that depends on the two tokens."""

    def score(texts: Texts, cells: Cells) -> np.ndarray:
        d, s = texts.ids[texts.destinations(cells)], texts.ids[texts.sources(cells)]
        return rule.holds(texts, cells) + 0.1 * np.sin(d * 1.3 + s * 0.7)

    return score


def where(rule: Rule, number: int = 30, *, holds: bool = True, seed: int = 0) -> Cells:
    """Cells, one per text, where a rule holds or does not."""
    texts = ordinary_texts()
    cells = drawn_cells(texts, 40_000, seed)
    some = cells[rule.holds(texts, cells) == holds]
    return some[np.unique(some.text, return_index=True)[1]][:number]


RULES = [
    [["source.comma"]],
    [["source.class=article", "source.lower-case"]],
    [["source.capitalised"]],
    [["destination.class=preposition"]],
    [["relation.after-copy"]],
    [["relation.same-word"]],
    [["relation.opened-bracket"]],
    [["source.pair=2"]],
    [["source.after:class=article"]],
]


@pytest.mark.parametrize("ids", RULES)
@pytest.mark.slow
def test_a_change_is_minimal_and_does_what_is_wanted(ids: list[list[str]]) -> None:
    texts, tokenizer, rule = ordinary_texts(), piece_tokenizer(), Rule.parse(ids)
    cells = where(rule, 12)
    made = rewritten(rule, texts, cells, tokenizer, become=False)
    assert len(made) >= 0.7 * len(cells)
    for one in made:
        cell = cells[np.array([one.cell])]
        original = texts.ids_of(int(cell.text[0]))
        for raw, expected in ((one.wanted, False), (one.sham, True)):
            changed = Texts.read(tokenizer, [raw], tokens=64)
            assert changed.lengths[0] == len(original)
            differing = np.flatnonzero(np.array(changed.ids_of(0)) != np.array(original))
            assert len(differing) > 0 and np.ptp(differing) < 12
            moved = Cells(np.zeros(1), cell.destination, cell.source)
            assert bool(rule.holds(changed, moved)[0]) == expected


def test_changes_are_the_same_each_time() -> None:
    rule = Rule.parse([["source.capitalised"]])
    made = [
        rewritten(rule, ordinary_texts(), where(rule, 8), piece_tokenizer(), become=False) for _ in range(2)
    ]
    assert made[0] == made[1]


@pytest.mark.parametrize("ids", [RULES[i] for i in (0, 4, 6)])
@pytest.mark.slow
def test_a_true_cause_passes_break_and_make(ids: list[list[str]]) -> None:
    texts, tokenizer, rule = ordinary_texts(), piece_tokenizer(), Rule.parse(ids)
    found = broken(rule, texts, where(rule), tokenizer, planted(rule))
    assert found.n >= FEWEST and found.p < 1e-4
    assert found.effect > 0.8 and abs(found.sham) < 0.2
    if ids == RULES[0]:
        done = made_true(rule, texts, where(rule, holds=False), tokenizer, planted(rule), 0.5)
        assert done.n >= FEWEST and done.p < 1e-4 and done.effect == 1.0 and done.sham == 0.0


def test_a_correlate_is_named_and_fails_break() -> None:
    """The signal is caused by a comma *before* the source; in these texts the source is then always ``and``."""
    raw = [
        f"we saw {'the ' * (i % 3)}big dog, and it went on to the old house of stone ." for i in range(160)
    ]
    tokenizer = piece_tokenizer()
    texts = Texts.read(tokenizer, raw, tokens=64)
    cause = planted(Rule.parse([["source.after:comma"]]))
    cells = Cells.joined([_row(texts, i) for i in range(len(texts))])
    fires = cause(texts, cells) > 0.5
    explore, rng = cells.text < 80, np.random.default_rng(0)
    named = Rule.parse([["source.word=and"]])
    found = find_rule(texts, cells[explore & fires], cells[explore & ~fires][:800])
    assert found.rule is not None
    assert (
        found.rule.holds(texts, cells) == named.holds(texts, cells)
    ).all()  # nothing here tells the two apart
    positives = cells[~explore & fires]
    others = cells[~explore & ~fires]
    random = others[rng.permutation(len(others))[: len(positives)]]
    own = Cells(positives.text, positives.destination, positives.source - 2)
    assert (
        judged([name_test(*(named.holds(texts, part) for part in (positives, own, random)))])[0].verdict
        == "named"
    )
    failed = broken(named, texts, positives, tokenizer, cause)
    passed = broken(Rule.parse([["source.after:comma"]]), texts, positives, tokenizer, cause)
    assert failed.n >= FEWEST and failed.p > 0.05
    assert passed.n >= FEWEST and passed.p < 1e-4
    assert causal_flags([[failed], [passed]]) == [(), ("break",)]


def _row(texts: Texts, text: int) -> Cells:
    """The cells of one text's last token."""
    last = int(texts.lengths[text]) - 1
    return Cells(np.full(last - 2, text), np.full(last - 2, last), np.arange(2, last))


def test_a_sham_that_hits_the_place_of_the_cause_is_no_evidence() -> None:
    """The signal is caused by one word alone; the wider name is true of its shams, which take the signal as well."""
    texts, tokenizer = ordinary_texts(), piece_tokenizer()
    wide, cause = (
        Rule.parse([["source.class=article"]]),
        planted(Rule.parse([["source.word=the", "source.lower-case"]])),
    )
    cells = where(Rule.parse([["source.word=the", "source.lower-case"]]))
    found = broken(wide, texts, cells, tokenizer, cause)
    assert found.same_place > 0.5
    assert found.sham > 0.5 * found.effect


def test_too_few_texts_are_no_evidence() -> None:
    rule = Rule.parse([["source.comma"]])
    found = broken(rule, ordinary_texts(), where(rule, 5), piece_tokenizer(), planted(rule))
    assert found.n == 5 and found.p == 1.0
    nothing = broken(rule, ordinary_texts(), where(rule, 5)[:0], piece_tokenizer(), planted(rule))
    assert nothing.n == 0 and nothing.p == 1.0 and nothing.to_json()["kind"] == "break"


def test_attention_must_fall_where_the_name_holds() -> None:
    rng = np.random.default_rng(0)
    holds = np.arange(60) < 30
    fall = rng.normal(0, 0.1, 60)
    assert removed(holds, fall + 0.5 * holds).p < 1e-6
    assert removed(holds, fall - 0.5 * holds).p > 0.99
    assert removed(holds[:10], fall[:10]).p == 1.0


def test_each_kind_is_a_family_of_its_own() -> None:
    weak = ChangeTest("make", 30, 0.04, 1.0, 0.0)
    assert causal_flags([[weak], [ChangeTest("break", 30, 0.9, 0.0, 0.0)]]) == [("make",), ()]
    assert causal_flags([[weak], [ChangeTest("make", 30, 0.9, 0.0, 0.0)]]) == [(), ()]
