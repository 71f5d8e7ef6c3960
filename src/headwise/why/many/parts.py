"""One prompt's table in a form that can be averaged: by writer whatever token it read, by channel, by path.

The tokens of two prompts are not the same, so heads are summed over the tokens that they read; how much of it came from
the key's token, from the query's own, from the first one or from others is kept beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from headwise.bases.basis import Bases
from headwise.bases.singular import one_thread
from headwise.basis_names import BasisKind
from headwise.errors import HeadwiseError
from headwise.model.stream import split
from headwise.positions import one_position
from headwise.progress import Tick
from headwise.scale.stages import ValueJob
from headwise.scale.work import Chunk
from headwise.strings import in_short
from headwise.tasks.answers.types import AnswerPrompt
from headwise.tokens import shown
from headwise.tracing.mlps import read_mlp
from headwise.tracing.search import Rules
from headwise.tracing.seeds import Readout, last_of
from headwise.tracing.table import LogOddsTable, log_odds_table, stream_readings
from headwise.tracing.whole import over_tokens, whole_heads, whole_place, whole_writers
from headwise.tracing.writers import writer_set
from headwise.tracing.writes import PromptWrites
from headwise.types import AnswerIds, Cell, Head, Side
from headwise.why.question import ask, find_answer
from headwise.why.what import place_split
from headwise.why.who import POSITIONS, SIDES

if TYPE_CHECKING:
    from headwise.model.model import Model

READS = ("key", "query", "first", "other")
"""Which token a head read: that of the cell's key, the query's own, the first one, any other."""
CHUNK = 8
"""Prompts of one pass."""


@dataclass(frozen=True, eq=False)
class PromptParts:
    """What one prompt's table holds. W writers, K channels."""

    query: int
    key: int
    tokens: tuple[str, str]
    """The tokens of query and key."""
    attention: float
    log_odds: float
    keys: int
    place: Tensor
    """[3]: content, place, interaction."""
    lead: float
    """Logit of the answer less that of the wrong one, or of the mean token."""
    rows: Tensor
    """[2, W, 4]: each writer's part on the query and on the key side, by what it read."""
    causes: Tensor
    """[2, W]: which whole writers cause the attention, by side."""
    channels: Tensor
    """[K]"""
    paths: tuple[Tensor, ...]
    """For each MLP that is followed, the shares of what it had read."""


@dataclass(frozen=True, eq=False)
class ChunkParts:
    """Some prompts' tables, and who the writers are."""

    writers: tuple[str, ...]
    """[W]"""
    read: tuple[tuple[str, ...], ...]
    """For each MLP that is followed, what it reads."""
    stable: tuple[bool, ...]
    """[K]: whether a channel stays what it is with other texts."""
    prompts: tuple[PromptParts, ...]


@dataclass(frozen=True)
class PartsJob(ValueJob):
    """The tables of a chunk of prompts, from one pass over them."""

    kind: ClassVar[Any] = ChunkParts
    head: Head
    query: str | int
    key: str | int | None
    basis: BasisKind
    mlps: tuple[tuple[Side, int], ...] = ()
    """Sides and layers of the MLPs that are followed to what they had read."""

    def make(self, model: Model, chunk: Chunk[AnswerPrompt], tick: Tick, /) -> ChunkParts:
        with one_thread(), torch.no_grad():
            bases = Bases.of(model, self.basis)
            stream = split(model, [one.prompt for one in chunk.items])
            made, read = [], ()
            for number, prompt in enumerate(chunk.items):
                up = PromptWrites(stream, number, bases)
                cell = _cell(model, up, prompt, self)
                table = log_odds_table(up, cell)
                paths = [_path(table, side, layer) for side, layer in self.mlps]
                read = tuple(names for names, _ in paths)
                made.append(_parts(model, up, table, prompt, tuple(shares for _, shares in paths)))
            stable = tuple(bool(one) for one in bases.head(self.head).stable.tolist())
            writers = tuple(one.name for one in whole_writers(model, self.head.layer))
            return ChunkParts(writers, read, stable, tuple(made))


@dataclass(frozen=True)
class HeadJob(ValueJob):
    """The head that brings most of the answer, of each prompt of a chunk."""

    kind: ClassVar[Any] = Counter
    basis: BasisKind

    def make(self, model: Model, chunk: Chunk[AnswerPrompt], tick: Tick, /) -> list[Head]:
        found = []
        with one_thread(), torch.no_grad():
            stream = split(model, [one.prompt for one in chunk.items])
            for number, prompt in enumerate(chunk.items):
                up = PromptWrites(stream, number, Bases.of(model, self.basis))
                last = last_of(up)
                ids = stream.token_ids[number]
                logits = Readout.of(model, last).logits(last)
                answer = find_answer(model, ids, logits, prompt.answer_id, prompt.wrong_id)
                tokens = shown(model.tokenizer, ids)
                found.append(ask(model, up, tokens, answer, None, None, None).cell.head)
        return found

    def to_bytes(self, made: list[Head], /) -> bytes:
        return ",".join(map(str, made)).encode()

    def from_bytes(self, content: bytes, /) -> list[Head]:
        return [Head.parse(name) for name in content.decode().split(",")]


