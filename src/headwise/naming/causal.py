"""Is what a name says the cause? Texts are changed and the signal is measured again.

* **Break**: a change that makes the name false must take more of the signal than a sham of the same size that leaves it
  true: an exact one-sided sign test over texts.
* **Make**: a change that makes the name true where it was false must bring the signal above its threshold more often
  than a change of the same size that does not: an exact one-sided McNemar test.
* **Remove**: without the signal, attention must fall more where the name holds than where it does not.

Each kind is a family of its own for false discoveries. A name without any of it is *observational*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import stats

from headwise.naming.cells import Cells
from headwise.naming.rewriting import Rewritten, rewritten
from headwise.naming.rules import Rule
from headwise.naming.statistics import RATE, discoveries, mcnemar
from headwise.naming.texts import Texts

FEWEST = 20
"""Texts below which nothing is said."""
MOST = 40
"""Texts that are changed; more are not needed."""
SHOWN = 5
"""Changes that are kept to be looked at."""

Score: TypeAlias = Callable[[Texts, Cells], np.ndarray]
"""How strongly a signal acts at cells of any texts: [cells]."""
CausalKind = Literal["break", "make", "remove"]


@dataclass(frozen=True)
class ChangeTest:
    """What changing texts (or taking the signal away) did, against the sham."""

    kind: CausalKind
    n: int
    """Texts that could be changed in both ways."""
    p: float
    """1 with fewer than 20 texts."""
    effect: float
    """Break: the mean fall of the signal. Make: the share above the threshold. Remove: the mean fall of attention."""
    sham: float
    """The same under the sham, or where the name does not hold."""
    same_place: float = 1.0
    """Share of shams that changed the same word."""
    examples: tuple[tuple[str, str, str], ...] = ()
    """Some words, what took their place, and what the sham put in."""

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {**vars(self), "examples": [list(one) for one in self.examples]}


def broken(
    rule: Rule, texts: Texts, positives: Cells, tokenizer: Any, score: Score, *, seed: int = 0
) -> ChangeTest:
    """Make the name false at test positives where it holds, and see whether the signal falls more than under a sham."""
    positives = positives[rule.holds(texts, positives)][:MOST]
    made = rewritten(rule, texts, positives, tokenizer, become=False, seed=seed)
    before = score(texts, positives[_cells(made)]) if made else np.zeros(0)
    after, sham = _scores(made, positives, texts, tokenizer, score)
    more, less = int((before - after > before - sham).sum()), int((before - after < before - sham).sum())
    p = float(stats.binom.sf(more - 1, more + less, 0.5)) if len(made) >= FEWEST and more + less else 1.0
    return ChangeTest("break", len(made), p, _mean(before - after), _mean(before - sham), *_looked_at(made))


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
    negatives = negatives[~rule.holds(texts, negatives)][:MOST]
    made = rewritten(rule, texts, negatives, tokenizer, become=True, seed=seed)
    after, sham = (one >= threshold for one in _scores(made, negatives, texts, tokenizer, score))
    p = mcnemar(after, sham) if len(made) >= FEWEST else 1.0
    return ChangeTest("make", len(made), p, _mean(after), _mean(sham), *_looked_at(made))


def removed(holds: np.ndarray, fall: np.ndarray) -> ChangeTest:
    """``fall``: how much attention each cell lost without the signal; ``holds``: whether the name is true of it.

    Cells are of different texts, so the exact rank test of two samples applies.
    """
    with_name, without = fall[holds], fall[~holds]
    p = 1.0
    if min(len(with_name), len(without)) >= FEWEST // 2 and len(fall) >= FEWEST:
        p = float(stats.mannwhitneyu(with_name, without, alternative="greater").pvalue)
    return ChangeTest("remove", len(fall), p, _mean(with_name), _mean(without))


def causal_flags(tests: Sequence[Sequence[ChangeTest]]) -> list[tuple[CausalKind, ...]]:
    """Which kinds of evidence each name has, false discoveries held down within each kind over all names.

    >>> from headwise.naming.causal import ChangeTest
    >>> passed, failed = ChangeTest("break", 30, 1e-6, 1.0, 0.1), ChangeTest("break", 30, 0.6, 0.1, 0.1)
    >>> causal_flags([[passed], [failed], []])
    [('break',), (), ()]
    """
    found: list[list[CausalKind]] = [[] for _ in tests]
    for kind in ("break", "make", "remove"):
        of_kind = [(i, test) for i, some in enumerate(tests) for test in some if test.kind == kind]
        for (i, _), q in zip(of_kind, discoveries([test.p for _, test in of_kind]), strict=True):
            if q <= RATE:
                found[i].append(kind)
    return [tuple(kinds) for kinds in found]


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


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _looked_at(made: Sequence[Rewritten]) -> tuple[float, tuple[tuple[str, str, str], ...]]:
    return _mean(np.array([one.place == one.sham_place for one in made])), tuple(
        one.words for one in made[:SHOWN]
    )
