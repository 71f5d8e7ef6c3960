"""Capture what was asked for, of the heads, query rows and key columns that were asked for, in one call.

The forward pass stops after the last layer needed, scores are computed for the rows asked for only, and the
attention output itself goes through the model's fastest kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model import threads as spread
from headwise.model.attend import AttentionCall, at_least_float32, pattern_rows, raw_scores, row_blocks
from headwise.model.batch import (
    Batch,
    CleanPass,
    Padding,
    Positions,
    by_length,
    checked_start,
    pad_positions,
    resolve_positions,
)
from headwise.model.edits import AddToStream, Edit, Editor, OutputEdit, VectorEdit
from headwise.model.forward import Instruments, Pass, forward_all
from headwise.model.joined import Sight, merge
from headwise.model.reading import Rotary
from headwise.strings import in_short
from headwise.tokens import Prompt
from headwise.types import Head, HeadLike, head_list

if TYPE_CHECKING:
    from headwise.model.model import Model

Wanted = Literal["q", "k", "scores", "pattern", "q_before_rope", "k_before_rope"]
ALL_WANTED = ("q", "k", "scores", "pattern", "q_before_rope", "k_before_rope")
MAX_TOKENS = 8192
"""Tokens in one forward pass, unless the caller says otherwise: bounds memory whatever the number of prompts."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to capture, where, and with which edits; :meth:`headwise.Model.capture` says what each means."""

    heads: HeadLike | Iterable[HeadLike] | None = None
    queries: Positions = None
    keys: Positions = None
    want: Wanted | Iterable[Wanted] = ("q", "k")
    logits: Positions | Literal["last", "none"] = "none"
    edits: Sequence[Edit] = ()
    padding: Padding = "right"
    start: int = 0
    batch_size: int = 64
    max_tokens: int = MAX_TOKENS
    clean: CleanPass | None = None
    """The recorded pass of the one prompt that all are copies of: they go on from there."""
    unembed: bool = True
    """Whether to keep logits, or only what the unembedding would read where they are asked for."""


def run(model: Model, prompts: Prompt | Sequence[Prompt], request: Request) -> Captured:
    """Capture from many prompts of different lengths."""
    return _joined([part for batch in _in_parts(model, prompts, request) for part in batch])


def stream(
    model: Model, prompts: Prompt | Sequence[Prompt], request: Request
) -> Iterator[tuple[list[int], Captured]]:
    """The same, one batch at a time: yields the indices of a batch's prompts and what was captured from them.

    Memory follows one batch, whatever the number of prompts.
    """
    for batch in _in_parts(model, prompts, request):
        indices = [index for part, _ in batch for index in part]
        place = {index: here for here, index in enumerate(indices)}
        yield indices, _joined([([place[index] for index in part], captured) for part, captured in batch])


def _joined(parts: Sequence[tuple[Sequence[int], Captured]]) -> Captured:
    """One result of several, each with the places of its prompts in the whole."""
    places, first = parts[0]
    return first if len(parts) == 1 and list(places) == sorted(places) else merge(parts)


def _in_parts(
    model: Model, prompts: Prompt | Sequence[Prompt], request: Request
) -> Iterator[list[tuple[list[int], Captured]]]:
    """Batch by batch: the parts that it was cut into, each the indices of its prompts and what was captured."""
    token_ids = model.token_ids(prompts)
    lengths = [len(ids) for ids in token_ids]
    start = checked_start(model, request.start, lengths)
    wanted = _check_wanted(request.want)
    chosen = model.heads if request.heads is None else tuple(map(model.head, head_list(request.heads)))
    rows = resolve_positions(request.queries, lengths, "query")
    columns = resolve_positions(request.keys, lengths, "key")
    no_logits = isinstance(request.logits, str) and request.logits == "none"
    at: Positions = -1 if isinstance(request.logits, str) else request.logits
    answers = None if no_logits else resolve_positions(at, lengths, "logit")
    for edit in request.edits:
        if isinstance(edit, VectorEdit | OutputEdit):
            model.head(edit.head)
        elif isinstance(edit, AddToStream) and not 0 <= edit.layer < model.n_layers:
            last = model.n_layers - 1
            raise HeadwiseError(f"layer {edit.layer} does not exist: {model.name} has layers 0 to {last}")
        if edit.prompt is not None and not 0 <= edit.prompt < len(token_ids):
            raise HeadwiseError(f"an edit names prompt {edit.prompt} but there are {len(token_ids)} prompts")

    def collector(indices: list[int]) -> _Collector:
        batch = Batch.of([token_ids[i] for i in indices], request.padding, start)
        here = pad_positions([rows[i] for i in indices]), pad_positions([columns[i] for i in indices])
        places = None if answers is None else pad_positions([answers[i] for i in indices])
        edits = _of_batch(request.edits, indices)
        return _Collector(model, batch, chosen, wanted, *here, places, edits, request)

    for indices in by_length(token_ids, request.batch_size, request.max_tokens):
        cut = [range(len(indices))]
        if not (request.edits and all(token_ids[i] == token_ids[indices[0]] for i in indices)):
            # Copies of one prompt, each with its own edits, share their lower layers instead.
            cut = spread.parts(model, [lengths[i] for i in indices])
        parts = [[indices[here] for here in part] for part in cut]
        collectors = [collector(part) for part in parts]
        logits = forward_all(model, [each.planned() for each in collectors])
        yield [
            (part, each.captured(found)) for part, each, found in zip(parts, collectors, logits, strict=True)
        ]


