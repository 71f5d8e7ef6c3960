"""Proof: take exactly that away, in the model itself, and compare with taking away as much of something else.

That attention falls as predicted only tests the arithmetic, for the set was chosen to make it fall. What can fail is
the comparison: three kinds of matched controls (:mod:`headwise.why.controls`), the next-best set of the same number,
and what becomes of the answer. Three words are said of it, each with its number and what it was compared with; specific
and matters are claims, held against the kind of control that does most, so that nothing is left to correct for:

* **specific**: no matched control takes as much attention away (p ≤ .05 against each of them);
* **redundant**: as many other writers, the next-best, take at least half as much away alone. This describes, and claims
  nothing: it warns that the cause is not the only one that would do, and a warning needs no support;
* **matters**: the answer changes by at least .1 nats, and by more than under the controls (p ≤ .05 against each).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from headwise.circuits.counterfactual import Outcome, Removal, outcomes, outcomes_and_leads
from headwise.contrast.bank import BankFeature
from headwise.model.edits import Edit
from headwise.tracing.search import SideSignals
from headwise.tracing.table import LogOddsTable
from headwise.tracing.vectors import component_shares
from headwise.tracing.writers import WriterSet, next_best, writers_row
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Claim, Component, Side
from headwise.why.consequence import set_row, without_cell
from headwise.why.controls import Control, controls
from headwise.why.feature_tests import FeatureTest, feature_edits, feature_tests
from headwise.why.question import Answer


@dataclass(frozen=True)
class Spread:
    """Mean, and the numbers below which 5 % and 95 % of some draws lie."""

    draws: int
    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Tensor) -> Spread:
        low, high = values.quantile(torch.tensor([0.05, 0.95], dtype=values.dtype)).tolist()
        return cls(len(values), float(values.mean()), low, high)


@dataclass(frozen=True)
class ControlTest:
    """One kind of control: what its draws leave of the attention, and what some of them do to the answer."""

    name: str
    """``channels``, ``writers`` or ``directions``."""
    text: str
    """What is removed instead of the cause."""
    left: tuple[float, ...]
    """The attention that each draw leaves, by the algebra."""
    p: float
    """How likely a draw leaves no more attention than the cause does."""
    effects: tuple[float, ...] = ()
    """Changes of the yardstick, in edited passes, of the first draws."""
    answer_p: float | None = None
    """How likely one changes the answer as much; None where none was tried."""

    @property
    def attention(self) -> Spread:
        return Spread.of(torch.tensor(self.left, dtype=torch.float64))

    @property
    def answer(self) -> Spread | None:
        return Spread.of(torch.tensor(self.effects, dtype=torch.float64)) if self.effects else None


@dataclass(frozen=True)
class SignalsTest:
    """The signals that refine the cause, single channels of writers, and their controls: attention by the algebra."""

    side: Side
    """The side that the signals enter."""
    before: float
    """The attention as it is."""
    after: float
    """The attention without them."""
    controls: tuple[ControlTest, ...]
    """Random removals as long as they are."""

    @property
    def specific(self) -> Word:
        """Whether no matched control takes as much attention away, as it is said of whole writers."""
        return _specific(self.before - self.after, self.controls)


@dataclass(frozen=True)
class NextBest:
    """As many other writers of the same side: the attention without them, by the algebra and in the model."""

    writers: tuple[Component, ...]
    """The other writers, those of the largest part."""
    predicted: float
    """The attention without them, by the algebra."""
    observed: Outcome
    """The model without them."""


@dataclass(frozen=True)
class Proof:
    """The model as it is, without the cause, and without what the controls take; ``before`` alone without a cause."""

    side: Side | None
    """The side that the cause is taken from; None where there is none."""
    before: Outcome
    """The model as it is."""
    path: Outcome | None
    """Without the cell itself: the row renormalised."""
    after: Outcome | None = None
    """The model without the cause."""
    predicted: float | None = None
    """The attention without the cause, by the algebra."""
    next_best: NextBest | None = None
    """The model without as many other writers instead."""
    controls: tuple[ControlTest, ...] = ()
    """Random removals as long as the cause."""
    features: tuple[FeatureTest, ...] = ()
    """Named features, removed and swapped."""
    signals: SignalsTest | None = None
    """The cause in finer parts, beside controls of its own."""
    tolerance: float | None = None
    """How far predicted and observed attention may differ, in the model's precision; None where nothing was
    predicted."""

    @property
    def error(self) -> float:
        """The largest difference between predicted and observed attention."""
        pairs = [(test.predicted, test.observed.attention) for test in self.features]
        if self.after is not None and self.predicted is not None:
            pairs.append((self.predicted, self.after.attention))
        return max((abs(predicted - observed) for predicted, observed in pairs), default=0.0)


@dataclass(frozen=True, eq=False)
class Foreseen:
    """What the algebra says before the model is run again: the controls, and the next-best writers."""

    cause: WriterSet | None
    controls: tuple[Control, ...] = ()
    others: tuple[Component, ...] = ()
    left: float | None = None
    """The attention without the next-best writers."""
    signals: SignalsTest | None = None
    """The cause in finer parts."""

    @property
    def tests(self) -> tuple[ControlTest, ...]:
        """The controls, of which nothing but the attention is known yet."""
        return _untried(self.controls)


def _untried(some: Sequence[Control]) -> tuple[ControlTest, ...]:
    return tuple(ControlTest(one.name, one.text, tuple(one.left.tolist()), one.p) for one in some)


def foresee(
    table: LogOddsTable,
    cause: WriterSet | None,
    signals: Mapping[Side, SideSignals] | None = None,
    *,
    draws: int,
    seed: int = 0,
) -> Foreseen:
    """Draw the controls and find the next-best writers of a cause; the ``signals`` of its side refine it."""
    if cause is None:
        return Foreseen(None)
    finer, own = None, None if signals is None else signals[cause.side]
    if own is not None and own.resolved:
        drawn = _untried(controls(table, own, seed, draws))
        finer = SignalsTest(own.side, own.attention, own.after, drawn)
    made = tuple(controls(table, cause, seed, draws))
    return Foreseen(cause, made, *next_best(table, cause), finer)


def prove(
    up: PromptWrites,
    table: LogOddsTable,
    answer: Answer,
    foreseen: Foreseen,
    features: Sequence[BankFeature] = (),
    rival: int | None = None,
    *,
    draws: int,
    seed: int = 0,
) -> Proof:
    """Every removal in the model itself, as copies of the prompt in one edited pass; controls' attention by algebra.

    The cause is removed as vectors from the query or the keys. Whatever else is tried is a row of attention that the
    algebra gives, which one vector sets: what the head carries with it.
    """
    cell, cause = table.cell, foreseen.cause
    others, left = foreseen.others, foreseen.left
    tests = [
        (feature, kind, edit) for feature in features for kind, edit in feature_edits(cell, feature, rival)
    ]
    without = without_cell(table)
    plans: list[Sequence[Edit]] = [[], *([edit] for _, _, edit in tests)]
    plans += [removal_of(up, cell, cause).edits()] if cause is not None else []
    rows = [] if without is None else [without]
    if cause is not None and others:
        rows.append(writers_row(table, cause.side, others))
    plans += [[set_row(up, cell, row)] for row in rows]
    tried = [[set_row(up, cell, row)] for control in foreseen.controls for row in control.tried]
    seen, effects = tried_in_model(up, cell, answer, plans, tried)
    before, seen = seen[0], seen[1:]
    named = feature_tests(up, cell, tests, seen, rival, draws, seed) if tests else ()
    seen = seen[len(tests) :]
    after = None if cause is None else seen.pop(0)
    path = None if without is None else _at(seen.pop(0), 0.0)
    # d A = A (1 − A) d log-odds, so attention moves by at most a quarter of what the log-odds do
    allowed = min(1.0, table.tolerance / 4)
    proven = Proof(
        None if cause is None else cause.side,
        before,
        path,
        features=named,
        tolerance=allowed if named else None,
    )
    if cause is None or after is None:
        return proven
    best = NextBest(others, left, _at(seen.pop(0), left)) if others and left is not None else None
    change = abs(answer.yardstick(after) - answer.yardstick(before))
    return Proof(
        side=cause.side,
        before=before,
        path=path,
        after=after,
        predicted=cause.after,
        next_best=best,
        controls=tuple(with_effects(one, effects, change) for one in foreseen.controls),
        features=named,
        signals=foreseen.signals,
        tolerance=allowed,
    )


def tried_in_model(
    up: PromptWrites,
    cell: Cell,
    answer: Answer,
    plans: Sequence[Sequence[Edit]],
    tried: Sequence[Sequence[Edit]],
) -> tuple[list[Outcome], list[float]]:
    """What becomes of every plan, the first of which changes nothing; and by how much what is ``tried`` as a control
    moves the yardstick, of which nothing else is wanted."""
    stream = up.stream
    model, token_ids = stream.model, stream.token_ids[up.prompt]
    start, clean = stream.start, stream.clean_pass(up.prompt)
    if answer.compared:
        seen, reached = outcomes_and_leads(
            model, token_ids, plans, tried, answer, [cell], start=start, clean=clean
        )
    else:  # a probability needs the whole vocabulary
        every = outcomes(model, token_ids, [*plans, *tried], answer, [cell], start=start, clean=clean)
        seen = every[: len(plans)]
        reached = [answer.yardstick(one) for one in every[len(plans) :]]
    return seen, [one - answer.yardstick(seen[0]) for one in reached]


def removal_of(up: PromptWrites, cell: Cell, cause: WriterSet) -> Removal:
    """The cause as vectors, from the writers' own writes and not from the search."""
    shares = (component_shares(up, cell.head, cause.side, member) for member in cause.members)
    total = torch.stack(list(shares)).sum(0)
    return Removal(cell, query=total[cell.query]) if cause.side == "query" else Removal(cell, key=total)