def _cell(model: Model, up: PromptWrites, prompt: AnswerPrompt, job: PartsJob) -> Cell:
    """The head's cell: at the query the key that was named, or the one that it attends to most."""
    tokens = shown(model.tokenizer, up.stream.token_ids[up.prompt])
    try:
        query = one_position(tokens, job.query, "query")
        if job.key is not None:
            key = one_position(tokens, job.key, "key", upto=query)
        else:
            row = up.stream.pattern(job.head.layer, query, up.prompt)[job.head.index].clone()
            # Attention on the first token is where heads rest when they have nothing to do.
            if int(_seen(up, job.head, query).sum()) > 1 and query > 0:
                row[0] = -1.0
            key = int(row.masked_fill(~_seen(up, job.head, query), -1.0).argmax())
    except HeadwiseError as error:
        raise HeadwiseError(f"in the prompt {in_short(prompt.prompt)}: {error}") from None
    seen = _seen(up, job.head, query)
    if not bool(seen[key]):
        raise HeadwiseError(
            f"in the prompt {in_short(prompt.prompt)}: {job.head} at position {query} cannot see position {key}"
        )
    if int(seen.sum()) < 2:
        raise HeadwiseError(
            f"in the prompt {in_short(prompt.prompt)}: position {query} sees one token, so there is nothing to explain"
        )
    return Cell(job.head, query, key)


def _seen(up: PromptWrites, head: Head, query: int) -> Tensor:
    """Which keys the head sees at one query: [T]."""
    return up.visible(head.layer, torch.tensor([query], device=up.device))[0]


def _folded(up: PromptWrites, cell: Cell, values: Tensor) -> Tensor:
    """Parts of writers [N] as [W, 4]: by what heads read; all else is under ``other``."""
    layer = cell.head.layer
    whole, by_token = over_tokens(up, layer, values), values[: up.n_carried(layer)].view(-1, up.tokens)
    made = torch.zeros(len(whole), len(READS), dtype=values.dtype, device=values.device)
    # A position that is two of these counts once, as the first of them.
    positions = {0: 2} | {cell.query: 1} | {cell.key: 0}
    for position, column in positions.items():
        made[: len(by_token), column] = by_token[:, position]
    made[:, -1] = whole - made.sum(1)
    return made


def _parts(
    model: Model, up: PromptWrites, table: LogOddsTable, prompt: AnswerPrompt, paths: tuple[Tensor, ...]
) -> PromptParts:
    cell, layer = table.cell, table.cell.head.layer
    tokens = shown(model.tokenizer, up.stream.token_ids[up.prompt])
    last = last_of(up)
    logits = Readout.of(model, last).logits(last)
    place = place_split(up, table)
    threshold = Rules().threshold(table.keys, table.attention)
    if table.attention <= threshold:
        threshold = table.attention / 2
    rows = torch.stack([_folded(up, cell, table.side(side).rows) for side in SIDES]).cpu()
    causes = torch.zeros(rows.shape[:2], dtype=torch.bool)
    for number, side in enumerate(SIDES):
        for member in writer_set(table, side, threshold).members:
            causes[number, whole_place(up, layer, table.side(side).row_of(member))] = True
    return PromptParts(
        query=cell.query,
        key=cell.key,
        tokens=(tokens[cell.query], tokens[cell.key]),
        attention=table.attention,
        log_odds=table.total,
        keys=table.keys,
        place=torch.tensor([place.content, place.place, place.interaction], dtype=torch.float64),
        lead=float(AnswerIds(prompt.answer_id, prompt.wrong_id).difference(logits)),
        rows=rows,
        causes=causes,
        channels=table.what.cpu(),
        paths=paths,
    )


def _path(table: LogOddsTable, side: Side, layer: int) -> tuple[tuple[str, ...], Tensor]:
    """What an MLP had read, whatever tokens heads read, and its shares of the MLP's part of the log-odds."""
    up = table.side(side).up
    positions, readings = stream_readings(table, side)
    if len(positions) > POSITIONS:
        written = up.stream.layers[layer].mlp
        assert written is not None
        weight = (written[up.prompt, up.span][positions].double() * readings).sum(-1).abs()
        at = weight.topk(POSITIONS).indices.sort().values
        positions, readings = positions[at], readings[at]
    read = read_mlp(up, layer, positions.tolist(), readings)
    shares = torch.stack([found.double().sum(0) for _, found in read.chunks(range(len(positions)))]).sum(0)
    rest = [read.writer(row) for row in range(up.n_carried(read.depth), len(shares))]
    writers = [*whole_heads(up.stream.model, read.depth), *rest]
    names = tuple("constants" if one.kind == "offset" else one.name for one in writers)
    return names, over_tokens(up, read.depth, shares).cpu()


def strongest_mlps(parts: Sequence[ChunkParts], number: int) -> tuple[tuple[Side, int], ...]:
    """Of each side the MLPs with the largest parts, whatever their sign, in some prompts."""
    writers = parts[0].writers
    rows = torch.stack([one.rows.sum(-1) for part in parts for one in part.prompts]).abs().mean(0)
    made: list[tuple[Side, int]] = []
    for place, side in enumerate(SIDES):
        found = [i for i, name in enumerate(writers) if name.startswith("MLP")]
        best = sorted(found, key=lambda i: -float(rows[place, i]))[:number]
        for i in best:
            made.append((side, int(writers[i].removeprefix("MLP"))))
    return tuple(made)
