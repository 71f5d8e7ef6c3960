"""The bench: change the running model, and see what becomes of a cell and of the answer, beside matched controls.

Whatever is changed, as much of something else is changed as well, again and again: what leaves the cell's query or keys
has the controls of :mod:`headwise.app.changes`, heads are exchanged for other heads of their layers, the edges of other
cells for channels that they do not use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch

from headwise.app import wire_edits
from headwise.app.changes import CellChanges, OfCell
from headwise.circuits.counterfactual import Outcome, outcomes, removal, unused
from headwise.circuits.interventions import in_stream
from headwise.contrast.bank import FeatureBank, banks_of
from headwise.errors import HeadwiseError
from headwise.model.edits import Edit, Silence
from headwise.model.model import Model
from headwise.randomness import keyed
from headwise.tokens import Prompt, shown_after
from headwise.tracing.table import log_odds_table
from headwise.types import Cell, Claim, Head
from headwise.validation import check
from headwise.why.consequence import set_row, without_cell
from headwise.why.controls import Control, tried_of
from headwise.why.proof import LEAST, NULL, Spread
from headwise.why.question import Answer, PromptReading, find_answer
from headwise.why.what import features_here

OfHead = wire_edits.SilenceHead | wire_edits.CutCell | wire_edits.PatchHead
TOP = 5
GROUP = "this change alone, the largest p over its kinds of control"
HEADS = "the same edits in other heads of the same layers"
EDGES = "as many channels that the edges do not use, of the same writers"


class Bench:
    """One plan on one prompt; ``others`` are the prompts that values are taken from, by id."""

    def __init__(
        self,
        read: PromptReading,
        plan: wire_edits.EditPlan,
        others: dict[str, PromptReading],
        banks: Sequence[FeatureBank] = (),
    ) -> None:
        self.read, self.plan, self.others = read, plan, others
        self.up, self.model = read.up, read.up.stream.model
        self.cell = self._cell(plan.head, plan.query, plan.key)
        self.table = log_odds_table(self.up, self.cell)
        self.of_heads: list[OfHead] = [one for one in plan.edits if isinstance(one, OfHead)]
        self.edges: list[wire_edits.RemoveEdge] = []
        of_cell: list[OfCell] = []
        for one in plan.edits:
            if isinstance(one, wire_edits.RemoveEdge) and not self._is_own(one):
                self.edges.append(one)
            elif isinstance(one, wire_edits.RemoveEdge):
                of_cell.append(
                    wire_edits.RemoveSignals(
                        kind="signals", side=one.side, signals=(one.signal,), dose=one.dose
                    )
                )
            elif isinstance(one, OfCell):
                of_cell.append(one)
        mine = [bank for bank in banks if self.cell.head in bank.heads]
        features = features_here(mine, self.up, self.cell) if mine else []
        self.changes = CellChanges(self.table, of_cell, features, plan.dose)
        self._targets: dict[Cell, CellChanges] = {}

    def _cell(self, head: str, query: int, key: int) -> Cell:
        if query >= len(self.read.tokens) or key > query:
            raise HeadwiseError(
                f"query {query} and key {key} are no cell of a prompt of {len(self.read.tokens)} tokens"
            )
        return Cell(self.model.head(head), query, key)

    def _is_own(self, edge: wire_edits.RemoveEdge) -> bool:
        """An edge into the cell that is watched: a signal of its own."""
        return edge.scope == "local" and self._cell(edge.head, edge.query, edge.key) == self.cell

    def run(self) -> wire_edits.EditSeen:
        """Every state in one edited pass."""
        stream, plan = self.up.stream, self.plan
        answer = find_answer(self.model, self.read.token_ids, self.read.logits, plan.answer, plan.wrong)
        whole = self._edits()
        tried = self._controls(self.changes.controls(plan.seed, plan.draws) if self.changes else [])
        states = [[], whole, *(edits for _, plans in tried for edits in plans)]
        ids, clean = stream.token_ids[0], stream.clean_pass(0)
        seen = outcomes(self.model, ids, states, answer, [self.cell], start=stream.start, clean=clean)
        before, after = seen[0], self._at(seen[1])
        change = answer.yardstick(after) - answer.yardstick(before)
        made, place = [], 2
        for control, plans in tried:
            made.append(self._control(control, seen[place : place + len(plans)], answer, before, change))
            place += len(plans)
        return wire_edits.EditSeen(
            before=_seen(before),
            predicted=self._predicted(),
            after=_seen(after),
            change=change,
            measured_by="lead" if answer.compared else "log_probability",
            controls=tuple(made),
            claim=_claim(change, made),
            top=self._top(whole),
        )

    # --- what is changed -----------------------------------------------------------------------------------------

    def _edits(self) -> list[Edit]:
        of_heads = [self._of_head(one, one_head(one, self.cell)) for one in self.of_heads]
        of_edges = [edit for one in self.edges for edit in self._of_edge(one)]
        return [*self.changes.edits, *of_edges, *of_heads]

    def _of_edge(self, asked: wire_edits.RemoveEdge, draw: int | None = None) -> list[Edit]:
        """One edge, or as many channels that it does not use."""
        cell = self._cell(asked.head, asked.query, asked.key)
        if cell not in self._targets:
            self._targets[cell] = CellChanges(log_odds_table(self.up, cell), [], [], 1.0)
        signals = [self._targets[cell].signal(asked.signal, asked.side, asked.signal.channels)]
        if draw is not None:
            generator = keyed(self.plan.seed, "unused", str(cell), asked.side, draw)
            signals = unused(signals, self.model.d_head, generator)
        taken, factor = removal(self.up, cell, signals), self.plan.dose * asked.dose
        if asked.scope == "local":
            return taken.edits(factor=factor)
        return list(in_stream(self.up, taken, factor))

    def _of_head(self, asked: OfHead, head: Head) -> Edit:
        """One edit of a head, or the same of another head."""
        dose = self.plan.dose * asked.dose
        if isinstance(asked, wire_edits.SilenceHead):
            return Silence(head=self.model.head(head), positions=self._position(asked.position), dose=dose)
        if isinstance(asked, wire_edits.CutCell):
            cell = Cell(head, self.cell.query, self.cell.key)
            table = self.table if head == self.cell.head else log_odds_table(self.up, cell)
            row = without_cell(table)
            if row is None:
                raise HeadwiseError(
                    "the row of this cell sees one token alone: there is nothing to share it out to"
                )
            return replace(set_row(self.up, cell, row), dose=dose)
        other, position = self.others[asked.source], asked.position
        if len(other.tokens) != len(self.read.tokens):
            raise HeadwiseError(
                f"the other prompt has {len(other.tokens)} tokens and this one {len(self.read.tokens)}: patch from a "
                "prompt of as many"
            )
        self._position(position)
        head = self.model.head(head)
        row = other.up.stream.pattern(head.layer, position)[head.index]
        return replace(set_row(other.up, Cell(head, position, 0), row), dose=dose)

    def _position(self, position: int | None) -> int | None:
        if position is not None and position >= len(self.read.tokens):
            raise HeadwiseError(
                f"position {position} is not in the prompt: it has {len(self.read.tokens)} tokens"
            )
        return position

    # --- what is foreseen, and what else could have been changed -------------------------------------------------

    def _predicted(self) -> float | None:
        """What other heads write reaches this cell only from layers below it; the stream before its own layer, too."""
        layer = self.cell.head.layer
        if any(one_head(one, self.cell).layer < layer for one in self.of_heads):
            return None
        if any(Head.parse(one.head).layer < layer + (one.scope == "global") for one in self.edges):
            return None
        return self._uncut * (self.changes.predicted if self.changes else self.table.attention)

    @property
    def _uncut(self) -> float:
        """The part of the cell's attention that cuts leave."""
        cuts = [one for one in self.of_heads if isinstance(one, wire_edits.CutCell)]
        return prod(1.0 - self.plan.dose * one.dose for one in cuts)

    def _at(self, seen: Outcome) -> Outcome:
        """Of a cell that was cut the pass still shows the attention that the head computed itself."""
        left = self._uncut * seen.attention
        return replace(seen, attention=left, cells=(left,))

    def _controls(self, drawn: Sequence[Control]) -> list[tuple[Control | None, list[list[Edit]]]]:
        """Plans of every kind of control; heads and edges are exchanged in each."""
        tried = tried_of(self.plan.draws)
        if not self.changes:
            plans = [plan for plan in map(self._exchanged, self._unlike(tried)) if plan is not None]
            return [(None, plans)] if plans else []
        exchanged = [self._exchanged(draw) for draw in range(tried)]
        made: list[tuple[Control | None, list[list[Edit]]]] = []
        for control in drawn:
            rows = [set_row(self.up, self.cell, row) for row in control.tried]
            plans = [[row, *(plan or [])] for row, plan in zip(rows, exchanged, strict=False)]
            made.append((control, plans))
        return made

    def _unlike(self, tried: int) -> list[int]:
        """The draws in which no other heads come again: of the eight others in a layer of nine, a head is the most by
        chance once in nine, however often they are drawn. Other channels of an edge are never all drawn."""
        if self.edges:
            return list(range(tried))
        seen: dict[tuple[Head, ...] | None, int] = {}
        for draw in range(tried):
            seen.setdefault(self._other_heads(draw), draw)
        return list(seen.values())

    def _other_heads(self, draw: int) -> tuple[Head, ...] | None:
        """For every head that is edited another of its layer; None where there is none."""
        mine = {one_head(one, self.cell) for one in self.of_heads} | {self.cell.head}
        made = []
        for number, asked in enumerate(self.of_heads):
            layer = one_head(asked, self.cell).layer
            free = [one for one in (Head(layer, i) for i in range(self.model.n_heads)) if one not in mine]
            if not free:
                return None
            order = torch.randperm(len(free), generator=keyed(self.plan.seed, "bench", number, draw))
            made.append(free[int(order[0])])
        return tuple(made)

    def _exchanged(self, draw: int) -> list[Edit] | None:
        """Every head's edit in another head of its layer, every edge in other channels; None where there is no other
        head."""
        others = self._other_heads(draw)
        if others is None:
            return None
        made: list[Edit] = [edit for one in self.edges for edit in self._of_edge(one, draw)]
        return [*made, *map(self._of_head, self.of_heads, others)]

    def _control(
        self,
        control: Control | None,
        seen: Sequence[Outcome],
        answer: Answer,
        before: Outcome,
        change: float,
    ) -> wire_edits.ControlSeen:
        effects = [answer.yardstick(one) - answer.yardstick(before) for one in seen]
        as_much = sum(abs(effect) >= abs(change) for effect in effects)
        left = torch.tensor([one.attention for one in seen]).double() if control is None else control.left
        texts = [*([EDGES] if self.edges else []), *([HEADS] if self.of_heads else [])]
        name = "heads" if self.of_heads else "edges"
        return wire_edits.ControlSeen(
            name=name if control is None else control.name,
            text="; ".join([*([] if control is None else [control.text]), *texts]),
            draws=len(left),
            attention=_spread(left),
            attention_p=None if control is None else control.p,
            tried=len(effects),
            change=_spread(torch.tensor(effects, dtype=torch.float64)),
            p=(1 + as_much) / (1 + len(effects)),
        )

    def _top(self, edits: list[Edit]) -> tuple[wire_edits.TokenChange, ...]:
        """The most likely next tokens before and after."""
        stream = self.up.stream
        got = self.model.edit(stream.token_ids[0], edits, want=(), logits="last", start=stream.start)
        before, after = self.read.logits.double().softmax(-1), got.logits[0, 0].double().softmax(-1)
        both = torch.cat([before.topk(TOP).indices, after.topk(TOP).indices]).unique()
        order = both[after[both].argsort(descending=True)].tolist()
        return tuple(
            wire_edits.TokenChange(
                token=shown_after(self.model.tokenizer, self.read.token_ids, token),
                before=float(before[token]),
                after=float(after[token]),
            )
            for token in order
        )


