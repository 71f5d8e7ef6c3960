"""Causal evidence for the name of one subject of a model: texts are changed and passed through it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headwise.bases.basis import Bases
from headwise.naming.activation import Activations, LayerReads
from headwise.naming.causal import Score, broken, compared_cells, made_true, removed
from headwise.naming.cells import Cells
from headwise.naming.change import CausalEvidence, ChangeTest, causal_evidence
from headwise.naming.predicates.lexicon import Lexicon
from headwise.naming.rules import Rule
from headwise.naming.signals import Subject
from headwise.naming.texts import Texts
from headwise.progress import Tick
from headwise.scale.stages import ValuesJob
from headwise.scale.work import Chunk, cut

if TYPE_CHECKING:
    from headwise.basis_names import BasisName
    from headwise.contrast.bank import BankFeature
    from headwise.model.model import Model
    from headwise.naming.examine import Cases
    from headwise.naming.sample import Levels
    from headwise.naming.sources import Subjects
    from headwise.scale.stages import Stages
    from headwise.types import Head

BATCH = 16
"""Texts that pass through the model together."""
Features = Mapping[tuple["Head", str], "BankFeature"]


def evidence(
    model: Model,
    subject: Subject,
    rule: Rule,
    texts: Texts,
    positives: Cells,
    negatives: Cells,
    threshold: float,
    *,
    bases: Bases | None = None,
    features: Features | None = None,
    seed: int = 0,
) -> tuple[ChangeTest, ...]:
    """Break, make and, for what is only part of a head, remove: on cells of the test half, each kind one per text.

    ``positives`` are cells where the subject acts, ``negatives`` cells where it does not; from the score ``threshold``
    on it acts.
    """
    score = score_of(model, subject, bases=bases, features=features)
    found = [
        broken(rule, texts, positives, model.tokenizer, score, seed=seed),
        made_true(rule, texts, negatives, model.tokenizer, score, threshold, seed=seed),
    ]
    if subject.level not in ("head", "sink"):
        pair = compared_cells(rule, texts, positives.text, subject.own_slot, seed=seed)
        fall = fall_of(model, subject, bases=bases, features=features)(texts, Cells.joined(pair))
        found.append(removed(fall[: len(pair[0])], fall[len(pair[0]) :]))
    return tuple(found)


class NamedCase(NamedTuple):
    """A name that is to be tried on changed texts, in a form that can go to another process."""

    subject: Subject
    rule: tuple[tuple[str, ...], ...]
    """Ids of its predicates."""
    positives: Cells
    negatives: Cells
    threshold: float


@dataclass(frozen=True, eq=False)
class EvidenceJob(ValuesJob):
    """The evidence for one name at a time."""

    texts: Texts
    basis: BasisName
    features: tuple[tuple[tuple[Head, str], BankFeature], ...]
    lexicon: Lexicon
    seed: int
    kind = ChangeTest

    def make(self, model: Model, chunk: Chunk[NamedCase], _tick: Tick) -> list[ChangeTest]:
        (case,) = chunk.items
        return list(
            evidence(
                model,
                case.subject,
                Rule.parse(case.rule, self.lexicon),
                self.texts,
                case.positives,
                case.negatives,
                case.threshold,
                bases=Bases.of(model, self.basis.kind, frame=self.basis.frame),
                features=dict(self.features),
                seed=self.seed,
            )
        )


def find_evidence(
    run: Stages,
    chosen: Subjects,
    cases: Cases,
    levels: Levels,
    named: Mapping[int, Rule | None],
    seed: int,
) -> dict[int, CausalEvidence]:
    """What changing texts shows of names, by the number of their subjects; a name that is no rule has none."""
    rules = {number: rule for number, rule in named.items() if rule is not None}
    asked = [
        NamedCase(
            chosen.subjects[number],
            rule.ids,
            cases.cells(cases.test, "positive", number),
            cases.cells(cases.test, "own", number),
            float(levels.theta[number]),
        )
        for number, rule in rules.items()
    ]
    job = EvidenceJob(cases.texts, chosen.basis, chosen.features, cases.lexicon, seed)
    return dict(zip(rules, causal_evidence(run("changed names", job, cut(asked, 1))), strict=True))


def score_of(
    model: Model, subject: Subject, *, bases: Bases | None = None, features: Features | None = None
) -> Score:
    """How strongly a subject acts at any cells of any texts."""
    acts = Activations(model, [subject], bases=bases, features=features)
    return _at_cells(acts, lambda reads: acts.score(0, reads))


def fall_of(
    model: Model, subject: Subject, *, bases: Bases | None = None, features: Features | None = None
) -> Score:
    """How much attention any cells lose when a subject's part leaves the logits of their rows."""
    acts = Activations(model, [subject], bases=bases, features=features)
    return _at_cells(acts, lambda reads: acts.fall(0, reads))


def _at_cells(acts: Activations, values: Callable[[LayerReads], Tensor]) -> Score:
    (layer,) = acts.by_layer

    @torch.no_grad()
    def at(texts: Texts, cells: Cells) -> np.ndarray:
        found = np.zeros(len(cells))
        needed = np.unique(cells.text)
        for start in range(0, len(needed), BATCH):
            some = needed[start : start + BATCH]
            stream = acts.model.split([texts.ids_of(int(text)) for text in some], layers=acts.layers)
            all_cells = values(LayerReads(stream, layer)).double().cpu().numpy()
            here = np.isin(cells.text, some)
            row = np.searchsorted(some, cells.text[here])
            found[here] = all_cells[row, cells.destination[here], cells.source[here]]
        return found

    return at