def _check_wanted(want: Wanted | Iterable[Wanted]) -> frozenset[Wanted]:
    names: list[Any] = [want] if isinstance(want, str) or not isinstance(want, Iterable) else list(want)
    for name in names:
        if not isinstance(name, str) or name not in ALL_WANTED:
            raise HeadwiseError(
                f"{in_short(name)} cannot be captured: ask for some of {', '.join(ALL_WANTED)}"
            )
    return frozenset(names)


def _of_batch(edits: Sequence[Edit], indices: list[int]) -> list[Edit]:
    place = {index: here for here, index in enumerate(indices)}
    return [
        edit if edit.prompt is None else replace(edit, prompt=place[edit.prompt])
        for edit in edits
        if edit.prompt is None or edit.prompt in place
    ]


class _Collector:
    """Plans the pass of one batch and keeps what was asked for."""

    def __init__(
        self,
        model: Model,
        batch: Batch,
        heads: tuple[Head, ...],
        wanted: frozenset[Wanted],
        query_positions: Tensor,
        key_positions: Tensor,
        logits_at: Tensor | None,
        edits: list[Edit],
        request: Request,
    ) -> None:
        self.model, self.batch, self.heads, self.wanted = model, batch, heads, wanted
        self.query_positions, self.key_positions, self.logits_at = query_positions, key_positions, logits_at
        self.clean, self.unembed = request.clean, request.unembed
        self.editor = Editor(edits, batch) if edits else None
        self.by_layer: dict[int, list[int]] = {}
        for place, head in enumerate(heads):
            self.by_layer.setdefault(head.layer, []).append(place)
        self.kept: dict[str, list[Tensor | None]] = {name: [None] * len(heads) for name in wanted}
        self.masks: dict[int, AttentionCall] = {}
        self.scale = torch.ones(len(heads), dtype=torch.float64)
        self.cap: list[float | None] = [None] * len(heads)
        self.rotary: dict[int, Rotary | None] = {}

    def planned(self) -> Pass:
        """The forward pass that this needs."""
        instruments = Instruments(observe=self._observe)
        if self.editor is not None:
            instruments.edit, instruments.finish = self.editor.edit, self.editor.finish
            if len(self.batch) > 1 and self.batch.is_one_prompt:
                clean = self.clean if self._goes_on(self.editor) else None
                instruments.packing = self.editor.pack(self.model.n_layers, self.by_layer, clean)
            for layer in self.editor.stream:
                edit = partial(self.editor.edit_stream, layer)
                instruments.before.append((self.model.anatomy.layers[layer], edit))
        if self.logits_at is None:
            instruments.stop_at = max(self.by_layer, default=0)
        if self.wanted & {"q_before_rope", "k_before_rope"}:
            for layer in self.by_layer:
                note = partial(self._note_rotary, layer)
                instruments.before.append((self.model.anatomy.attention[layer], note))
        return Pass(self.batch, instruments, self.logits_at, self.unembed)

    def _goes_on(self, editor: Editor) -> bool:
        """Logits before the first edited position, and rotations of all positions, are those of a pass from below."""
        before = self.logits_at is not None and bool((self.logits_at < editor.first_position).any())
        return not before and not self.wanted & {"q_before_rope", "k_before_rope"}

    def captured(self, logits: Tensor | None) -> Captured:
        """What the pass left."""
        held: dict[str, Tensor] = {}
        if logits is not None and self.logits_at is not None:
            held = {"logits" if self.unembed else "read_out": logits, "logit_positions": self.logits_at}
        if self.heads:
            # Popped, so that no more than one of them is there twice.
            held |= {name: torch.stack(self.kept.pop(name), 1) for name in list(self.kept)}  # pyright: ignore[reportArgumentType]
        return Captured(
            heads=self.heads,
            token_ids=[self.batch.token_ids(prompt) for prompt in range(len(self.batch))],
            query_positions=self.query_positions,
            key_positions=self.key_positions,
            scale=self.scale,
            cap=tuple(self.cap),
            held=held,
            sight=Sight(self.batch, self.heads, self.masks, self.model.result_device),
            start=self.batch.counts_from,
        )

    def _row_blocks(self, call: AttentionCall, times: int) -> Iterator[tuple[int, int]]:
        """Runs of the rows asked for, so few that ``times`` their scores fit into a block; one if there are no rows."""
        rows = self.query_positions.shape[1]
        yield from row_blocks(0, rows, times, columns=call.key.shape[2]) if rows else [(0, 0)]

    def _note_rotary(self, layer: int, _module: object, _args: object, kwargs: dict) -> None:
        self.rotary[layer] = Rotary.of(kwargs.get("position_embeddings"))

    def _observe(self, call: AttentionCall) -> None:
        places = self.by_layer.get(call.layer)
        if not places:
            return
        device = call.query.device
        heads = [self.heads[place].index for place in places]
        key_heads = [head // call.group for head in heads]
        rows = self.batch.columns_of(self.query_positions).to(device)
        columns = self.batch.columns_of(self.key_positions).to(device)
        # Positions first, heads second: picking heads first would copy every position of every head of the layer.
        row_there, column_there = ((at >= 0).to(device) for at in (self.query_positions, self.key_positions))
        query = _gather(call.query, rows)[:, heads] * row_there.to(call.query)[:, None, :, None]
        self.masks[call.layer] = call.blind()
        found: dict[str, Tensor] = {}
        rotary = self.rotary.get(call.layer)
        if self.wanted & {"q", "q_before_rope"}:
            found["q"] = query
            if "q_before_rope" in self.wanted:
                found["q_before_rope"] = query if rotary is None else rotary.at(rows).undo(query)
        if self.wanted & {"k", "k_before_rope"}:
            there = column_there.to(call.key)[:, None, :, None]
            found["k"] = _gather(call.key, columns)[:, key_heads] * there
            if "k_before_rope" in self.wanted:
                found["k_before_rope"] = found["k"] if rotary is None else rotary.at(columns).undo(found["k"])
        if self.wanted & {"scores", "pattern"}:
            keys = call.key[:, key_heads]
            blocks = []
            for low, high in self._row_blocks(call, len(rows) * len(heads)):
                there = row_there[:, low:high, None] & column_there[:, None]
                some = query[:, :, low:high], keys, rows[:, low:high], columns, there
                blocks.append(self._scored(call, heads, *some))
            found |= {name: torch.cat([one[name] for one in blocks], 2) for name in blocks[0]}
        for name in found.keys() & self.kept.keys():
            for here, place in enumerate(places):
                self.kept[name][place] = at_least_float32(found[name][:, here]).to(self.model.result_device)
        for place in places:
            self.scale[place], self.cap[place] = call.scale, call.cap

    def _scored(
        self,
        call: AttentionCall,
        heads: list[int],
        query: Tensor,
        keys: Tensor,
        rows: Tensor,
        columns: Tensor,
        there: Tensor,
    ) -> dict[str, Tensor]:
        """Scores and attention of some rows, as far as they are wanted: [n, h, r, c]."""
        visible = call.visible(rows)
        index = columns[:, None, None].expand(-1, len(heads), rows.shape[1], -1)
        seen = visible[:, None].gather(3, index[:, :1]) & there[:, None]
        scores = raw_scores(query, keys, call.scale, call.cap)
        if self.editor is not None:
            self.editor.override_rows(call, heads, rows, scores)
        made: dict[str, Tensor] = {}
        if "scores" in self.wanted:
            made["scores"] = scores.gather(3, index).masked_fill(~seen, float("-inf"))
        if "pattern" in self.wanted:
            made["pattern"] = pattern_rows(scores, visible[:, None]).gather(3, index) * seen
        return made


def _gather(vectors: Tensor, columns: Tensor) -> Tensor:
    """Vectors [n, h, columns, d] at ``columns`` [n, r]: [n, h, r, d]."""
    index = columns[:, None, :, None].expand(-1, vectors.shape[1], -1, vectors.shape[3])
    return vectors.gather(2, index)


@dataclass(frozen=True, eq=False)
class Captured:
    """Queries, keys, scores and patterns of some heads at some positions of some prompts.

    Shapes: n prompts, h heads (in the order asked for), r query rows, c key columns. Prompts that have fewer rows
    or columns than the widest are filled up; ``query_positions`` and ``key_positions`` are −1 there and ``visible``
    is False. Positions count from each prompt's own first token.
    """

    heads: tuple[Head, ...]
    token_ids: list[list[int]]
    query_positions: Tensor
    """[n, r]"""
    key_positions: Tensor
    """[n, c]"""
    scale: Tensor
    """[h]: what the head multiplies q·k with."""
    cap: tuple[float | None, ...]
    """Per head: the soft-cap, where the model has one."""
    held: dict[str, Tensor]
    """What was asked for, by name; read it through the properties below."""
    sight: Callable[[Tensor, Tensor], Tensor] = field(repr=False)
    """Makes :attr:`visible` of the positions."""
    start: int = 0
    """The position id of every prompt's first token."""

    @cached_property
    def visible(self) -> Tensor:
        """[n, h, r, c]: whether the head's mask (causal, window, padding) lets the row read the column. Made when it is
        asked for: of all rows and columns it is the square of a prompt."""
        return self.sight(self.query_positions, self.key_positions)

    @property
    def q(self) -> Tensor:
        """[n, h, r, d_head] after QK-norm and RoPE."""
        return self._get("q")

    @property
    def k(self) -> Tensor:
        """[n, h, c, d_head] after QK-norm and RoPE."""
        return self._get("k")

    @property
    def q_before_rope(self) -> Tensor:
        """[n, h, r, d_head] after QK-norm."""
        return self._get("q_before_rope")

    @property
    def k_before_rope(self) -> Tensor:
        """[n, h, c, d_head] after QK-norm."""
        return self._get("k_before_rope")

    @property
    def scores(self) -> Tensor:
        """[n, h, r, c]: scaled, soft-capped logits; −inf where not visible."""
        return self._get("scores")

    @property
    def pattern(self) -> Tensor:
        """[n, h, r, c]: attention; the softmax runs over all the keys a row sees, including those not asked for."""
        return self._get("pattern")

    @property
    def logits(self) -> Tensor:
        """[n, l, vocabulary] at ``logit_positions``."""
        return self._get("logits")

    @property
    def read_out(self) -> Tensor:
        """[n, l, d_model] at ``logit_positions``: what the unembedding reads, where logits were left for later."""
        return self._get("read_out")

    @property
    def logit_positions(self) -> Tensor:
        """[n, l]"""
        return self._get("logit_positions")

    def _get(self, name: str) -> Tensor:
        if name not in self.held:
            how = "logits='last'" if name.startswith("logit") else f"want=({name!r}, …)"
            raise HeadwiseError(f"{name} was not captured: ask for it with {how}")
        return self.held[name]

    def __len__(self) -> int:
        return len(self.token_ids)

    def index(self, head: Head | str) -> int:
        """Where a head stands along the head axis."""
        wanted = Head.parse(head)
        if wanted not in self.heads:
            raise HeadwiseError(f"{wanted} was not captured; captured: {', '.join(map(str, self.heads))}")
        return self.heads.index(wanted)

    def __repr__(self) -> str:
        names = [name for name in (*ALL_WANTED, "logits") if name in self.held]
        held = ", ".join(f"{name} {list(self.held[name].shape)}" for name in names)
        heads = ", ".join(map(str, self.heads[:4])) + (", …" if len(self.heads) > 4 else "")
        return f"Captured({len(self)} prompts, {len(self.heads)} heads [{heads}]: {held})"
