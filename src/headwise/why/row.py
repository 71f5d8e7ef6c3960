"""A whole row at once: which keys a query attends to, and why each of them.

Every key has the account that an explanation of its cell has (:mod:`headwise.tracing.table`): its log-odds against all
other keys of the row, split over writers once on the query side and once on the key side. Parts of one key sum to its
log-odds on either side. Heads are added up over the tokens they read, so that the rows of all keys fit one table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.arguments import count, share
from headwise.contrast.bank import FeatureBank, banks_of
from headwise.errors import HeadwiseError
from headwise.tokens import Prompt
from headwise.tracing.mlps import SignedTotals
from headwise.tracing.table import LogOddsTable, log_odds_table
from headwise.types import Cell, Component, Head, Side
from headwise.why.question import PromptReading, ask, find_answer
from headwise.why.what import features_here, what
from headwise.why.who import SIDES

if TYPE_CHECKING:
    from headwise.model.model import Model

SCHEMA = 1
LEAST = 0.01
"""Attention from which a key is explained."""
KEYS = 10
"""Keys that are explained, at most."""
ROWS = 40
"""Writers of each side that have a row of their own, beside those that help single keys most."""
HELPERS = 2
"""Writers that help a key most, which always have a row: a key with little attention has no say in the order."""


@dataclass(frozen=True)
class RowKey:
    """One key that the query sees."""

    key: int
    """Its position."""
    attention: float
    """What it gets."""
    logit: float
    """scale · q·k, before a soft-cap."""


@dataclass(frozen=True)
class ExplainedKey(RowKey):
    """One key that is explained: a column of the table."""

    log_odds: float
    """log(A / (1 − A)) + log(keys − 1), against all other keys of the row: what the writers' parts sum to."""
    totals: dict[Side, SignedTotals]
    """What all writers of a side that help it bring, and what all that hinder it take."""
    error: float
    """How far the parts of a side are from summing to the log-odds, at most."""
    tolerance: float
    """How far they may be, in the model's precision."""


@dataclass(frozen=True)
class RowWriter:
    """One writer's part of the log-odds of every explained key, on one side: a row of the table."""

    side: Side
    """The side that it wrote into: at the query, or at the keys."""
    writer: Component | None
    """Who wrote, a head whatever it read; None is all others together."""
    log_odds: tuple[float, ...]
    """Its part of the log-odds of each key of :attr:`RowExplanation.explained`."""
    count: int = 1
    """How many writers the row is for."""

    @property
    def name(self) -> str:
        """The writer's name, or ``others``."""
        return "others" if self.writer is None else self.writer.name


@dataclass(frozen=True)
class RowFeature:
    """One named feature's part of the log-odds of every explained key."""

    name: str
    """Its name."""
    rank: int
    """How many dimensions of the query it takes."""
    log_odds: tuple[float, ...]
    """Its part of the log-odds of each key of :attr:`RowExplanation.explained`."""


