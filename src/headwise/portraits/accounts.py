"""Why a head attends where it does: the table, place and consequence of cells that were drawn from its strongest rows.

Each cell has the account that an explanation of it has (:mod:`headwise.tracing.table`, :mod:`headwise.why.what`,
:mod:`headwise.why.consequence`). Heads as writers are added up over the tokens they read: a portrait says who shapes a
head, not which token of which text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from headwise.bases.basis import Bases
from headwise.bases.singular import one_thread
from headwise.basis_names import BasisName
from headwise.naming.sample import LEAST_ATTENTION
from headwise.naming.texts import Texts
from headwise.portraits.peaks import HeadPeaks, text_order
from headwise.progress import Tick
from headwise.randomness import keyed
from headwise.scale.stages import Stages, ValuesJob, batched
from headwise.scale.work import Chunk
from headwise.tokens import shown_after
from headwise.tracing.table import log_odds_table
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds, Cell, Head, Side
from headwise.why.consequence import TokenEffect, consequence
from headwise.why.what import PlaceSplit, place_split, what

if TYPE_CHECKING:
    from headwise.model.model import Model

CELLS = 16
"""Cells of each head that are explained, one per text."""
SIDES: tuple[Side, ...] = ("query", "key")


@dataclass(frozen=True)
class TextCells:
    """A text and the cells of it that are to be explained."""

    number: int
    ids: tuple[int, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, eq=False)
class CellAccount:
    """One cell, explained. N writers below its layer, K channels."""

    text: int
    cell: Cell
    attention: float
    log_odds: float
    query: Tensor
    """[N]: each writer's part of the log-odds on the query side, in the order of :func:`whole_writers`."""
    key: Tensor
    """[N]: the same on the key side."""
    channels: Tensor
    """[K]: each channel's part."""
    poles: tuple[str, ...]
    """[K]: the signs of query and key in each channel."""
    place: PlaceSplit
    raised: tuple[TokenEffect, ...]
    lowered: tuple[TokenEffect, ...]
    read: str
    """The token that was read, written as the raised ones are."""
    follows: str | None
    """The token that follows the query in the text; None at its end."""

    def side(self, side: Side) -> Tensor:
        return self.query if side == "query" else self.key


@dataclass(frozen=True)
class AccountsJob(ValuesJob):
    """The accounts of some cells of a text."""

    kind: ClassVar = CellAccount
    basis: BasisName

    @torch.no_grad()
    def make(self, model: Model, chunk: Chunk[TextCells], tick: Tick, /) -> list[CellAccount]:
        bases = Bases.of(model, self.basis.kind, frame=self.basis.frame)
        made = []
        with one_thread():
            for item in chunk.items:
                up = PromptWrites(model.split([list(item.ids)]), 0, bases)
                made += [account_of(up, item, cell) for cell in item.cells]
                tick(1)
        return made


def account_of(up: PromptWrites, item: TextCells, cell: Cell) -> CellAccount:
    """The account of one cell."""
    tokenizer, ids = up.stream.model.tokenizer, list(item.ids)

    def text(token: int) -> str:
        return shown_after(tokenizer, ids[: cell.query + 1], token)

    table = log_odds_table(up, cell)
    made = what(up, table)
    poles = {part.channel: part.pole for part in made.channels}
    # The token that was read stands for an answer: what is raised does not depend on one.
    done = consequence(up, cell, AnswerIds(ids[cell.key], None), text)
    return CellAccount(
        text=item.number,
        cell=cell,
        attention=table.attention,
        log_odds=table.total,
        query=table.query.over_tokens.cpu(),
        key=table.key.over_tokens.cpu(),
        channels=table.what.cpu(),
        poles=tuple(poles[channel] for channel in range(len(poles))),
        place=place_split(up, table),
        raised=done.raised,
        lowered=done.lowered,
        read=text(ids[cell.key]),
        follows=text(ids[cell.query + 1]) if cell.query + 1 < len(ids) else None,
    )


# --- which cells -----------------------------------------------------------------------------------------------------


def drawn_cells(head: Head, peaks: HeadPeaks, order: Sequence[int], most: int, seed: int) -> dict[int, Cell]:
    """By text: a cell of the head's strongest tenth of rows that gets enough attention, drawn at random; of the first
    texts that have one. Empty for a head that never attends beyond sinks."""
    rows = peaks.tenth(0)
    rows = rows[peaks.attention[rows] >= LEAST_ATTENTION]
    mixed = torch.randperm(len(rows), generator=keyed(seed, "portraits", "cells", str(head))).numpy()
    rows = rows[mixed]
    first: dict[int, int] = {}
    for row, text in zip(rows.tolist(), peaks.text[rows].tolist(), strict=True):
        first.setdefault(text, row)
    chosen = [text for text in order if text in first][:most]
    return {text: Cell(head, int(peaks.row[first[text]]), int(peaks.source[first[text]])) for text in chosen}


def find_accounts(
    texts: Texts, cells: Mapping[Head, Mapping[int, Cell]], basis: BasisName, seed: int, work: Stages
) -> dict[Head, list[CellAccount]]:
    """The accounts of the drawn cells of all heads, text by text, so that a text is read once."""
    by_text: dict[int, list[Cell]] = {}
    for drawn in cells.values():
        for text, cell in drawn.items():
            by_text.setdefault(text, []).append(cell)
    items = [
        TextCells(number, tuple(texts.ids_of(number)), tuple(sorted(by_text[number])))
        for number in text_order(texts, seed)
        if number in by_text
    ]
    found: dict[Head, list[CellAccount]] = {head: [] for head in cells}
    for part in work("accounts", AccountsJob(basis), batched([[item] for item in items])):
        for one in part:
            found[one.cell.head].append(one)
    return found


def stacked(accounts: Sequence[CellAccount], side: Side) -> np.ndarray:
    """[cells, N]: the writers' parts on one side."""
    return torch.stack([one.side(side) for one in accounts]).double().numpy()