def _at(outcome: Outcome, attention: float) -> Outcome:
    """An outcome of a row that was set: the pass still shows the attention that the head computed itself."""
    return Outcome(attention, outcome.probability, outcome.lead, (attention,))


def with_effects(control: Control, moved: list[float], change: float) -> ControlTest:
    """One control with its effects, which are the next ones."""
    effects = tuple(moved.pop(0) for _ in range(len(control.tried)))
    as_much = sum(abs(effect) >= change for effect in effects)
    return ControlTest(
        name=control.name,
        text=control.text,
        left=tuple(control.left.tolist()),
        p=control.p,
        effects=effects,
        answer_p=(1 + as_much) / (1 + len(effects)),
    )


# --- three words -----------------------------------------------------------------------------------------------------

HALF = 0.5
LEAST = 0.1
NULL = "as much removed of something else: the kind of control that does most"
ALONE = "this word alone, the largest p over its kinds of control"


@dataclass(frozen=True)
class Word:
    """One word of the verdict."""

    said: bool | None = None
    """Whether the word is said; None where it was not measured."""
    value: float | None = None
    """The number it rests on."""
    p: float | None = None
    """How likely a control does as much; None where there is no control."""
    claim: Claim | None = None
    """The test behind it, where it rests on one: ``said`` is whether it is supported."""

    @classmethod
    def attention(cls, value: float, controls: Sequence[ControlTest], *, fit: bool = True) -> Word:
        """A word about attention: p against the kind of control that does most; ``fit`` says what else is asked."""
        return cls._tested(value, [(one.p, len(one.left)) for one in controls], fit)

    @classmethod
    def answer(cls, value: float, controls: Sequence[ControlTest], *, fit: bool) -> Word:
        """The same about the answer, by the draws that were tried in the model."""
        tried = [(one.answer_p, len(one.effects)) for one in controls if one.answer_p is not None]
        return cls._tested(value, tried, fit)

    @classmethod
    def _tested(cls, value: float, against: Sequence[tuple[float, int]], fit: bool) -> Word:
        if not against:
            return cls(None, value)
        p, draws = max(against, key=lambda one: one[0])
        made = Claim.alone(p, null=NULL, draws=draws, group=ALONE, fit=fit)
        return cls(made.supported, value, p, made)


