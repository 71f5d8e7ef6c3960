"""The bench: change the running model, and see what becomes of a cell and of the answer, beside matched controls.

Whatever is changed, as much of something else is changed as well, again and again: writers have the three controls of
a proof, heads are exchanged for other heads of their layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from headwise.app import wire
from headwise.circuits.counterfactual import Outcome, outcomes
from headwise.errors import HeadwiseError
from headwise.model.edits import Edit, Silence
from headwise.randomness import keyed
from headwise.tokens import shown_after
from headwise.tracing.table import log_odds_table
from headwise.tracing.writers import WriterSet, attention_without
from headwise.types import Cell, Component, Head
from headwise.why.consequence import set_row, without_cell
from headwise.why.controls import TRIED, Control, controls
from headwise.why.proof import LEAST, LEVEL, Spread, removal_of
from headwise.why.question import Answer, PromptReading, find_answer

OfHead = wire.SilenceHead | wire.CutCell | wire.PatchHead
TOP = 5
HEADS = "the same edits in other heads of the same layers"


class Bench:
    """One plan on one prompt; ``others`` are the prompts that values are taken from, by id."""

    def __init__(self, read: PromptReading, plan: wire.EditPlan, others: dict[str, PromptReading]) -> None:
        self.read, self.plan, self.others = read, plan, others
        self.up, self.model = read.up, read.up.stream.model
        if plan.query >= len(read.tokens) or plan.key > plan.query:
            raise HeadwiseError(
                f"query {plan.query} and key {plan.key} are no cell of a prompt of {len(read.tokens)} tokens"
            )
        self.cell = Cell(self.model.head(plan.head), plan.query, plan.key)
        self.table = log_odds_table(self.up, self.cell)
        self.of_heads: list[OfHead] = [one for one in plan.edits if not isinstance(one, wire.RemoveWriters)]
        self.removed = self._removed([one for one in plan.edits if isinstance(one, wire.RemoveWriters)])

    def run(self) -> wire.EditSeen:
        """Every state in one edited pass."""
        stream, plan = self.up.stream, self.plan
        answer = find_answer(self.model, self.read.token_ids, self.read.logits, plan.answer, plan.wrong)
        whole = self._edits()
        drawn = [] if self.removed is None else controls(self.table, self.removed, plan.seed, plan.draws)
        tried = self._controls(drawn)
        states = [[], whole, *(edits for _, plans in tried for edits in plans)]
        ids, clean = stream.token_ids[0], stream.clean_pass(0)
        seen = outcomes(self.model, ids, states, answer, [self.cell], start=stream.start, clean=clean)
        before, after = seen[0], self._at(seen[1])
        change = answer.yardstick(after) - answer.yardstick(before)
        made, place = [], 2
        for control, plans in tried:
            made.append(self._control(control, seen[place : place + len(plans)], answer, before, change))
            place += len(plans)
        known = [one.p for one in made]
        return wire.EditSeen(
            before=_seen(before),
            predicted=self._predicted(),
            after=_seen(after),
            change=change,
            measured_by="lead" if answer.compared else "log_probability",
            controls=tuple(made),
            more_than_chance=abs(change) >= LEAST and max(known) <= LEVEL if known else None,
            top=self._top(whole),
        )

    # --- what is changed -----------------------------------------------------------------------------------------

    def _removed(self, asked: Sequence[wire.RemoveWriters]) -> WriterSet | None:
        """All writers that leave, as one set of one side."""
        if not asked:
            return None
        if len({one.side for one in asked}) > 1:
            raise HeadwiseError(
                "edits take writers from both sides, and either takes the whole score away: choose those of one side"
            )
        side = asked[0].side
        members = tuple(dict.fromkeys(self._writer(named, side) for one in asked for named in one.writers))
        after = attention_without(self.table, side, members)
        return WriterSet(side, self.table.attention, 0.0, after, members, (), "fixed")

    def _writer(self, named: wire.NamedWriter, side: str) -> Component:
        writer = Component.parse(named.writer)
        if writer.kind == "head":
            if named.reads is None or named.reads >= len(self.read.tokens):
                raise HeadwiseError(f"writer {named.writer} is a head: say which token of the prompt it read")
            writer = replace(writer, source=named.reads)
        one = self.table.side("query" if side == "query" else "key")
        below = writer.layer < self.cell.head.layer
        row = one.row_of(writer) if below and writer.index < self.model.n_heads else len(one)
        if row >= len(one) or not bool(one.possible[row]):
            raise HeadwiseError(f"writer {named.writer} wrote nothing that {self.cell.head} could read")
        return writer

    def _edits(self) -> list[Edit]:
        removal = [] if self.removed is None else removal_of(self.up, self.cell, self.removed).edits()
        return [*removal, *(self._of_head(one, one_head(one, self.cell)) for one in self.of_heads)]

    def _of_head(self, asked: OfHead, head: Head) -> Edit:
        """One edit of a head, or the same of another head."""
        if isinstance(asked, wire.SilenceHead):
            return Silence(head=self.model.head(head), positions=self._position(asked.position))
        if isinstance(asked, wire.CutCell):
            cell = Cell(head, self.cell.query, self.cell.key)
            table = self.table if head == self.cell.head else log_odds_table(self.up, cell)
            row = without_cell(table)
            if row is None:
                raise HeadwiseError(
                    "the row of this cell sees one token alone: there is nothing to share it out to"
                )
            return set_row(self.up, cell, row)
        other, position = self.others[asked.source], asked.position
        if len(other.tokens) != len(self.read.tokens):
            raise HeadwiseError(
                f"the other prompt has {len(other.tokens)} tokens and this one {len(self.read.tokens)}: patch from a "
                "prompt of as many"
            )
        self._position(position)
        head = self.model.head(head)
        row = other.up.stream.pattern(head.layer, position)[head.index]
        return set_row(other.up, Cell(head, position, 0), row)

    def _position(self, position: int | None) -> int | None:
        if position is not None and position >= len(self.read.tokens):
            raise HeadwiseError(
                f"position {position} is not in the prompt: it has {len(self.read.tokens)} tokens"
            )
        return position

    # --- what is foreseen, and what else could have been changed -------------------------------------------------

    def _predicted(self) -> float | None:
        """What other heads write reaches this cell only from layers below it."""
        layer = self.cell.head.layer
        if any(one_head(one, self.cell).layer < layer for one in self.of_heads):
            return None
        if any(isinstance(one, wire.CutCell) for one in self.of_heads):
            return 0.0
        return self.table.attention if self.removed is None else self.removed.after

    def _at(self, seen: Outcome) -> Outcome:
        """A cell that was cut: the pass still shows the attention that the head computed itself."""
        if not any(isinstance(one, wire.CutCell) for one in self.of_heads):
            return seen
        return replace(seen, attention=0.0, cells=(0.0,))

    def _controls(self, drawn: Sequence[Control]) -> list[tuple[Control | None, list[list[Edit]]]]:
        """Plans of every kind of control; heads are exchanged in each."""
        exchanged = [self._exchanged(draw) for draw in range(TRIED)]
        if self.removed is None:
            plans = [plan for plan in exchanged if plan is not None]
            return [(None, plans)] if plans else []
        made: list[tuple[Control | None, list[list[Edit]]]] = []
        for control in drawn:
            rows = [set_row(self.up, self.cell, row) for row in control.tried]
            plans = [[row, *(plan or [])] for row, plan in zip(rows, exchanged, strict=False)]
            made.append((control, plans))
        return made

    def _exchanged(self, draw: int) -> list[Edit] | None:
        """Every head's edit in another head of its layer; None where there is no other."""
        mine = {one_head(one, self.cell) for one in self.of_heads} | {self.cell.head}
        made: list[Edit] = []
        for number, asked in enumerate(self.of_heads):
            head = one_head(asked, self.cell)
            free = [Head(head.layer, i) for i in range(self.model.n_heads)]
            free = [one for one in free if one not in mine]
            if not free:
                return None
            order = torch.randperm(len(free), generator=keyed(self.plan.seed, "bench", number, draw))
            made.append(self._of_head(asked, free[int(order[0])]))
        return made

    def _control(
        self,
        control: Control | None,
        seen: Sequence[Outcome],
        answer: Answer,
        before: Outcome,
        change: float,
    ) -> wire.ControlSeen:
        effects = [answer.yardstick(one) - answer.yardstick(before) for one in seen]
        as_much = sum(abs(effect) >= abs(change) for effect in effects)
        left = torch.tensor([one.attention for one in seen]).double() if control is None else control.left
        return wire.ControlSeen(
            name="heads" if control is None else control.name,
            text=HEADS if control is None else control.text,
            draws=len(left),
            attention=_spread(left),
            attention_p=None if control is None else control.p,
            tried=len(effects),
            change=_spread(torch.tensor(effects, dtype=torch.float64)),
            p=(1 + as_much) / (1 + len(effects)),
        )

    def _top(self, edits: list[Edit]) -> tuple[wire.TokenChange, ...]:
        """The most likely next tokens before and after."""
        stream = self.up.stream
        got = self.model.edit(stream.token_ids[0], edits, want=(), logits="last", start=stream.start)
        before, after = self.read.logits.double().softmax(-1), got.logits[0, 0].double().softmax(-1)
        both = torch.cat([before.topk(TOP).indices, after.topk(TOP).indices]).unique()
        order = both[after[both].argsort(descending=True)].tolist()
        return tuple(
            wire.TokenChange(
                token=shown_after(self.model.tokenizer, self.read.token_ids, token),
                before=float(before[token]),
                after=float(after[token]),
            )
            for token in order
        )


def one_head(asked: OfHead, cell: Cell) -> Head:
    """The head that an edit is about."""
    return cell.head if isinstance(asked, wire.CutCell) else Head.parse(asked.head)


def needed(plan: wire.EditPlan) -> set[str]:
    """Ids of the prompts from which values are taken."""
    return {one.source for one in plan.edits if isinstance(one, wire.PatchHead)}


def _seen(outcome: Outcome) -> wire.OutcomeSeen:
    return wire.OutcomeSeen(
        attention=outcome.attention,
        probability=outcome.probability,
        lead=outcome.lead,
        log_probability=outcome.log_probability,
    )


def _spread(values: torch.Tensor) -> wire.DrawnSpread:
    found = Spread.of(values.double())
    return wire.DrawnSpread(mean=found.mean, low=found.low, high=found.high)
