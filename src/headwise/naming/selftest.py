"""Does naming itself work here? Rules planted in the scores of real texts must come out, and noise must not be named.

A planted subject acts where a known rule holds: its score there is lognormal, elsewhere noise. The search is not told
the rule; it counts as found if what is found holds at the same test cells (κ of at least ``SAME``). Noise has scores
that depend on nothing; the share of it that is named is the false-naming rate. Only the texts and the tokenizer of the
model are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headwise.corpus import Corpus
from headwise.intervals import wilson
from headwise.naming.cells import Cells
from headwise.naming.examine import Cases, TriedName
from headwise.naming.halves import Half, halves_of
from headwise.naming.reservoir import Reservoir
from headwise.naming.rules import Rule
from headwise.naming.sample import PILOT, CellDraw, Drawn, Levels, order_of
from headwise.naming.signals import Subject
from headwise.naming.statistics import Judged, judged, kappa
from headwise.naming.texts import Texts
from headwise.randomness import keyed
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.model import Model

PLANTED: tuple[tuple[str, ...], ...] = (
    ("relation.after-copy",),
    ("relation.distance=1",),
    ("relation.same-word", "not relation.distance=0"),
    ("source.comma",),
    ("source.class=article",),
    ("source.sentence-end",),
    ("destination.comma",),
    ("source.capitalised", "not source.seen"),
    ("destination.class=preposition", "source.class=content-word"),
    ("source.last:comma",),
)
NOISE = 40
"""Subjects of pure noise."""
NOISE_SIZE = 0.3
"""Its spread, beside planted scores of about 3."""
BATCH = 16
SAME = 0.9
"""Cohen's κ from which on two rules say the same of the test cells."""


@dataclass(frozen=True)
class Planted:
    """A planted rule, and what came out."""

    planted: str
    found: str | None
    agreement: float
    """Cohen's κ over test cells."""
    verdict: str

    @property
    def recovered(self) -> bool:
        return self.verdict == "named" and self.agreement >= SAME


@dataclass(frozen=True)
class SelfTest:
    """What the self-test found on one corpus."""

    corpus: str
    planted: tuple[Planted, ...]
    noise: int
    """Subjects of noise."""
    named: int
    """How many of them were named."""

    @property
    def passed(self) -> bool:
        """Nine of ten planted rules recovered, and no more noise named than the rate that is allowed."""
        recovered = sum(one.recovered for one in self.planted)
        return recovered >= 0.9 * len(self.planted) and wilson(self.named, self.noise)[0] <= 0.05

    def to_json(self) -> dict[str, Any]:
        """One document."""
        low, high = wilson(self.named, self.noise)
        return {
            "schema": 1,
            "kind": "names-selftest",
            "corpus": self.corpus,
            "passed": self.passed,
            "planted": [vars(one) | {"recovered": one.recovered} for one in self.planted],
            "noise": {"subjects": self.noise, "named": self.named, "low": low, "high": high},
        }


def self_test(model: Model, corpus: Corpus, *, texts: int = 400, tokens: int = 64, seed: int = 0) -> SelfTest:
    """Plant rules and noise on the texts of a corpus, and name both."""
    read = Texts.of(model, corpus.first(texts), tokens=tokens)
    halves = halves_of(read, seed)
    rules = [Rule.parse([list(ids)]) for ids in PLANTED]
    subjects = len(rules) + NOISE
    heads = [Subject(Head(0, number)) for number in range(subjects)]
    pilot = [_scores(read, rules, int(number), seed) for number in halves.explore[:PILOT]]
    scores = np.concatenate([one[:, *np.tril_indices(one.shape[-1])] for one in pilot], axis=1)
    levels = replace(Levels.of(heads, scores), theta=np.quantile(scores, 0.99, axis=1).astype(np.float32))
    kept: dict[Half, Reservoir] = {}
    for half in ("explore", "test"):
        kept[half] = Reservoir(half, subjects)
        numbers = halves.of(half)
        for start in range(0, len(numbers) - 1, BATCH):
            kept[half].add(_drawn(read, rules, numbers[start : start + BATCH], levels, seed))
    tried = list(Cases(read, kept["explore"], kept["test"]).tried(range(subjects)))
    verdicts = judged([one.test for one in tried])
    found = [
        _planted(read, kept["test"], number, rule, tried[number], verdicts[number])
        for number, rule in enumerate(rules)
    ]
    named = sum(one.verdict == "named" for one in verdicts[len(rules) :])
    return SelfTest(corpus.name, tuple(found), NOISE, named)


def _scores(texts: Texts, rules: list[Rule], number: int, seed: int) -> np.ndarray:
    """[rules and noise, T, T]: planted scores of one text; cells above the diagonal mean nothing."""
    length = int(texts.lengths[number])
    drawn = torch.randn(
        2, len(rules) + NOISE, length, length, generator=keyed(seed, "planted", number)
    ).numpy()
    scores = NOISE_SIZE * drawn[0]
    destination, source = np.tril_indices(length)
    cells = Cells(np.full(len(source), number), destination, source)
    for place, rule in enumerate(rules):
        holds = rule.holds(texts, cells)
        at = (place, destination[holds], source[holds])
        scores[at] += np.exp(1 + 0.5 * drawn[1][at])
    return scores


def _drawn(texts: Texts, rules: list[Rule], numbers: np.ndarray, levels: Levels, seed: int) -> Drawn:
    """Cells of some texts, drawn as those of a model are."""
    width = int(texts.lengths[numbers].max())
    subjects = len(rules) + NOISE
    scores = torch.zeros(subjects, len(numbers), width, width)
    mask = torch.zeros(len(numbers), width, width, dtype=torch.bool)
    order = []
    for place, number in enumerate(numbers.tolist()):
        length = int(texts.lengths[number])
        scores[:, place, :length, :length] = torch.from_numpy(_scores(texts, rules, number, seed))
        mask[place, :length, :length] = torch.ones(length, length, dtype=torch.bool).tril()
        order.append(order_of(seed, tuple(texts.ids_of(number)), width))
    mask[:, :, 0] = False
    sided = torch.zeros(subjects, 1, dtype=torch.bool)
    sided[: len(rules), 0] = torch.tensor([_of_destination(rule) for rule in rules])
    draw = CellDraw(
        torch.from_numpy(numbers), torch.stack(order), scores, mask, levels, range(subjects), sided
    )
    return Drawn.of(*draw.all(), width)


def _of_destination(rule: Rule) -> bool:
    """Whether a rule speaks of destinations alone: then own-slot negatives must vary them."""
    return all(one.predicate.slot == "destination" for one in rule.literals)


def _planted(
    texts: Texts, test: Reservoir, number: int, rule: Rule, tried: TriedName, verdict: Judged
) -> Planted:
    found = tried.rule
    agreement = 0.0
    if found is not None:
        cells = Cells.joined([test.kept(kind, number).cells for kind in ("positive", "own", "random")])
        cells = cells[cells.text >= 0]
        agreement = kappa(rule.holds(texts, cells), found.holds(texts, cells))
    return Planted(
        planted=str(rule),
        found=None if found is None else str(found),
        agreement=agreement,
        verdict=verdict.verdict,
    )
