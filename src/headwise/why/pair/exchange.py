"""Passes with signals exchanged between two prompts: which writers are put in, what comes of it, and the controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from headwise.circuits.counterfactual import Outcome
from headwise.tracing.table import LogOddsTable
from headwise.types import Side
from headwise.why.consequence import set_row
from headwise.why.pair.paired import PairedSide
from headwise.why.pair.patch import Patcher, log_odds_of, share_of
from headwise.why.pair.result import Patch, Which
from headwise.why.proof import HALF, LEAST, Word, tried_in_model, with_effects
from headwise.why.question import Answer
from headwise.why.sentence import EVEN
from headwise.why.who import SIDES


@dataclass(frozen=True, eq=False)
class Proven:
    """What was patched, and what came of it; the outcomes of both prompts as they are, here and there."""

    outcomes: tuple[Outcome, Outcome]
    side: Side | None = None
    chosen: Tensor | None = None
    patch: Patch | None = None
    back: Patch | None = None


@dataclass(frozen=True, eq=False)
class Compared:
    """Both tables, here and there, and which positions and writers of them belong together."""

    tables: tuple[LogOddsTable, LogOddsTable]
    places: Mapping[int, int]
    sides: dict[Side, PairedSide]

    @property
    def into(self) -> Which:
        """The prompt of the larger log-odds."""
        return "here" if self.tables[0].total >= self.tables[1].total else "there"

    def patcher(self, side: Side, *, back: bool = False) -> Patcher:
        """Puts signals into the prompt of the larger log-odds; ``back``: into the other one."""
        swapped = (self.into == "there") != back
        here, there = self.tables
        if not swapped:
            return Patcher(here, there, self.sides[side], False, self.places)
        inverse = {b: a for a, b in self.places.items()}
        return Patcher(there, here, self.sides[side], True, inverse)

    def proven(self, answer: Answer, *, draws: int, seed: int) -> Proven:
        """Half of the difference, taken along by the fewest writers of one side: in both directions, with controls."""
        patchers: dict[Side, Patcher] = {side: self.patcher(side) for side in SIDES}
        receiver, giver = patchers["query"].receiver, patchers["query"].giver
        chosen: dict[Side, Tensor] = {}
        if receiver.total - giver.total >= EVEN:
            threshold = share_of((receiver.total + giver.total) / 2, receiver.keys)
            for side, one in patchers.items():
                found = one.fewest(threshold)
                if found is not None:
                    chosen[side] = found
        if not chosen:
            plain = [_run(table, answer, [[]], [])[0][0] for table in self.tables]
            return Proven((plain[0], plain[1]))
        side = min(chosen, key=lambda one: (len(chosen[one]), patchers[one].attention_with(chosen[one])))
        one, other = patchers[side], self.patcher(side, back=True)
        pairs = chosen[side]
        first = PatchedPass.of(one, pairs, answer, draws=draws, seed=seed, rises=False)
        second = PatchedPass.of(other, pairs, answer, draws=draws, seed=seed, rises=True)
        into = self.into
        away: Which = "there" if into == "here" else "here"
        patch = first.patch(into, second.before, one, pairs, answer)
        back = second.patch(away, first.before, other, pairs, answer)
        outcomes = (first.before, second.before) if into == "here" else (second.before, first.before)
        return Proven(outcomes, side, pairs, patch, back)


@dataclass(frozen=True, eq=False)
class PatchedPass:
    """One prompt as it is and with signals put in, and the controls with their effects."""

    before: Outcome
    after: Outcome
    controls: tuple

    @classmethod
    def of(
        cls, patcher: Patcher, pairs: Tensor, answer: Answer, *, draws: int, seed: int, rises: bool
    ) -> PatchedPass:
        table = patcher.receiver
        drawn = patcher.controls(pairs, draws=draws, seed=seed, rises=rises)
        up, cell = table.query.up, table.cell
        tried = [[set_row(up, cell, row)] for control in drawn for row in control.tried]
        (before, after), effects = _run(table, answer, [[], patcher.removal(pairs).edits()], tried)
        change = abs(answer.yardstick(after) - answer.yardstick(before))
        return cls(before, after, tuple(with_effects(one, effects, change) for one in drawn))

    def patch(self, into: Which, other: Outcome, patcher: Patcher, pairs: Tensor, answer: Answer) -> Patch:
        receiver, giver = patcher.receiver, patcher.giver
        moved = log_odds_of(self.after.attention, receiver.keys) - receiver.total
        share = moved / (giver.total - receiver.total)
        return Patch(
            into=into,
            before=self.before,
            other=other,
            after=self.after,
            predicted=patcher.attention_with(pairs),
            controls=self.controls,
            attention=Word.attention(share, self.controls, fit=share >= HALF),
            answer=self._answer(other, answer),
        )

    def _answer(self, other: Outcome, answer: Answer) -> Word:
        """The answer follows if it moves towards the other prompt's, by as much as is worth a word, and by more than
        under the controls."""
        before, after, wanted = (answer.yardstick(one) for one in (self.before, self.after, other))
        if abs(wanted - before) < LEAST:
            return Word()
        share = (after - before) / (wanted - before)
        return Word.answer(share, self.controls, fit=share > 0 and abs(after - before) >= LEAST)


def _run(
    table: LogOddsTable, answer: Answer, plans: Sequence, tried: Sequence
) -> tuple[list[Outcome], list[float]]:
    return tried_in_model(table.query.up, table.cell, answer, plans, tried)
