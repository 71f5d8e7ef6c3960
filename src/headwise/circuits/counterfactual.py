"""Take signals away and look: the attention the algebra predicts, and the attention of the really edited pass."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.model.edits import AddVectors, Edit
from headwise.randomness import keyed
from headwise.tracing.causes import attention
from headwise.tracing.search import SideSignals
from headwise.tracing.vectors import component_shares, signal_vectors
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds, Cell, Component, Head, Side, Sides, Signal

if TYPE_CHECKING:
    from headwise.circuits.circuit import Circuit
    from headwise.model.batch import CleanPass
    from headwise.model.model import Model

KnownWrites = dict[tuple[Side, Component], Tensor]
"""Components' shares of one head's query and keys, as far as they were needed."""


@dataclass(frozen=True, eq=False)
class Removal:
    """What is taken from one cell: a vector from its query, vectors [T, d_head] from the keys its row sees."""

    cell: Cell
    query: Tensor | None = None
    key: Tensor | None = None

    def edits(self, prompt: int | None = None, *, factor: float = 1.0) -> list[Edit]:
        """The edits that make it, in prompt ``prompt`` of a batch; ``factor`` −1 adds the signals once more."""
        head, d, _ = self.cell
        made: list[Edit] = []
        if self.query is not None:
            made.append(
                AddVectors(head=head, side="query", positions=d, value=-factor * self.query, prompt=prompt)
            )
        if self.key is not None:
            seen = list(range(d + 1))
            value = -factor * self.key[: d + 1]
            made.append(AddVectors(head=head, positions=seen, value=value, seen_by=d, prompt=prompt))
        return made

    def predicted(self, up: PromptWrites) -> float:
        """The attention that is left, by the algebra alone."""
        return float(self.row(up)[self.cell.key])

    def row(self, up: PromptWrites) -> Tensor:
        """The whole row of attention that is left, by the algebra alone: [T]."""
        layer, index, d = self.cell.head.layer, self.cell.head.index, self.cell.query
        q, k = up.q[layer, index, d].double(), up.k[layer, index // up.group].double()
        q = q if self.query is None else q - self.query
        k = k if self.key is None else k - self.key
        visible = up.visible(layer, torch.tensor([d], device=up.device))[0]
        return attention((k @ q) * float(up.scale[layer]), visible, up.cap)


def removal(
    up: PromptWrites, cell: Cell, signals: Iterable[Signal], known: KnownWrites | None = None
) -> Removal:
    """Remove the given signals, of one side or of both, from a cell of the head that reads them.

    ``known`` remembers what each component has of the head's query and keys, for more removals from this head.
    """
    known = {} if known is None else known
    whole: dict[tuple[Side, Component], Signal] = {}
    for one in signals:
        place = one.side, one.writer
        before = whole.get(place)
        whole[place] = one if before is None else replace(one, channels=before.channels + one.channels)
    vectors: dict[Side, list[Tensor]] = {}
    for place, one in whole.items():
        if place not in known:
            known[place] = component_shares(up, cell.head, *place)
        vectors.setdefault(one.side, []).append(signal_vectors(up, one, cell.query, known[place]))
    total = {side: torch.stack(found).sum(0) for side, found in vectors.items()}
    return Removal(cell, total.get("query"), total.get("key"))


def unused(
    signals: Sequence[Signal], width: int, generator: torch.Generator, *, avoid: Collection[int] = ()
) -> list[Signal]:
    """The control for signals of one side: the same writers, each channel exchanged for one that none of them uses
    (nor ``avoid``)."""
    used = sorted({channel for one in signals for channel in one.channels})
    taken = {*used, *avoid}
    free = [channel for channel in range(width) if channel not in taken] or list(range(width))
    order = torch.randperm(len(free), generator=generator).tolist()
    instead = {channel: free[order[i % len(free)]] for i, channel in enumerate(used)}
    return [replace(one, channels=tuple(instead[channel] for channel in one.channels)) for one in signals]


@dataclass(frozen=True, eq=False)
class Case:
    """Some signals of a cell taken away, and as many of channels it does not use taken away instead."""

    sides: Sides
    removed: int
    """How many signals (one channel each)."""
    removal: Removal
    controls: tuple[Removal, ...]


@dataclass(frozen=True, eq=False)
class Trial:
    """One cell without the signals that cause it: each side that has a cause, then both together."""

    cell: Cell
    cases: tuple[Case, ...]

    @classmethod
    def of(
        cls,
        up: PromptWrites,
        cell: Cell,
        found: Mapping[Side, SideSignals],
        *,
        draws: int,
        seed: int,
        together: bool = True,
    ) -> Trial:
        """The controls of a case depend on the seed, the cell and the case alone.

        ``together`` puts both sides at the end, where both have a cause, and draws controls for this last case; without
        it every side is a case with controls of its own.
        """
        chosen: dict[Sides, list[list[Signal]]] = {
            side: [one.signals] for side, one in found.items() if one.resolved
        }
        if together and len(chosen) == 2:
            chosen["both"] = [signals for sides in chosen.values() for signals in sides]
        known: KnownWrites = {}
        cases = []
        for place, (sides, listed) in enumerate(chosen.items()):
            controlled = not together or place == len(chosen) - 1
            controls = [
                _control(up, cell, listed, keyed(seed, "unused", str(cell), sides, draw), known)
                for draw in range(draws if controlled else 0)
            ]
            removed = removal(up, cell, chain(*listed), known)
            cases.append(Case(sides, sum(map(len, listed)), removed, tuple(controls)))
        return cls(cell, tuple(cases))

    @property
    def removals(self) -> list[Removal]:
        """Every removal that is to be made: each case, followed by its controls."""
        return [one for case in self.cases for one in (case.removal, *case.controls)]


def _control(
    up: PromptWrites,
    cell: Cell,
    sides: Sequence[Sequence[Signal]],
    generator: torch.Generator,
    known: KnownWrites,
) -> Removal:
    drawn = [unused(signals, up.stream.model.d_head, generator) for signals in sides]
    return removal(up, cell, chain(*drawn), known)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


# --- the edited pass -------------------------------------------------------------------------------------------------

COPIES = 32
"""Copies of a prompt in one forward pass, each with its own edits: more gain nothing on a processor."""
PACKED, PACKED_TOKENS = 128, 1 << 16
"""Copies that share what no edit reaches, and their tokens: every pass runs the shared part once more."""


@dataclass(frozen=True)
class Outcome:
    """What the model does in one state: attention of the cells asked about, probability and lead of the answer."""

    attention: float
    """Mean over the cells."""
    probability: float
    """Of the answer."""
    lead: float
    """Logit of the answer minus that of the wrong one (or of the mean token)."""
    cells: tuple[float, ...] = ()
    """The attention of each cell."""

    @property
    def log_probability(self) -> float:
        """Of the answer; that of the smallest number there is, where it has none."""
        return math.log(max(self.probability, sys.float_info.min))

    def at(self, places: Sequence[int]) -> Outcome:
        """The same state, asked about some of the cells."""
        cells = tuple(self.cells[place] for place in places)
        return replace(self, attention=mean(cells), cells=cells)


def outcomes(
    model: Model,
    token_ids: Sequence[int],
    plans: Sequence[Sequence[Edit]],
    answer: AnswerIds,
    cells: Sequence[Cell] = (),
    *,
    start: int = 0,
    clean: CleanPass | None = None,
) -> list[Outcome]:
    """The prompt once with each plan's edits, all in really edited passes; they go on from its recorded pass, where
    that is given."""
    return outcomes_and_leads(model, token_ids, plans, (), answer, cells, start=start, clean=clean)[0]


def leads(
    model: Model,
    token_ids: Sequence[int],
    plans: Sequence[Sequence[Edit]],
    answer: AnswerIds,
    *,
    clean: CleanPass | None = None,
) -> list[float]:
    """The answer's lead with each plan's edits, and nothing else."""
    return outcomes_and_leads(model, token_ids, (), plans, answer, clean=clean)[1]


def outcomes_and_leads(
    model: Model,
    token_ids: Sequence[int],
    plans: Sequence[Sequence[Edit]],
    tried: Sequence[Sequence[Edit]],
    answer: AnswerIds,
    cells: Sequence[Cell] = (),
    *,
    start: int = 0,
    clean: CleanPass | None = None,
) -> tuple[list[Outcome], list[float]]:
    """What becomes of a prompt with each plan's edits, and the answer's lead with each ``tried``: in one pass.

    A probability needs the whole vocabulary, a lead two tokens: what the last layer left is kept, and unembedded after.
    """
    heads, rows = sorted({cell.head for cell in cells}), sorted({cell.query for cell in cells})
    where = [(heads.index(cell.head), rows.index(cell.query), cell.key) for cell in cells]
    every = [*plans, *tried]
    made: list[Outcome] = []
    reached: list[float] = []
    for copies, got in model.stream_capture(
        [list(token_ids)] * len(every),
        edits=[replace(edit, prompt=copy) for copy, plan in enumerate(every) for edit in plan],
        heads=heads,
        queries=rows,
        want=("pattern",),
        logits="last",
        unembed=False,
        start=start,
        batch_size=PACKED,
        max_tokens=max(PACKED_TOKENS, 4 * len(token_ids)),
        clean=clean,
    ):
        whole = sum(copy < len(plans) for copy in copies)  # copies of one length stay in their order
        read = got.read_out[:, 0]
        if whole:
            logits = model.anatomy.logits(read[:whole])
            probability, lead = answer.likelihood(logits).tolist(), answer.difference(logits).tolist()
            for copy in range(whole):
                seen = tuple(float(got.pattern[copy, h, r, key]) for h, r, key in where)
                made.append(Outcome(mean(seen), probability[copy], lead[copy], seen))
        if answer.wrong is None:
            reached += answer.difference(model.anatomy.logits(read[whole:])).tolist()
        else:
            two = model.anatomy.logits(read[whole:], (answer.token, answer.wrong))
            reached += AnswerIds(0, 1).difference(two).tolist()
    return made, reached


def edited_attention(
    model: Model,
    token_ids: Sequence[int],
    removals: Sequence[Removal],
    *,
    batch_size: int = COPIES,
    start: int = 0,
) -> list[float]:
    """The attention each removal leaves, in forward passes that were really edited.

    Removals of one layer share a copy of the prompt where they touch different rows: a row's pattern depends on its
    own query and keys alone. Everything else gets a copy of its own.
    """
    result = [float("nan")] * len(removals)
    by_layer: dict[int, list[int]] = {}
    for i, one in enumerate(removals):
        by_layer.setdefault(one.cell.head.layer, []).append(i)
    for indices in by_layer.values():
        copies: dict[tuple[Head, int], int] = {}
        place: list[tuple[int, int]] = []
        for i in indices:
            row = removals[i].cell[:2]
            copy = copies.get(row, 0)
            copies[row] = copy + 1
            place.append((i, copy))
        n = max(copies.values())
        heads = sorted({removals[i].cell.head for i in indices})
        rows = sorted({removals[i].cell.query for i in indices})
        edits = [edit for i, copy in place for edit in removals[i].edits(copy)]
        got = model.edit(
            [list(token_ids)] * n,
            edits,
            heads=heads,
            queries=rows,
            logits="none",
            start=start,
            batch_size=batch_size,
        )
        for i, copy in place:
            cell = removals[i].cell
            where = (copy, heads.index(cell.head), rows.index(cell.query), cell.key)
            result[i] = float(got.pattern[where])
    return result


def verified(up: PromptWrites, circuit: Circuit) -> Circuit:
    """The circuit with the edited pass of every counterfactual run."""
    if not circuit.counterfactuals:
        return circuit
    removals = [
        removal(up, circuit.node(c.target).cell, circuit.signals(c.target, c.side))
        for c in circuit.counterfactuals
    ]
    edited = edited_attention(up.bases.model, circuit.token_ids, removals, start=circuit.start)
    return replace(
        circuit,
        counterfactuals=tuple(
            replace(c, edited=e) for c, e in zip(circuit.counterfactuals, edited, strict=True)
        ),
    )
