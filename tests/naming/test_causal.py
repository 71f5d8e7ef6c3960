"""Causal evidence: a planted cause passes, a mere correlate that was named does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pieces import drawn_cells, ordinary_texts, piece_tokenizer

from headwise.naming.causal import broken, compared_cells, made_true, removed
from headwise.naming.cells import Cells
from headwise.naming.change import FEWEST, ChangeTest, causal_evidence
from headwise.naming.rewriting import rewritten
from headwise.naming.rules import Rule
from headwise.naming.search import find_rule
from headwise.naming.statistics import judged, name_test
from headwise.naming.texts import Texts
from headwise.types import Side

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
    assert found.effect and found.sham and found.difference
    assert found.effect.mean > 0.8 and abs(found.sham.mean) < 0.2
    assert found.difference.low > 0.6 and found.effect.low <= found.effect.mean <= found.effect.high
    if ids == RULES[0]:
        done = made_true(rule, texts, where(rule, holds=False), tokenizer, planted(rule), 0.5)
        assert done.n >= FEWEST and done.p < 1e-4 and done.effect and done.sham
        assert done.effect.mean == 1.0 and done.sham.mean == 0.0


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
    wrong, right = causal_evidence([[failed], [passed]])
    assert wrong.passed == () and not wrong.is_causal and wrong.sentence.startswith("observational: changing")
    assert right.passed == ("break",) and right.is_causal and right.sentence.startswith("breaking the name")


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
    assert found.same_place and found.effect and found.sham
    assert found.same_place > 0.5
    assert found.sham.mean > 0.5 * found.effect.mean


def test_cells_that_positions_decide_are_not_tried() -> None:
    """Half of these cells are a token itself, where nothing can make the name false: the others are changed."""
    texts, tokenizer = ordinary_texts(), piece_tokenizer()
    rule = Rule.parse([["relation.distance=0"], ["source.comma"]])
    commas = where(Rule.parse([["source.comma", "not relation.distance=0"]]))
    itself = Cells(commas.text, commas.destination, commas.destination)
    found = broken(rule, texts, Cells.joined([itself, itself, commas]), tokenizer, planted(rule))
    assert found.n >= FEWEST and found.p < 1e-4
    assert rewritten(rule, texts, itself, tokenizer, become=False) == []


def test_too_few_texts_are_no_evidence() -> None:
    rule = Rule.parse([["source.comma"]])
    found = broken(rule, ordinary_texts(), where(rule, 5), piece_tokenizer(), planted(rule))
    assert found.n == 5 and found.p == 1.0
    nothing = broken(rule, ordinary_texts(), where(rule, 5)[:0], piece_tokenizer(), planted(rule))
    assert nothing.n == 0 and nothing.p == 1.0 and nothing.to_json()["effect"] is None
    assert causal_evidence([[found]])[0].sentence.endswith("too few texts could be changed to tell")


def test_attention_must_fall_where_the_name_holds() -> None:
    rng = np.random.default_rng(0)
    fall, other = rng.normal(0, 0.1, 30), rng.normal(0, 0.1, 30)
    assert removed(fall + 0.5, other).p < 1e-6
    assert removed(fall - 0.5, other).p > 0.99
    assert removed(fall[:10] + 0.5, other[:10]).p == 1.0


@pytest.mark.parametrize("side", ["key", "query"])
def test_cells_to_compare_are_drawn_by_the_name_alone(side: Side) -> None:
    texts = ordinary_texts()
    rule = Rule.parse([["source.comma", "destination.class=content-word"]])
    holding, lacking = compared_cells(rule, texts, np.arange(len(texts)), side)
    assert len(holding) == len(lacking) == 40
    assert len(np.unique(holding.text)) == 40 and (holding.text == lacking.text).all()
    assert rule.holds(texts, holding).all() and not rule.holds(texts, lacking).any()
    assert (holding.source > 0).all() and (lacking.source > 0).all()
    same, other = ("destination", "source") if side == "key" else ("source", "destination")
    assert (getattr(holding, same) == getattr(lacking, same)).all()
    assert (getattr(holding, other) != getattr(lacking, other)).all()


def test_each_kind_is_a_family_of_its_own() -> None:
    weak = ChangeTest("make", 30, 0.04)
    apart = causal_evidence([[weak], [ChangeTest("break", 30, 0.9)]])
    assert [one.passed for one in apart] == [("make",), ()]
    together = causal_evidence([[weak], [ChangeTest("make", 30, 0.9)]])
    assert [one.passed for one in together] == [(), ()]
    assert [one.q for one in together] == [(0.08,), (0.9,)]


def test_a_signal_that_only_matters_is_not_called_causal() -> None:
    """Removing it shows what it does, not what makes it act."""
    (only,) = causal_evidence([[ChangeTest("break", 30, 0.9), ChangeTest("remove", 30, 1e-6)]])
    assert only.passed == ("remove",) and not only.is_causal
    assert only.to_json()["flag"] == "observational" and only.to_json()["make"] is None
