"""One subject from its cells to its test: a name found on explored cells, asked of test cells, once.

Nothing here sees test cells before the name is fixed: the search is handed the explore half alone. A rule can be asked
of any cell; whoever else gives names says where they hold, and the same tests follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

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

BANDS: tuple[CellKind, ...] = ("top", "upper", "middle")
FEW = 20
"""Matched cells below which nothing is said of positions."""
SHOWN = 20
"""The strongest cells that are kept as examples."""
FAILING = 8
"""Examples of either failure that are kept."""


Holds = Callable[[Cells], np.ndarray]
"""Where a name is true: [cells] bool."""


@dataclass(frozen=True, eq=False)
class TriedName:
    """A name and its test; neither where a subject is too rare, no test where there is no name."""

    words: Words | None
    test: NameTest | None
    matched: Estimate | None = None
    """Balanced accuracy against cells of other texts at the same two positions."""
    near: float | None = None
    """Share of the cells just below the threshold where the name holds."""
    holds: Holds | None = None
    """Where the name is true of test cells; None without one."""
    rule: Rule | None = None
    """The rule that the name was printed from, if it was."""
    unread: int = 0
    """Answers of a language model about it that could not be read."""


@dataclass(frozen=True, eq=False)
class Cases:
    """The cells of all subjects, and how they are read: as they are, or in other texts (the swapped control)."""

    texts: Texts
    explore: Reservoir
    test: Reservoir
    other: np.ndarray | None = None
    """[texts]: the text that each is read in; None: itself."""
    lexicon: Lexicon = NOTHING
    negatives: tuple[CellKind, CellKind] = ("own", "random")
    """The two kinds of negatives; the first are paired with the positives."""
    most: int | None = None
    """At most so many cells of each band are asked about; None: all."""

    def tried(self, numbers: Sequence[int]) -> Iterator[TriedName]:
        """Search for a rule and test of some subjects, in their order."""
        rare = [self.is_rare(number) for number in numbers]
        samples = [
            (self.cells(self.explore, "positive", number), self.explored_negatives(number))
            for number, few in zip(numbers, rare, strict=True)
            if not few
        ]
        # the swapped control has no use for position: cells keep theirs when they are read elsewhere
        found = find_rules(self.texts, samples, positional=self.other is None, lexicon=self.lexicon)
        for number, few in zip(numbers, rare, strict=True):
            yield TriedName(None, too_rare()) if few else self._tried_rule(number, next(found))

    def _tried_rule(self, number: int, found: Found) -> TriedName:
        if found.rule is None:
            return TriedName(None, None)
        holds = partial(found.rule.holds, self.texts)
        return TriedName(words_of(found), **self.tested(number, holds), holds=holds, rule=found.rule)

    def is_rare(self, number: int) -> bool:
        """Whether too few texts have a cell to test a name on."""
        return int(self._pairs(number).sum()) < LEAST

    def tested(self, number: int, holds: Holds) -> dict[str, Any]:
        """What a name comes to on the test cells: its test, how it does at matched positions, and near misses."""
        pairs, (first, second) = self._pairs(number), self.negatives
        positive, own, matched = (
            self._paired(kind, number)[pairs] for kind in ("positive", first, "matched")
        )
        random = self.cells(self.test, second, number)
        there = matched.text >= 0
        at_positives, at_matched = holds(positive), holds(matched[there])
        test = name_test(
            at_positives,
            holds(own),
            holds(random),
            at_matched,
            bands={band: holds(self.cells(self.test, band, number)) for band in BANDS},
            texts=positive.text,
            random_texts=random.text,
        )
        beyond = None
        if len(at_matched) >= FEW:
            right = (at_positives[there] + 1.0 - at_matched) / 2
            beyond = estimate(torch.from_numpy(right), 0, "position-matched")
        near = holds(self.cells(self.test, "near", number))
        return {"test": test, "matched": beyond, "near": float(near.mean()) if len(near) else None}

    def explored_negatives(self, number: int) -> Cells:
        """The explored cells where a subject does not act; those at the positions of positives, too, or what a rule
        leaves out of the truth is seldom met."""
        kinds = dict.fromkeys((*self.negatives, "matched"))
        return Cells.joined([self.cells(self.explore, kind, number) for kind in kinds])

    def cells(self, half: Reservoir, kind: CellKind, number: int) -> Cells:
        """The cells of a kind that there are."""
        cells = self.read_as(half.kept(kind, number).cells)
        cells = cells[cells.text >= 0]
        return cells[: self.most] if kind in (*BANDS, "near") else cells

    def _pairs(self, number: int) -> np.ndarray:
        """[positives] bool: test positives that have a negative of the first kind."""
        first = self._paired(self.negatives[0], number)
        return (self._paired("positive", number).text >= 0) & (first.text >= 0)

    def _paired(self, kind: CellKind, number: int) -> Cells:
        """Test cells, one per positive; their text is −1 where there is none."""
        return self.read_as(self.test.kept(kind, number).cells)

    def read_as(self, cells: Cells) -> Cells:
        """Cells in the texts that they are read in; −1 where a text has no other."""
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


def examples_of(cases: Cases, number: int, holds: Holds | None) -> tuple[CellExample, ...]:
    """The strongest test cells, and those where the name fails."""
    texts, test = cases.texts, cases.test
    strongest = test.kept("strongest", number)
    made = _examples(texts, "strongest", Kept(strongest.cells[:SHOWN], strongest.score[:SHOWN]), holds, None)
    if holds is None:
        return tuple(made)
    positive = test.kept("positive", number)
    made += _examples(texts, "missed", positive, holds, False)
    negatives = [test.kept(kind, number) for kind in ("own", "random", "matched")]
    both = Kept(
        Cells.joined([one.cells for one in negatives]), np.concatenate([one.score for one in negatives])
    )
    return (*made, *_examples(texts, "false alarm", both, holds, True))


def _examples(
    texts: Texts, kind: str, kept: Kept, holds: Holds | None, only: bool | None
) -> list[CellExample]:
    """The first few cells, or those where the name holds (``only`` True) or does not (False)."""
    there = kept.cells.text >= 0
    cells, scores = kept.cells[there], kept.score[there]
    held = np.zeros(len(cells), dtype=bool) if holds is None else holds(cells)
    chosen = np.arange(len(cells)) if only is None else np.flatnonzero(held == only)
    return [
        _example(texts, kind, cells, scores, held, int(at))
        for at in chosen[: SHOWN if only is None else FAILING]
    ]


def _example(
    texts: Texts, kind: str, cells: Cells, scores: np.ndarray, holds: np.ndarray, at: int
) -> CellExample:
    text, d, s = (int(x[at]) for x in (cells.text, cells.destination, cells.source))
    tokens, destination, source = texts.around(text, d, s)
    return CellExample(
        kind=kind,
        tokens=tokens,
        destination=destination,
        source=source,
        score=float(scores[at]),
        holds=bool(holds[at]),
    )
