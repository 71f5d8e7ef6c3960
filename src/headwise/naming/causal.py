"""Is what a name says the cause? Texts are changed and the signal is measured again.

* **Break**: a change that makes the name false must take more of the signal than a sham of the same size that leaves it
  true: an exact one-sided sign test over texts.
* **Make**: a change that makes the name true where it was false must bring the signal above its threshold more often
  than a change of the same size that does not: an exact one-sided McNemar test.
* **Remove**: without the signal, attention must fall more where the name holds than where it does not, in the same row:
  an exact one-sided sign test over texts. Cells are drawn by the name alone, whether the signal acts there or not.

Each kind is a family of its own for false discoveries. A name without any of it is *observational*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy import stats

from headwise.intervals import estimate
from headwise.naming.cells import Cells
from headwise.naming.change import FEWEST, CausalKind, ChangeTest
from headwise.naming.rewriting import Rewritten, rewritten
from headwise.naming.rules import Rule
from headwise.naming.statistics import mcnemar
from headwise.naming.texts import Texts
from headwise.randomness import keyed
from headwise.types import Side

MOST = 40
"""Texts that are changed; more are not needed."""
SHOWN = 5
"""Changes that are kept to be looked at."""

Score: TypeAlias = Callable[[Texts, Cells], np.ndarray]
"""How strongly a signal acts at cells of any texts: [cells]."""


def broken(
    rule: Rule, texts: Texts, positives: Cells, tokenizer: Any, score: Score, *, seed: int = 0
) -> ChangeTest:
    """Make the name false at test positives where it holds, and see whether the signal falls more than under a sham."""
    positives = positives[rule.holds(texts, positives) & rule.can_turn(texts, positives)][:MOST]
    made = rewritten(rule, texts, positives, tokenizer, become=False, seed=seed)
    before = score(texts, positives[_cells(made)]) if made else np.zeros(0)
    after, sham = _scores(made, positives, texts, tokenizer, score)
    return _tested("break", before - after, before - sham, sign_test(sham - after), made)


def made_true(
    rule: Rule,
    texts: Texts,
    negatives: Cells,
    tokenizer: Any,
    score: Score,
    threshold: float,
    *,
    seed: int = 0,
) -> ChangeTest:
    """Make the name true at negatives where it does not hold, and see how often the signal reaches its threshold."""
    negatives = negatives[~rule.holds(texts, negatives) & rule.can_turn(texts, negatives)][:MOST]
    made = rewritten(rule, texts, negatives, tokenizer, become=True, seed=seed)
    after, sham = (one >= threshold for one in _scores(made, negatives, texts, tokenizer, score))
    return _tested("make", after, sham, mcnemar(after, sham), made)


def removed(with_name: np.ndarray, without: np.ndarray) -> ChangeTest:
    """How much attention cells lost without the signal, text by text: where the name holds, and where it does not."""
    return _tested("remove", with_name, without, sign_test(with_name - without))


def sign_test(differences: np.ndarray) -> float:
    """Exact one-sided test that differences are positive more often than negative.

    >>> sign_test(np.array([1.0, 2.0, 0.5, 0.0, 3.0]))
    0.0625
    """
    more, less = int((differences > 0).sum()), int((differences < 0).sum())
    return float(stats.binom.sf(more - 1, more + less, 0.5)) if more + less else 1.0


def compared_cells(
    rule: Rule, texts: Texts, numbers: np.ndarray, own_slot: Side, *, seed: int = 0
) -> tuple[Cells, Cells]:
    """One cell of each text where the name holds, and one of the same row (of the same column, where the signal is of
    the query's side) where it does not: drawn at random, whether the signal acts there or not."""
    holding, lacking = [], []
    for number in numbers.tolist():
        if len(holding) == MOST:
            break
        destination, source = np.tril_indices(int(texts.lengths[number]))
        kept = source > 0  # the first token is left out here as everywhere
        cells = Cells(np.full(int(kept.sum()), number), destination[kept], source[kept])
        order = torch.randperm(len(cells), generator=keyed(seed, "remove", *texts.ids_of(number))).numpy()
        cells = cells[order]
        holds = rule.holds(texts, cells)
        slot = cells.source if own_slot == "query" else cells.destination
        mixed = np.intersect1d(slot[holds], slot[~holds])
        if len(mixed):
            first = int(np.flatnonzero(holds & np.isin(slot, mixed))[0])
            second = int(np.flatnonzero(~holds & (slot == slot[first]))[0])
            holding.append(cells[first : first + 1])
            lacking.append(cells[second : second + 1])
    return Cells.joined(holding), Cells.joined(lacking)


def _tested(
    kind: CausalKind, effect: np.ndarray, sham: np.ndarray, p: float, made: Sequence[Rewritten] = ()
) -> ChangeTest:
    n = len(effect)
    if not n:
        return ChangeTest(kind, 0, 1.0)
    values = (torch.from_numpy(np.asarray(x, dtype=float)) for x in (effect, sham))
    one, other = values
    return ChangeTest(
        kind,
        n,
        p if n >= FEWEST else 1.0,
        *(
            estimate(x, 0, kind, name)
            for name, x in (("effect", one), ("sham", other), ("both", one - other))
        ),
        same_place=float(np.mean([x.place == x.sham_place for x in made])) if made else None,
        examples=tuple(x.words for x in made[:SHOWN]),
    )


def _scores(
    made: Sequence[Rewritten], cells: Cells, texts: Texts, tokenizer: Any, score: Score
) -> tuple[np.ndarray, np.ndarray]:
    """The signal at the cells of changed texts: as wanted, and under the sham."""
    if not made:
        return np.zeros(0), np.zeros(0)
    raws = [*(one.wanted for one in made), *(one.sham for one in made)]
    changed = Texts.read(tokenizer, raws, tokens=int(texts.lengths.max()))
    at = np.tile(_cells(made), 2)
    values = score(changed, Cells(np.arange(len(raws)), cells.destination[at], cells.source[at]))
    return values[: len(made)], values[len(made) :]


def _cells(made: Sequence[Rewritten]) -> np.ndarray:
    return np.array([one.cell for one in made], dtype=np.int64)