@dataclass(frozen=True)
class Verdict:
    """What can be said of the cause of an attention."""

    specific: Word = Word()
    """No matched control takes as much attention; its value is the attention taken."""
    redundant: Word = Word()
    """As many other writers take at least half as much; its value is the share that they take. A description."""
    matters: Word = Word()
    """The answer changes, and by more than under the controls; its value is the change in nats."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verdict(proof: Proof, answer: Answer) -> Verdict:
    """The three words; none is said where there is no cause, or where nothing could be drawn to compare it with."""
    if proof.after is None:
        return Verdict()
    taken = proof.before.attention - proof.after.attention
    redundant = Word(False, 0.0)
    if proof.next_best is not None and taken > 0:
        share = (proof.before.attention - proof.next_best.predicted) / taken
        redundant = Word(share >= HALF, share)
    change = answer.yardstick(proof.after) - answer.yardstick(proof.before)
    matters = Word.answer(change, proof.controls, fit=abs(change) >= LEAST)
    return Verdict(_specific(taken, proof.controls), redundant, matters)


def _specific(taken: float, controls: Sequence[ControlTest]) -> Word:
    if all(control.name != "writers" for control in controls):
        return Word(None, taken)  # with no other writers to draw, nobody can say whether it is these
    return Word.attention(taken, controls)
