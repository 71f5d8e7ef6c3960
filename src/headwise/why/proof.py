"""Proof: take exactly that away, in the model itself, and see whether attention and answer do what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from headwise.circuits.counterfactual import Outcome, Trial, outcomes
from headwise.contrast.bank import BankFeature
from headwise.contrast.subspaces import random_subspaces
from headwise.model.edits import RemoveWithin, SwapWithin, VectorEdit
from headwise.randomness import keyed
from headwise.tracing.causes import attention as softmax_row
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Subspace
from headwise.why.question import Answer
from headwise.why.who import Who, mean_and_spread

AGREE = 1e-4
"""Prediction and observation count as equal up to this attention."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over the controls."""

    attention: tuple[float, float]
    probability: tuple[float, float]
    lead: tuple[float, float]


@dataclass(frozen=True)
class RemovalTest:
    """One removal: what was predicted, what was observed, and the same for random controls.

    ``percentile`` is the share of controls that left the cell more attention than the removal did (100 is best).
    """

    name: str
    removed: int
    predicted: float
    observed: Outcome
    controls: tuple[Outcome, ...]
    percentile: float | None

    @property
    def spread(self) -> Spread | None:
        if not self.controls:
            return None
        return Spread(
            mean_and_spread([c.attention for c in self.controls]),
            mean_and_spread([c.probability for c in self.controls]),
            mean_and_spread([c.lead for c in self.controls]),
        )


@dataclass(frozen=True)
class FeatureTest:
    """A named feature, removed from the query or swapped between the key and its strongest rival.

    Controls are random subspaces of the same rank; their attention follows from the same algebra, which ``predicted``
    against ``observed`` shows to be exact.
    """

    name: str
    kind: str
    """ablation or swap"""
    predicted: float
    observed: Outcome
    controls: tuple[float, ...]
    percentile: float


@dataclass(frozen=True)
class Proof:
    """The model as it is, and with exactly the found signals removed."""

    before: Outcome
    tests: tuple[RemovalTest, ...]
    features: tuple[FeatureTest, ...]

    def test(self, name: str) -> RemovalTest | None:
        return next((test for test in self.tests if test.name == name), None)

    @property
    def main(self) -> RemovalTest | None:
        """The removal of both sides together, or of the one side that has a cause."""
        return self.test("both") or (self.tests[0] if self.tests else None)

    @property
    def error(self) -> float:
        """The largest difference between predicted and observed attention."""
        every = [*self.tests, *self.features]
        return max((abs(test.predicted - test.observed.attention) for test in every), default=0.0)

    @property
    def verdict(self) -> tuple[bool, str]:
        """Whether the proof holds, in plain words."""
        main = self.main
        if main is None:
            return False, "No cause of allowed size was found on either side, so there is nothing to remove."
        if self.error > AGREE:
            return False, (
                f"The proof fails: prediction and edited forward pass differ by {self.error:.1e} "
                f"(allowed {AGREE:.0e})."
            )
        spread = main.spread
        drop = self.before.attention - main.observed.attention
        if spread is not None and self.before.attention - spread.attention[0] >= drop / 2:
            return False, (
                "The proof fails: removing random signals of unused channels does at least half as much "
                f"(attention {spread.attention[0]:.3f} on average, {main.observed.attention:.3f} without the cause)."
            )
        against = (
            ""
            if spread is None
            else f"; random signals of unused channels leave {spread.attention[0]:.3f} on average"
        )
        return True, (
            f"The proof holds: predicted and observed attention agree to {self.error:.0e}, and it falls from "
            f"{self.before.attention:.3f} to {main.observed.attention:.3f}{against}."
        )


def prove(
    up: PromptWrites,
    cell: Cell,
    answer: Answer,
    who: Who,
    features: Sequence[BankFeature] = (),
    rival: int | None = None,
    *,
    draws: int = 20,
    seed: int = 0,
) -> Proof:
    """Run every removal and its controls as copies of the prompt in edited forward passes."""
    trial = Trial.of(up, cell, who.signals, draws=draws, seed=seed)
    feature_plans = [
        (feature, kind, edit) for feature in features for kind, edit in _feature_edits(cell, feature, rival)
    ]
    plans = [[], *(one.edits() for one in trial.removals), *([edit] for _, _, edit in feature_plans)]
    token_ids = up.stream.token_ids[up.prompt]
    before, *seen = outcomes(up.stream.model, token_ids, plans, answer, [cell], start=up.stream.start)
    tests = []
    for case in trial.cases:
        observed, *drawn = seen[: 1 + len(case.controls)]
        seen = seen[1 + len(case.controls) :]
        left = [control.attention for control in drawn]
        percentile = _percentile(observed.attention, left) if drawn else None
        predicted = case.removal.predicted(up)
        tests.append(RemovalTest(case.sides, case.removed, predicted, observed, tuple(drawn), percentile))
    feature_tests = []
    for (feature, kind, edit), observed in zip(feature_plans, seen, strict=True):
        predicted = _edited_cell(up, cell, edit)
        rank = feature.query.rank if kind == "ablation" else feature.key.rank
        generator = keyed(seed, "subspaces", feature.name, kind)
        drawn = [
            _edited_cell(up, cell, dict(_feature_edits(cell, feature, rival, within=Subspace(basis)))[kind])
            for basis in random_subspaces(up.stream.model.d_head, rank, max(draws, 100), generator=generator)
        ]
        feature_tests.append(
            FeatureTest(feature.name, kind, predicted, observed, tuple(drawn), _percentile(predicted, drawn))
        )
    return Proof(before, tuple(tests), tuple(feature_tests))


def _feature_edits(
    cell: Cell, feature: BankFeature, rival: int | None, within: Subspace | None = None
) -> list[tuple[str, VectorEdit]]:
    """Remove the feature from the query; swap it between the key and the strongest rival."""
    query, key = within or feature.query, within or feature.key
    made: list[tuple[str, VectorEdit]] = [
        ("ablation", RemoveWithin(head=cell.head, side="query", subspace=query, positions=cell.query))
    ]
    if rival is not None:
        made.append(
            (
                "swap",
                SwapWithin(head=cell.head, first=cell.key, second=rival, subspace=key, seen_by=cell.query),
            )
        )
    return made


def _edited_cell(up: PromptWrites, cell: Cell, edit: VectorEdit) -> float:
    """The cell's attention after an edit of its query or of the keys its row sees, by the algebra alone."""
    (head, d, s), layer = cell, cell.head.layer
    q: Tensor = up.q[layer, head.index].double()
    k: Tensor = up.k[layer, head.index // up.group].double()
    if edit.side == "query":
        q = edit.apply(q)
    else:
        k = edit.apply(k)
    row = softmax_row((k @ q[d]) * float(up.scale[layer]), up.visible(layer)[d], up.cap)
    return float(row[s])


def _percentile(value: float, controls: Sequence[float]) -> float:
    """Share of controls that left more attention, in percent."""
    return 100.0 * sum(control > value for control in controls) / len(controls)
