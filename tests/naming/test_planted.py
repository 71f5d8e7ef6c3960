"""A rule that a model really follows is named, and the evidence of changed texts is for it.

What is named is asked on ten splits of the texts: the writer's, the channel's and the signal's names are the truth on
all of them. The head's own attention is where nothing else competes in its row; on one split of ten its name is wider
than the truth ("an animal" without "from what is no name").
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pieces import all_cells
from planted_words import planted_words, worded_corpus
from rich.console import Console

from headwise.naming.cells import Cells
from headwise.naming.result import NamesResult
from headwise.naming.rules import Rule
from headwise.naming.run import find_names
from headwise.naming.selftest import kappa
from headwise.naming.texts import Texts
from headwise.show.naming.page import names_page
from headwise.show.naming.terminal import names_table

pytestmark = pytest.mark.slow

ANIMAL = Rule.parse([["source.category=animal", "not destination.category=name"]])
PLACE = Rule.parse([["source.category=place", "destination.category=name"]])
BOTH = Rule(ANIMAL.conjunctions + PLACE.conjunctions)
SOURCE = "L1H0,L1H0 ch0,L1H0 key ch0 embedding,L1H0 key embedding"


def named(*, flipped: bool = False, source: str = SOURCE, **settings: Any) -> NamesResult:
    return find_names(
        planted_words(flipped=flipped), source, corpus=worded_corpus(), tokens=23, rotated=False, **settings
    )


@pytest.fixture(scope="module")
def found() -> NamesResult:
    return named(causal=True)


def other_cells() -> tuple[Texts, Cells]:
    """Cells of texts that no name was found or tested on."""
    texts = Texts.of(planted_words(), worded_corpus(330), tokens=23)
    return texts, all_cells(texts, np.arange(260, 330))


def rule_of(found: NamesResult, signal: str) -> Rule:
    name = found[signal].name
    assert name is not None
    return Rule.parse(name.rule)


def poles(found: NamesResult, signal: str) -> set[str]:
    """What each pole's name says, in the rows that belong to the pole."""
    texts, cells = other_cells()
    of_names = Rule.parse([["destination.category=name"]]).holds(texts, cells)
    said = set()
    for pole in ("++", "--"):
        rule = rule_of(found, f"{signal} {pole}")
        for word, truth, rows in (("animal", ANIMAL, ~of_names), ("place", PLACE, of_names)):
            asked = cells[rows]
            if kappa(truth.holds(texts, asked), rule.holds(texts, asked)) >= 0.9:
                said.add(f"{pole} {word}")
    return said


SPLITS = 10


def test_what_was_put_into_the_weights_is_named_on_every_split() -> None:
    texts, cells = other_cells()
    truth = BOTH.holds(texts, cells)
    heads = 0
    for split in range(SPLITS):
        found = named(split_seed=split)
        assert [one.verdict for one in found.signals] == ["named"] * 6
        assert kappa(truth, rule_of(found, "L1H0 key embedding").holds(texts, cells)) >= 0.9
        # two poles, two names, never pooled; which is which is a matter of sign
        assert poles(found, "L1H0 ch0") in BY_POLE
        assert poles(found, "L1H0 key ch0 embedding") in BY_POLE
        # softmax shares a row out: the head's own attention is where nothing else competes, and nowhere but by the rule
        holds = rule_of(found, "L1H0").holds(texts, cells)
        heads += bool(holds.sum() > 100 and truth[holds].mean() > 0.95)
    assert heads >= SPLITS - 1


BY_POLE = ({"++ animal", "-- place"}, {"++ place", "-- animal"})


def test_a_channel_with_its_sign_turned_has_the_same_names(found: NamesResult) -> None:
    again = named(flipped=True, source="L1H0 ch0")
    assert poles(again, "L1H0 ch0") in BY_POLE
    assert {again[f"L1H0 ch0 {pole}"].verdict for pole in ("++", "--")} == {"named"}


def test_breaking_the_name_takes_the_signal_away(found: NamesResult) -> None:
    for one in found.signals:
        assert one.causal is not None
        assert "break" in one.causal.passed and "causal" in one.flags
        test = one.causal.tests[0]
        assert test.n >= 20 and test.effect and test.sham
        assert test.effect.low > 2 * abs(test.sham.mean)
        if one.level == "signal":
            assert one.causal.passed == ("break", "make", "remove")


def test_terminal_and_page_say_what_was_shown(found: NamesResult) -> None:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(names_table(found))
    said = console.export_text()
    assert "break, make" in said
    assert "breaking the name takes the signal away more than a matched change that leaves it true" in said
    page = names_page(found)
    assert "Breaking the name takes the signal away more than a matched change that leaves it true" in page
    assert "the signal removed" in page and "observational" not in page
    entry = found.to_json()["signals"][0]["causal"]
    assert entry["flag"] == "causal" and entry["remove"] is None
    assert set(entry["break"]) >= {"n", "p", "q", "effect", "sham", "difference"}
    assert set(entry["break"]["effect"]) >= {"mean", "low", "high"}


def test_evidence_continues_where_it_was_interrupted(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(stage: str, done: int, _total: int) -> None:
        if stage == "changed names" and done:
            raise Stop

    asked: dict[str, Any] = dict(source="L1H0,L1H0 ch0", causal=True)
    with pytest.raises(Stop):
        named(**asked, out=tmp_path / "one", progress=stop)
    named(**asked, out=tmp_path / "one")
    named(**asked, out=tmp_path / "two")
    files = sorted(file.name for file in (tmp_path / "two").iterdir())
    assert files == sorted(file.name for file in (tmp_path / "one").iterdir())
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    again = NamesResult.load(tmp_path / "one")
    assert again["L1H0"].causal and again["L1H0"].causal.passed[:1] == ("break",)
