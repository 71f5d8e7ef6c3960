"""One subject from its cells to its verdict: a rule found on explored cells, asked of test cells, once.

Nothing here sees test cells before the rule is fixed: the search is handed the explore half alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from headwise.intervals import estimate
from headwise.naming.cells import Cells
from headwise.naming.predicates.lexicon import NOTHING, Lexicon
from headwise.naming.reservoir import Kept, Reservoir
from headwise.naming.result import CellExample, Words
from headwise.naming.sample import CellKind
from headwise.naming.search import Found, find_rules
from headwise.naming.statistics import LEAST, NameTest, name_test, too_rare
from headwise.types import Estimate

if TYPE_CHECKING:
    from headwise.naming.rules import Rule
    from headwise.naming.texts import Texts

PAIRED: tuple[CellKind, ...] = ("positive", "own", "random", "matched")
BANDS: tuple[CellKind, ...] = ("top", "upper", "middle")
FEW = 20
"""Matched cells below which nothing is said of positions."""
SHOWN = 8
"""Examples of each kind that are kept."""
AROUND = (10, 4)
"""Tokens shown before the earlier and after the later of the two."""


@dataclass(frozen=True, eq=False)
class TriedRule:
    """A rule and its test; neither where a subject is too rare, no test where there is no rule."""

    found: Found | None
    test: NameTest | None
    matched: Estimate | None = None
    """Balanced accuracy against cells of other texts at the same two positions."""
    near: float | None = None
    """Share of the cells just below the threshold where the rule holds."""

    @property
    def rule(self) -> Rule | None:
        return None if self.found is None else self.found.rule


@dataclass(frozen=True, eq=False)
class Cases:
    """The cells of all subjects, and how they are read: as they are, or in other texts (the swapped control)."""

    texts: Texts
    explore: Reservoir
    test: Reservoir
    other: np.ndarray | None = None
    """[texts]: the text that each is read in; None: itself."""
    lexicon: Lexicon = NOTHING

    def tried(self, numbers: Sequence[int]) -> Iterator[TriedRule]:
        """Search and test of some subjects, in their order."""
        rare = [len(self._cells(self.test, "positive", number)) < LEAST for number in numbers]
        samples = [
            (self._cells(self.explore, "positive", number), self._negatives(self.explore, number))
            for number, few in zip(numbers, rare, strict=True)
            if not few
        ]
        # the swapped control has no use for position: cells keep theirs when they are read elsewhere
        found = find_rules(self.texts, samples, positional=self.other is None, lexicon=self.lexicon)
        for number, few in zip(numbers, rare, strict=True):
            yield TriedRule(None, too_rare()) if few else self._tested(number, next(found))

    def _tested(self, number: int, found: Found) -> TriedRule:
        """A rule, asked of the test cells."""
        rule = found.rule
        if rule is None:
            return TriedRule(found, None)
        cells = {kind: self._paired(self.test, kind, number) for kind in PAIRED}
        there = {kind: some.text >= 0 for kind, some in cells.items()}
        holds = {kind: rule.holds(self.texts, cells[kind][there[kind]]) for kind in PAIRED}
        bands = {band: rule.holds(self.texts, self._cells(self.test, band, number)) for band in BANDS}
        near = rule.holds(self.texts, self._cells(self.test, "near", number))
        test = name_test(
            holds["positive"],
            holds["own"],
            holds["random"],
            holds["matched"],
            bands=bands,
            texts=cells["positive"].text,
            random_texts=cells["random"].text[there["random"]],
        )
        matched = None
        if len(holds["matched"]) >= FEW:
            right = (holds["positive"][there["matched"]] + 1.0 - holds["matched"]) / 2
            matched = estimate(torch.from_numpy(right), 0, "position-matched")
        return TriedRule(found, test, matched, float(near.mean()) if len(near) else None)

    def _negatives(self, half: Reservoir, number: int) -> Cells:
        return Cells.joined([self._cells(half, kind, number) for kind in ("own", "random")])

    def _cells(self, half: Reservoir, kind: CellKind, number: int) -> Cells:
        """The cells of a kind that there are."""
        cells = self._paired(half, kind, number)
        return cells[cells.text >= 0]

    def _paired(self, half: Reservoir, kind: CellKind, number: int) -> Cells:
        cells = half.kept(kind, number).cells
        if self.other is None:
            return cells
        there = cells.text >= 0
        return Cells(np.where(there, self.other[cells.text], -1), cells.destination, cells.source)


def words_of(found: Found) -> Words | None:
    """A rule in words."""
    if found.rule is None:
        return None
    name = found.rule.name
    return Words(
        destination=name.destination,
        source=name.source,
        relation=name.relation,
        text=name.text,
        rule=found.rule.ids,
        equally_good=tuple(str(rule) for rule in found.equally_good),
    )


def examples_of(cases: Cases, number: int, rule: Rule | None) -> tuple[CellExample, ...]:
    """The strongest test cells, and those where the name fails."""
    texts, test = cases.texts, cases.test
    made = _examples(texts, "strongest", test.kept("strongest", number), rule, None)
    if rule is None:
        return tuple(made)
    positive = test.kept("positive", number)
    made += _examples(texts, "missed", positive, rule, False)
    negatives = [test.kept(kind, number) for kind in ("own", "random", "matched")]
    both = Kept(
        Cells.joined([one.cells for one in negatives]), np.concatenate([one.score for one in negatives])
    )
    return (*made, *_examples(texts, "false alarm", both, rule, True))


def _examples(texts: Texts, kind: str, kept: Kept, rule: Rule | None, only: bool | None) -> list[CellExample]:
    """The first few cells, or those where the rule holds (``only`` True) or does not (False)."""
    there = kept.cells.text >= 0
    cells, scores = kept.cells[there], kept.score[there]
    holds = np.zeros(len(cells), dtype=bool) if rule is None else rule.holds(texts, cells)
    chosen = np.arange(len(cells)) if only is None else np.flatnonzero(holds == only)
    return [_example(texts, kind, cells, scores, holds, int(at)) for at in chosen[:SHOWN]]


def _example(
    texts: Texts, kind: str, cells: Cells, scores: np.ndarray, holds: np.ndarray, at: int
) -> CellExample:
    text, d, s = (int(x[at]) for x in (cells.text, cells.destination, cells.source))
    strings = texts.strings_of(text)
    first, last = max(0, min(d, s) - AROUND[0]), max(d, s) + 1 + AROUND[1]
    return CellExample(
        kind=kind,
        tokens=tuple(strings[first:last]),
        destination=d - first,
        source=s - first,
        score=float(scores[at]),
        holds=bool(holds[at]),
    )
