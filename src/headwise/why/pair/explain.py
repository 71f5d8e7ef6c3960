"""Why here in one prompt and not in the other? One table with differences, and passes with signals exchanged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from headwise.arguments import count
from headwise.basis_names import BasisKind
from headwise.circuits.counterfactual import Outcome
from headwise.circuits.patching import Align
from headwise.errors import HeadwiseError
from headwise.randomness import seeded
from headwise.tokens import Prompt
from headwise.tracing.mlps import SignedTotals
from headwise.tracing.table import LogOddsTable, log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Head, Side
from headwise.why.controls import DRAWS
from headwise.why.pair.exchange import Compared, Proven
from headwise.why.pair.paired import PairedSide, alignment, cell_there, through
from headwise.why.pair.result import (
    SHOWN,
    Both,
    ChannelDifference,
    OnePrompt,
    PromptDifference,
    ReadDifference,
    WriterDifference,
)
from headwise.why.question import Answer, PromptReading, Question, ask, find_answer
from headwise.why.what import place_split
from headwise.why.who import ROWS, SIDES, THROUGH

if TYPE_CHECKING:
    from headwise.model.model import Model

READ = 4
"""Of what an MLP had read, how many have a row of their own."""


def explain_difference(
    model: Model,
    prompt: Prompt,
    against: Prompt,
    *,
    head: Head | str | None = None,
    query: str | int | None = None,
    key: str | int | None = None,
    answer: str | int | None = None,
    wrong: str | int | None = None,
    align: Align = None,
    basis: BasisKind = "singular",
    draws: int = DRAWS,
    seed: int = 0,
    start: int = 0,
    progress: Callable[[str], None] | None = None,
) -> PromptDifference:
    """Why does ``head`` attend here in one prompt, and not in another?

    Parameters
    ----------
    model:
        A loaded model.
    prompt:
        The text that the model reads, or its token ids.
    against:
        The other prompt.
    head:
        The head, such as ``L22H4``; alone, the cell in which its attention differs most is taken.
    query:
        The token of ``prompt`` that attends, as text or position.
    key:
        The token of ``prompt`` it attends to, as text or position.
    answer:
        The answer's token; default: what the model predicts after ``prompt``.
    wrong:
        The token it is compared with; default: what the model predicts after ``against``, where that is another.
    align:
        Positions of ``prompt``, each with that of ``against`` that stands for it, where they are not to be as they are
        by default: the same at equal lengths, else those of the longest equal runs of tokens.
    basis:
        Which channels: ``singular``, ``balanced`` (after ``headwise calibrate``) or ``rotated``.
    draws:
        Random patches of each kind of control. One in fifty of them, and at least 19, is also tried in the model: what
        is said of the answer has p ≥ .05 with 999 draws, p ≥ .01 with 4999.
    seed:
        The seed of everything random.
    start:
        The position of each prompt's first token, with nothing before it; 0 unless the model has rotary positions.
    progress:
        Told the name of each stage as it begins.

    Returns
    -------
    PromptDifference
        The table with differences and the patched passes, as values, as a sentence and as a page.
    """
    began, told = time.perf_counter(), progress or (lambda _: None)
    draws = count(draws, "draws", "leaves no controls")
    seeded(seed)
    with torch.no_grad():
        told("reading both prompts")
        here, there = (PromptReading.of(model, one, basis=basis, start=start) for one in (prompt, against))
    found = difference_of(
        here,
        there,
        head=head,
        query=query,
        key=key,
        answer=answer,
        wrong=wrong,
        align=align,
        draws=draws,
        seed=seed,
        progress=progress,
    )
    return replace(found, seconds=time.perf_counter() - began)


def difference_of(
    here: PromptReading,
    there: PromptReading,
    *,
    head: Head | str | None = None,
    query: str | int | None = None,
    key: str | int | None = None,
    answer: str | int | None = None,
    wrong: str | int | None = None,
    align: Align = None,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> PromptDifference:
    """:func:`explain_difference` of two prompts that were read already, with one basis and one start."""
    began, told = time.perf_counter(), progress or (lambda _: None)
    model = here.up.stream.model
    with torch.no_grad():
        told("finding the question")
        places = alignment(here.token_ids, there.token_ids, align)
        found = _answer(model, here, there, answer, wrong)
        asked = ask(model, here.up, here.tokens, found, head, query, key)
        question = asked
        if head is not None and query is None and key is None:
            question = _differing(asked, here.up, there.up, places)
        elif head is None or key is None:
            question = _aligned(asked, here.up, there.up, places, query, key)
        cell = cell_there(question.cell, places, there.up, there.tokens)
        told("what differs")
        tables = (log_odds_table(here.up, question.cell), log_odds_table(there.up, cell))
        for table, which in zip(tables, ("prompt", "other prompt"), strict=True):
            if table.keys < 2:
                raise HeadwiseError(
                    f"{table.cell.head} sees one token at position {table.cell.query} of the {which}: there is nothing "
                    "to compare; choose a later query"
                )
        pair = Compared(tables, places, {side: PairedSide.of(*tables, side, places) for side in SIDES})
        told("patching")
        proof = pair.proven(found, draws=draws, seed=seed)
        outcomes = proof.outcomes
        what = _channels(*tables)
        shown = [part.channel for part in what[:SHOWN]]
        rows = [row for side in SIDES for row in _rows(pair, side, shown, proof)]
        total = tables[0].total - tables[1].total
        sums = [float(one.differences.sum()) for one in pair.sides.values()]
        error = max(abs(one - total) for one in (*sums, sum(part.log_odds.difference for part in what)))
        return PromptDifference(
            model=model.name,
            weight_hash=model.weight_hash,
            here=_one(model, here, tables[0], outcomes[0]),
            there=_one(model, there, tables[1], outcomes[1]),
            alignment=places,
            question=question,
            answer=found,
            what=what,
            who=tuple(rows),
            totals={side: SignedTotals.of(one.differences) for side, one in pair.sides.items()},
            whole={side: pair.patcher(side).whole for side in SIDES},
            side=proof.side,
            into=pair.into,
            patch=proof.patch,
            back=proof.back,
            error=error,
            basis=here.up.bases.name,
            seconds=time.perf_counter() - began,
            start=here.up.stream.start,
        )


# --- the question ----------------------------------------------------------------------------------------------------


def _answer(
    model: Model,
    here: PromptReading,
    there: PromptReading,
    answer: str | int | None,
    wrong: str | int | None,
) -> Answer:
    """The answer of the prompt, against that of the other one where the two differ."""
    found = find_answer(model, here.token_ids, here.logits, answer, wrong)
    other = int(there.logits.argmax())
    if wrong is None and other != found.token:
        found = find_answer(model, here.token_ids, here.logits, found.token, other)
    return found


def _aligned(
    question: Question,
    here: PromptWrites,
    there: PromptWrites,
    places: Mapping[int, int],
    query: object,
    key: object,
) -> Question:
    """Where the question was found and not asked, the strongest cell that has one that stands for it: of those that
    were ranked, else of the same head."""
    cells = [question.cell, *(one.cell for one in question.runners_up)]
    best = next((cell for cell in cells if cell.query in places and cell.key in places), None)
    if best is None and key is None:
        best = _strongest(question.cell, here, there, places, query)
    if best is None or best == question.cell:
        return question
    rest = tuple(one for one in question.runners_up if one.cell != best)
    return replace(
        question,
        cell=best,
        because=f"{question.because}; nothing in the other prompt stands for it, so the next one is compared",
        runners_up=rest,
    )


def _differing(
    question: Question, here: PromptWrites, there: PromptWrites, places: Mapping[int, int]
) -> Question:
    """Of a head that was named alone, the cell whose attention differs most between the prompts: before they part, its
    strongest one would say nothing."""
    best = _largest(
        question.cell.head, here, there, places, [row for row in places if row > 0], differing=True
    )
    if best is None or best == question.cell:
        return _aligned(question, here, there, places, None, None) if best is None else question
    because = f"of {best.head}'s attention, it differs most between the two prompts"
    return replace(question, cell=best, because=because, runners_up=())


def _strongest(
    cell: Cell, here: PromptWrites, there: PromptWrites, places: Mapping[int, int], query: object
) -> Cell | None:
    """The strongest attention of a head among cells that have one that stands for them, the first token left out."""
    rows = [row for row in places if row > 0] if query is None else [cell.query]
    return _largest(cell.head, here, there, places, rows) if all(row in places for row in rows) else None


def _largest(
    head: Head,
    here: PromptWrites,
    there: PromptWrites,
    places: Mapping[int, int],
    rows: Sequence[int],
    *,
    differing: bool = False,
) -> Cell | None:
    """The largest attention, or difference of attention, among cells that both prompts have."""
    keys = [key for key in places if key > 0]
    if not keys or not rows:
        return None
    other = [places[row] for row in rows]
    seen = here.visible(head.layer, torch.tensor(rows, device=here.device))[:, keys]
    seen &= there.visible(head.layer, torch.tensor(other, device=there.device))[
        :, [places[key] for key in keys]
    ]
    values = here.stream.whole_pattern(head, here.prompt, rows)[:, keys]
    if differing:
        values = (
            values - there.stream.whole_pattern(head, there.prompt, other)[:, [places[key] for key in keys]]
        ).abs()
    values = values.masked_fill(~seen, -1.0)
    row, key = divmod(int(values.argmax()), len(keys))
    return Cell(head, rows[row], keys[key]) if bool(seen[row, key]) else None


def _one(model: Model, read: PromptReading, table: LogOddsTable, outcome: Outcome) -> OnePrompt:
    return OnePrompt(
        prompt=read.prompt,
        tokens=read.tokens,
        cell=table.cell,
        attention=table.attention,
        log_odds=table.total,
        keys=table.keys,
        row=tuple(table.pattern.tolist()),
        place=place_split(read.up, table),
        predicted=find_answer(model, read.token_ids, read.logits, None, None).text,
        outcome=outcome,
    )


# --- the table -------------------------------------------------------------------------------------------------------


def _channels(here: LogOddsTable, there: LogOddsTable) -> tuple[ChannelDifference, ...]:
    stable = here.basis.stable.tolist()
    pairs = zip(here.what.tolist(), there.what.tolist(), stable, strict=True)
    made = [ChannelDifference(n, Both(a, b), bool(known)) for n, (a, b, known) in enumerate(pairs)]
    return tuple(sorted(made, key=lambda part: -abs(part.log_odds.difference)))


def _rows(pair: Compared, side: Side, shown: Sequence[int], proof: Proven) -> list[WriterDifference]:
    one = pair.sides[side]
    sizes = one.differences.abs().masked_fill(~one.possible, -1.0)
    order = sizes.argsort(descending=True, stable=True)[: int(one.possible.sum())].tolist()
    patched = set(proof.chosen.tolist()) if proof.side == side and proof.chosen is not None else set()
    chosen = sorted({*order[:ROWS], *patched}, key=lambda row: -float(sizes[row]))
    cells = one.cells(chosen, shown)
    values = one.values[chosen]
    made: list[WriterDifference] = []
    followed = 0
    for i, row in enumerate(chosen):
        here, there = one.writers(row)
        read: tuple[ReadDifference, ...] = ()
        if here is not None and here.kind == "mlp" and followed < THROUGH:
            read, followed = _read(pair, side, here, Both(*values[i].tolist())), followed + 1
        made.append(
            WriterDifference(
                side=side,
                here=here,
                there=there,
                log_odds=Both(*values[i].tolist()),
                channels=tuple(cells[i].tolist()),
                patched=row in patched,
                through=read,
            )
        )
    rest = len(order) - len(chosen)
    if rest > 0:
        a, b = (table.total - float(values[:, column].sum()) for column, table in enumerate(pair.tables))
        columns = pair.tables[0].what[list(shown)] - pair.tables[1].what[list(shown)]
        others = columns.cpu() - cells.sum(0)
        made.append(WriterDifference(side, None, None, Both(a, b), tuple(others.tolist()), rest))
    return made


def _read(pair: Compared, side: Side, mlp: Component, total: Both) -> tuple[ReadDifference, ...]:
    """What an MLP had read, and all else of its part together."""
    found = [
        ReadDifference(a, b, Both(x, y))
        for a, b, x, y in through(*pair.tables, side, mlp, pair.places)[:READ]
        if x or y
    ]
    here = total.here - sum(one.log_odds.here for one in found)
    there = total.there - sum(one.log_odds.there for one in found)
    return (*found, ReadDifference(None, None, Both(here, there)))