def try_edits(
    model: Model,
    prompt: Prompt,
    *,
    head: str,
    query: int,
    key: int,
    edits: Sequence[Mapping[str, Any]],
    features: Sequence[str] = (),
    **settings: Any,
) -> wire_edits.EditSeen:
    """The bench in Python: ``edits`` as the app sends them, but a patch names its other prompt by its text."""
    read = PromptReading.of(model, prompt)
    ids = {one["source"]: f"{number:032x}" for number, one in enumerate(edits) if one["kind"] == "patch"}
    others = {name: PromptReading.of(model, text) for text, name in ids.items()}
    asked = [{**one, "source": ids[one["source"]]} if one["kind"] == "patch" else {**one} for one in edits]
    cell = {"tab": "0" * 16, "prompt": "0" * 32, "head": head, "query": query, "key": key}
    plan = check(wire_edits.EditPlan, {**cell, "edits": asked, **settings}, "")
    with torch.no_grad():
        return Bench(read, plan, others, banks_of(list(features), model)).run()


def one_head(asked: OfHead, cell: Cell) -> Head:
    """The head that an edit is about."""
    return cell.head if isinstance(asked, wire_edits.CutCell) else Head.parse(asked.head)


def needed(plan: wire_edits.EditPlan) -> set[str]:
    """Ids of the prompts from which values are taken."""
    return {one.source for one in plan.edits if isinstance(one, wire_edits.PatchHead)}


def _claim(change: float, controls: Sequence[wire_edits.ControlSeen]) -> wire_edits.ClaimSeen | None:
    """That the answer changes by more than chance: held against the kind of control that does most, so that nothing is
    left to correct for."""
    if not controls:
        return None
    most = max(controls, key=lambda one: one.p)
    made = Claim.alone(most.p, null=NULL, draws=most.tried, group=GROUP, fit=abs(change) >= LEAST)
    return wire_edits.ClaimSeen(**made.to_json())


def _seen(outcome: Outcome) -> wire_edits.OutcomeSeen:
    return wire_edits.OutcomeSeen(
        attention=outcome.attention,
        probability=outcome.probability,
        lead=outcome.lead,
        log_probability=outcome.log_probability,
    )


def _spread(values: torch.Tensor) -> wire_edits.DrawnSpread:
    found = Spread.of(values.double())
    return wire_edits.DrawnSpread(mean=found.mean, low=found.low, high=found.high)
