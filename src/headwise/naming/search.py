"""The search for a rule that tells a signal's cells from others, on the half of the texts that is there to explore.

A rule splits cells in two. Its *gain* is by how many nats the two shares of positive cells explain the labels better
than one share does, less what it costs to pick the rule's predicates from the library and less ½ ln n for the second
share. A rule without gain is no name. Nothing here sees the other half of the texts: what is not given cannot leak.

All predicates are asked once of all cells; the search itself only counts where several are true together, which is a
matrix product of zeros and ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from headwise.naming.cells import Cells
from headwise.naming.predicates.lexicon import NOTHING, Lexicon
from headwise.naming.predicates.library import identities, library
from headwise.naming.predicates.predicate import Places, Predicate
from headwise.naming.rules import Literal, Rule
from headwise.naming.texts import Texts

BEAM = 15
LITERALS = 3
"""The longest conjunction."""
MARGIN = 2.0
"""Nats within which another rule is as good as the best."""
SHOWN = 5
"""At most so many rules are shown as equally good."""
STARTS = (3, 1, 1)
"""For how many of the best conjunctions of one, two and three literals a second conjunction is looked for."""
CONJUNCTION = math.log(LITERALS)
"""Nats for how many literals a conjunction has."""
TOGETHER = 100_000
"""Cells that the library is asked about at once."""


@dataclass(frozen=True)
class Found:
    """What a search found: the best rule, if any explains more than it costs, and those as good as it."""

    rule: Rule | None
    gain: float
    """Nats that the best rule explains beyond its cost; 0 without a rule."""
    equally_good: tuple[Rule, ...] = ()


def find_rule(
    texts: Texts,
    positives: Cells,
    negatives: Cells,
    *,
    predicates: Sequence[Predicate] | None = None,
    positional: bool = True,
    lexicon: Lexicon = NOTHING,
) -> Found:
    """The rule that best tells positive cells from negative ones.

    ``predicates`` takes the place of the library and of the tokens and words of the cells; without ``positional``
    no predicate is used whose answer can follow from positions alone.
    """
    return next(
        find_rules(
            texts, [(positives, negatives)], predicates=predicates, positional=positional, lexicon=lexicon
        )
    )


def find_rules(
    texts: Texts,
    samples: Iterable[tuple[Cells, Cells]],
    *,
    predicates: Sequence[Predicate] | None = None,
    positional: bool = True,
    lexicon: Lexicon = NOTHING,
) -> Iterator[Found]:
    """The best rule for each of many samples of positive and negative cells, in their order."""
    base = tuple(library(lexicon) if predicates is None else predicates)
    base = tuple(one for one in base if positional or not one.positional)
    for batch in _batches(samples):
        asked = _asked(base, texts, Cells.joined([part for sample in batch for part in sample]))
        start = 0
        for positives, negatives in batch:
            cells = Cells.joined([positives, negatives])
            answers = asked[:, start : start + len(cells)]
            start += len(cells)
            own = identities(texts, cells) if predicates is None else ()
            more = _asked(own, texts, cells)
            yield _search((*base, *own), np.concatenate([answers, more]), len(positives))


def _batches(samples: Iterable[tuple[Cells, Cells]]) -> Iterator[list[tuple[Cells, Cells]]]:
    """Samples, as many at a time as the library is asked about at once."""
    batch: list[tuple[Cells, Cells]] = []
    cells = 0
    for sample in samples:
        batch.append(sample)
        cells += len(sample[0]) + len(sample[1])
        if cells >= TOGETHER:
            yield batch
            batch, cells = [], 0
    if batch:
        yield batch


def _asked(predicates: Sequence[Predicate], texts: Texts, cells: Cells) -> np.ndarray:
    """[predicates, cells] bool: what is true where."""
    places = Places(texts, cells)
    answers = np.zeros((len(predicates), len(cells)), dtype=bool)
    for row, one in zip(answers, predicates, strict=True):
        row[:] = one.ask(places)
    return answers


# --- labels and literals -------------------------------------------------------------------------------------------


def _xlogx(values: np.ndarray) -> np.ndarray:
    return values * np.log(np.maximum(values, 1.0))  # counts: 0 log 0 = 0 and 1 log 1 = 0


@dataclass(frozen=True, eq=False)
class _Literals:
    """The literals of one search, and the labels: positive cells first."""

    literals: tuple[Literal, ...]
    answers: np.ndarray
    """[literals, cells] as 0 and 1 in float32, so that counting is a matrix product; exact for whole numbers."""
    costs: np.ndarray
    positives: int
    cells: int
    nothing: float = field(init=False)
    """The log-likelihood of the labels without a rule."""

    def __post_init__(self) -> None:
        one, other, both = _xlogx(np.array([self.positives, self.cells - self.positives, self.cells], float))
        object.__setattr__(self, "nothing", float(one + other - both))

    def gains(self, within: np.ndarray, before: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """[rows, literals]: nats that *before, or within and the literal* explains beyond its cost.

        ``within`` [rows, cells] and ``before`` [cells] are 0 or 1; -inf where a rule tells the wrong way round.
        """
        new = within * (1 - before)
        right = (new[:, : self.positives] @ self.answers[:, : self.positives].T).astype(float)
        wrong = (new[:, self.positives :] @ self.answers[:, self.positives :].T).astype(float)
        right += float(before[: self.positives].sum())
        wrong += float(before[self.positives :].sum())
        true, negatives = right + wrong, self.cells - self.positives
        likelihood = _xlogx(right) + _xlogx(wrong) - _xlogx(true)
        likelihood += _xlogx(self.positives - right) + _xlogx(negatives - wrong) - _xlogx(self.cells - true)
        gains = likelihood - self.nothing - costs - 0.5 * math.log(self.cells)
        return np.where(right * self.cells > true * self.positives, gains, -np.inf)


def _table(predicates: Sequence[Predicate], answers: np.ndarray, positives: int) -> _Literals:
    """Literals that are true of some cells and false of others, affirmed and denied."""
    varied = np.flatnonzero(answers.any(1) & ~answers.all(1)).tolist() if answers.shape[1] else []
    kept = answers[varied]
    literals = [Literal(predicates[i]) for i in varied] + [Literal(predicates[i], True) for i in varied]
    costs = np.array([predicates[i].cost for i in varied])
    return _Literals(
        literals=tuple(literals),
        answers=np.concatenate([kept, ~kept]).astype(np.float32),
        costs=np.concatenate([costs, costs + math.log(2)]),
        positives=positives,
        cells=answers.shape[1],
    )


# --- beam ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Candidate:
    gain: float
    cost: float
    chosen: tuple[tuple[int, ...], ...]
    """The literals of each conjunction, by number."""
    holds: np.ndarray
    """[cells]: 1 where it is true."""

    @property
    def order(self) -> tuple[float, float, int, tuple[tuple[int, ...], ...]]:
        """Best first; ties by cost, then by length, then by the order of the library."""
        return (-round(self.gain, 9), round(self.cost, 9), sum(map(len, self.chosen)), self.chosen)


def _search(predicates: Sequence[Predicate], answers: np.ndarray, positives: int) -> Found:
    table = _table(predicates, answers, positives)
    if not len(table.literals) or not 0 < positives < table.cells:
        return Found(None, 0.0)
    pool = _conjunctions(table, None)
    for first in _starts(pool):
        pool += _conjunctions(table, first)
    pool = _exchanged(table, pool)
    if not pool or pool[0].gain <= 0:
        return Found(None, 0.0)
    best = pool[0]
    return Found(_rule(table, best), best.gain, _equally_good(table, best, pool))


def _conjunctions(table: _Literals, first: _Candidate | None) -> list[_Candidate]:
    """The best conjunctions of each length, each joined to ``first`` by *or* if one is given."""
    before, spent, chosen = (
        (np.zeros(table.cells, np.float32), 0.0, ())
        if first is None
        else (first.holds, first.cost, first.chosen)
    )
    beam: list[tuple[tuple[int, ...], np.ndarray, float]] = [
        ((), np.ones(table.cells, np.float32), CONJUNCTION)
    ]
    pool: list[_Candidate] = []
    for _ in range(LITERALS):
        within = np.stack([one for _, one, _ in beam])
        costs = spent + np.array([cost for *_, cost in beam])[:, None] + table.costs[None]
        gains = table.gains(within, before, costs)
        seen: set[tuple[int, ...]] = set()
        patterns: set[bytes] = set()
        extended: list[tuple[tuple[int, ...], np.ndarray, float]] = []
        for flat in _best_first(gains, costs):
            row, column = divmod(flat, gains.shape[1])
            literals = tuple(sorted({*beam[row][0], column}))
            if len(literals) <= len(beam[row][0]) or literals in seen:
                continue
            seen.add(literals)
            holds = within[row] * table.answers[column]
            gain, cost = float(gains[row, column]), float(costs[row, column])
            pool.append(_Candidate(gain, cost, (*chosen, literals), np.maximum(holds, before)))
            # Two ways to say the same are both shown at the end, but only one of them is followed.
            pattern = holds.tobytes()
            if pattern not in patterns and len(extended) < BEAM:
                patterns.add(pattern)
                extended.append((literals, holds, cost - spent))
        beam = extended
        if not beam:
            break
    return pool


def _best_first(gains: np.ndarray, costs: np.ndarray, most: int = 4 * BEAM) -> Iterator[int]:
    """Flat numbers of the best entries: by gain, then by cost, then by place."""
    flat, price = gains.reshape(-1), costs.reshape(-1)
    finite = np.flatnonzero(np.isfinite(flat))
    if len(finite) > most:
        # All entries that tie with the last one stay in, so that the order below decides and not the partition.
        edge = np.partition(flat[finite], -most)[-most]
        finite = finite[flat[finite] >= edge - 1e-9]
    order = np.lexsort((finite, np.round(price[finite], 9), -np.round(flat[finite], 9)))
    return iter(finite[order].tolist())


def _starts(pool: Sequence[_Candidate]) -> list[_Candidate]:
    """The best conjunctions of each length, no two of which are true of the same cells."""
    kept: dict[bytes, _Candidate] = {}
    left: list[int] = list(STARTS)
    for one in sorted(pool, key=lambda one: one.order):
        length = len(one.chosen[0]) - 1
        if left[length] and one.holds.tobytes() not in kept:
            kept[one.holds.tobytes()] = one
            left[length] -= 1
    return list(kept.values())


def _exchanged(table: _Literals, pool: list[_Candidate]) -> list[_Candidate]:
    """The pool, best first, after its best rules had every one of their literals exchanged, as long as one gains.

    The beam builds a rule literal by literal, and drops a literal that is true of too much alone: *a place* before
    *from a name*, for which *the last place* came through. What is true of more, and right with the others, is found
    by putting it in the place of what was found.
    """
    pool = sorted(pool, key=lambda one: one.order)
    seen = {one.chosen for one in pool}
    tried: set[tuple[tuple[int, ...], ...]] = set()
    while open_ := [one for one in pool[:BEAM] if one.chosen not in tried]:
        for one in open_:
            tried.add(one.chosen)
            for made in _with_one_exchanged(table, one):
                if made.chosen not in seen and made.gain > one.gain:
                    seen.add(made.chosen)
                    pool.append(made)
        pool.sort(key=lambda one: one.order)
    return pool


def _with_one_exchanged(table: _Literals, one: _Candidate) -> Iterator[_Candidate]:
    """For each literal of a rule the best other one in its place."""
    for number, literals in enumerate(one.chosen):
        rest = [_all_of(table, other) for i, other in enumerate(one.chosen) if i != number]
        before = np.maximum.reduce([np.zeros(table.cells, np.float32), *rest])
        for literal in literals:
            kept = tuple(i for i in literals if i != literal)
            within = _all_of(table, kept)
            costs = one.cost - table.costs[literal] + table.costs[None]
            gains = table.gains(within[None], before, costs)
            gains[0, list(literals)] = -np.inf
            best = next(_best_first(gains, costs, most=1), None)
            if best is None:
                continue
            joined = tuple(sorted((*kept, best)))
            chosen = (*one.chosen[:number], joined, *one.chosen[number + 1 :])
            holds = np.maximum(within * table.answers[best], before)
            yield _Candidate(float(gains[0, best]), float(costs[0, best]), chosen, holds)


def _all_of(table: _Literals, literals: Sequence[int]) -> np.ndarray:
    """[cells]: 1 where all of some literals are true."""
    return table.answers[list(literals)].min(0, initial=1.0)


def _rule(table: _Literals, one: _Candidate) -> Rule:
    return Rule(tuple(tuple(table.literals[i] for i in literals) for literals in one.chosen))


def _equally_good(table: _Literals, best: _Candidate, pool: Sequence[_Candidate]) -> tuple[Rule, ...]:
    """Other rules within the margin; what only adds to a rule already shown is left out."""
    shown = [best]
    for one in pool:
        if one.gain < best.gain - MARGIN or len(shown) > SHOWN:
            break
        if not any(_includes(one, other) for other in shown):
            shown.append(one)
    return tuple(_rule(table, one) for one in shown[1:])


def _includes(one: _Candidate, other: _Candidate) -> bool:
    """Whether one rule has all literals of another: both are one rule, or the longer one adds nothing."""
    return {i for part in other.chosen for i in part} <= {i for part in one.chosen for i in part}