@dataclass(frozen=True, eq=False)
class RowExplanation:
    """Which keys one query of a head attends to, and why each."""

    model: str
    """The model's name."""
    weight_hash: str
    """SHA-256 of its weights."""
    prompt: str | None
    """The prompt as text; None if token ids were given."""
    tokens: tuple[str, ...]
    """[T]: its tokens as text."""
    head: Head
    """The head that attends."""
    query: int
    """The position that attends."""
    because: str
    """How the row was chosen, as a clause."""
    explained: tuple[ExplainedKey, ...]
    """The keys with a column in the table, the most attention first."""
    rest: tuple[RowKey, ...]
    """All other keys that the query sees, the most attention first."""
    who: tuple[RowWriter, ...]
    """Each side's strongest writers by the size of their parts, keys weighted by attention; then all others."""
    start: int = 0
    """The position id of the first token."""
    features: tuple[RowFeature, ...] = ()
    """The same log-odds by named feature, if a bank was given; what is left is :meth:`unexplained`."""

    def unexplained(self, column: int) -> float:
        """What the features leave of the log-odds of a column's key."""
        return self.explained[column].log_odds - sum(one.log_odds[column] for one in self.features)

    @property
    def keys(self) -> int:
        """How many keys the query sees."""
        return len(self.explained) + len(self.rest)

    @property
    def rest_attention(self) -> float:
        """What the keys without a column get together."""
        return sum(key.attention for key in self.rest)

    def of(self, side: Side) -> tuple[RowWriter, ...]:
        """The rows of one side."""
        return tuple(row for row in self.who if row.side == side)

    def strongest(self, column: int, side: Side) -> list[RowWriter]:
        """Who helps the key of a column, the largest part first: the two largest of all, then others with a row."""
        helping = [row for row in self.of(side) if row.writer is not None and row.log_odds[column] > 0]
        return sorted(helping, key=lambda row: -row.log_odds[column])

    def to_json(self) -> dict[str, Any]:
        """One document: every visible key, and the table of those that are explained."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "weight_hash": self.weight_hash,
            "prompt": self.prompt,
            "tokens": list(self.tokens),
            "start": self.start,
            "head": str(self.head),
            "query": self.query,
            "chosen_because": self.because,
            "keys": self.keys,
            "explained": [{"token": self.tokens[key.key], **asdict(key)} for key in self.explained],
            "rest": [{"token": self.tokens[key.key], **asdict(key)} for key in self.rest],
            "rest_attention": self.rest_attention,
            "who": [
                {"side": row.side, "writer": row.name, "count": row.count, "log_odds": list(row.log_odds)}
                for row in self.who
            ],
            "features": None
            if not self.features
            else {
                "parts": [asdict(one) | {"log_odds": list(one.log_odds)} for one in self.features],
                "unexplained": [self.unexplained(column) for column in range(len(self.explained))],
            },
        }

    def to_html(self) -> str:
        """One self-contained page: which keys, and why each."""
        from headwise.show.why.row import row_report

        return row_report(self).html()

    def save_html(self, path: str | Path) -> Path:
        """Write the page; a reader never sees half of it."""
        from headwise.show.why.row import row_report

        return row_report(self).write(path)

    def __repr__(self) -> str:
        return (
            f"RowExplanation({self.head} at {self.query}: {len(self.explained)} of {self.keys} keys explained, "
            f"the others get {self.rest_attention:.3f})"
        )


def explain_row(
    model: Model,
    prompt: Prompt,
    head: Head | str | None = None,
    *,
    query: str | int | None = None,
    least: float = LEAST,
    top: int = KEYS,
    start: int = 0,
    features: FeatureBank | str | Path | Sequence[FeatureBank | str | Path] = (),
    progress: Callable[[str], None] | None = None,
) -> RowExplanation:
    """Which keys does ``head`` attend to from ``query``, and why each of them?

    Parameters
    ----------
    model:
        A loaded model.
    prompt:
        The text that the model reads, or its token ids.
    head:
        The head, such as ``L22H4``; default: the one that :func:`explain` would ask about.
    query:
        The token that attends, as text or position; default: the row in which the cell lies that :func:`explain` would
        ask about.
    least:
        Keys with at least this attention are explained; the one with the most always is.
    top:
        How many keys are explained, at most.
    start:
        The position of the prompt's first token, with nothing before it; 0 unless the model has rotary positions.
    features:
        Feature banks that ``headwise features`` made, or their folders: every key is then split by feature, too.
    progress:
        Told the name of each stage as it begins.

    Returns
    -------
    RowExplanation
        Attention and logit of every key, and one table of writers × keys for each side.
    """
    banks = banks_of(features, model) if features else []
    least = share(least, "least", zero=True)
    top = count(top, "top", "leaves no key to explain")
    told = progress or (lambda stage: None)
    with torch.no_grad():
        told("reading the prompt")
        read = PromptReading.of(model, prompt, start=start)
        told("finding the row")
        answer = find_answer(model, read.token_ids, read.logits, None, None)
        question = ask(model, read.up, read.tokens, answer, head, query, None)
        cell = question.cell
        told("why each key")
        first = log_odds_table(read.up, cell)
        if first.keys < 2:
            raise HeadwiseError(
                f"{cell.head} sees one token at position {cell.query}, so there is nothing to explain: choose a later "
                "query"
            )
        order = first.pattern.masked_fill(~first.visible, -1.0).argsort(descending=True, stable=True)
        keys = [_key(first, key) for key in order[: first.keys].tolist()]
        number = max(1, min(top, sum(key.attention >= least for key in keys)))
        tables = [
            first if one.key == cell.key else log_odds_table(read.up, Cell(cell.head, cell.query, one.key))
            for one in keys[:number]
        ]
        parts = {side: torch.stack([table.side(side).over_tokens for table in tables], 1) for side in SIDES}
        chosen = features_here(banks, read.up, cell) if banks else []
        split = [what(read.up, table, chosen).features for table in tables] if chosen else []
        return RowExplanation(
            model=model.name,
            weight_hash=model.weight_hash,
            prompt=read.prompt,
            tokens=read.tokens,
            head=cell.head,
            query=cell.query,
            because=question.because if head is None or query is None else "head and query were given",
            explained=tuple(
                _explained(keys[column], table, {side: parts[side][:, column] for side in SIDES})
                for column, table in enumerate(tables)
            ),
            rest=tuple(keys[number:]),
            who=tuple(row for side in SIDES for row in _rows(tables, side, parts[side])),
            start=read.up.stream.start,
            features=tuple(
                RowFeature(one.name, one.rank, tuple(column[n].value for column in split))
                for n, one in enumerate(chosen)
            ),
        )


def _key(table: LogOddsTable, key: int) -> RowKey:
    return RowKey(key, float(table.pattern[key]), float(table.logits[key]))


def _explained(key: RowKey, table: LogOddsTable, parts: dict[Side, Tensor]) -> ExplainedKey:
    return ExplainedKey(
        **asdict(key),
        log_odds=table.total,
        totals={side: SignedTotals.of(values) for side, values in parts.items()},
        error=table.error,
        tolerance=table.tolerance,
    )


def _rows(tables: Sequence[LogOddsTable], side: Side, parts: Tensor) -> list[RowWriter]:
    """The rows of one side from each writer's parts [M, keys]."""
    writers = tables[0].side(side).whole_writers()
    weight = torch.tensor([table.attention for table in tables], dtype=parts.dtype, device=parts.device)
    order = (parts.abs() @ weight).argsort(descending=True, stable=True)
    first = {*order[:ROWS].tolist(), *parts.topk(min(HELPERS, len(parts)), 0).indices.flatten().tolist()}
    shown = [row for row in order.tolist() if row in first]
    others = [row for row in order.tolist() if row not in first]
    made = [RowWriter(side, writers[row], tuple(parts[row].tolist())) for row in shown]
    if others:
        made.append(RowWriter(side, None, tuple(parts[others].sum(0).tolist()), len(others)))
    return made
