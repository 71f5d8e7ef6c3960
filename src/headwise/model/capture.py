"""Capture what was asked for, of the heads, query rows and key columns that were asked for, in one call.

The forward pass stops after the last layer needed, scores are computed for the rows asked for only, and the
attention output itself goes through the model's fastest kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall, pattern_rows, raw_scores
from headwise.model.batch import (
    Batch,
    Padding,
    Positions,
    Prompt,
    by_length,
    encode,
    pad_positions,
    resolve_positions,
)
from headwise.model.edits import Edit, Editor
from headwise.model.passes import Instruments, forward
from headwise.model.rotary import Rotary
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.core import Model

Wanted = Literal["q", "k", "scores", "pattern", "q_before_rope", "k_before_rope"]
_ALL_WANTED = ("q", "k", "scores", "pattern", "q_before_rope", "k_before_rope")

MAX_TOKENS = 8192
"""Tokens in one forward pass, unless the caller says otherwise: bounds memory whatever the number of prompts."""


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
    visible: Tensor
    """[n, h, r, c]: whether the head's mask (causal, window, padding) lets the row read the column."""
    scale: Tensor
    """[h]: what the head multiplies q·k with."""
    cap: tuple[float | None, ...]
    """Per head: the soft-cap, where the model has one."""
    held: dict[str, Tensor]
    """What was asked for, by name; read it through the properties below."""

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
        """[n, h, r, c]: attention; the softmax runs over all the keys a row sees, also those not asked for."""
        return self._get("pattern")

    @property
    def logits(self) -> Tensor:
        """[n, l, vocabulary] at ``logit_positions``."""
        return self._get("logits")

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
        names = [name for name in (*_ALL_WANTED, "logits") if name in self.held]
        held = ", ".join(f"{name} {list(self.held[name].shape)}" for name in names)
        heads = ", ".join(map(str, self.heads[:4])) + (", …" if len(self.heads) > 4 else "")
        return f"Captured({len(self)} prompts, {len(self.heads)} heads [{heads}]: {held})"


def run(
    model: Model,
    prompts: Prompt | Sequence[Prompt],
    *,
    heads: Iterable[Head | str] | None = None,
    queries: Positions = None,
    keys: Positions = None,
    want: Iterable[Wanted] = ("q", "k"),
    logits: Positions | Literal["last", "none"] = "none",
    edits: Sequence[Edit] = (),
    padding: Padding = "right",
    batch_size: int = 64,
    max_tokens: int = MAX_TOKENS,
    progress: Callable[[int], None] | None = None,
) -> Captured:
    """Capture from many prompts of different lengths; see :meth:`headwise.Model.capture` and ``edit``."""
    chunks = list(
        stream(
            model,
            prompts,
            heads=heads,
            queries=queries,
            keys=keys,
            want=want,
            logits=logits,
            edits=edits,
            padding=padding,
            batch_size=batch_size,
            max_tokens=max_tokens,
            progress=progress,
        )
    )
    return _merge(chunks)


def stream(
    model: Model,
    prompts: Prompt | Sequence[Prompt],
    *,
    heads: Iterable[Head | str] | None = None,
    queries: Positions = None,
    keys: Positions = None,
    want: Iterable[Wanted] = ("q", "k"),
    logits: Positions | Literal["last", "none"] = "none",
    edits: Sequence[Edit] = (),
    padding: Padding = "right",
    batch_size: int = 64,
    max_tokens: int = MAX_TOKENS,
    progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[list[int], Captured]]:
    """The same, one batch at a time: yields the indices of a batch's prompts and what was captured from them.

    Memory follows one batch, whatever the number of prompts.
    """
    token_ids = encode(model.tokenizer, prompts, model.context)
    lengths = [len(ids) for ids in token_ids]
    wanted = _check_wanted(want)
    chosen = model.heads if heads is None else tuple(model.head(head) for head in heads)
    rows = resolve_positions(queries, lengths, "query")
    columns = resolve_positions(keys, lengths, "key")
    no_logits = isinstance(logits, str) and logits == "none"
    at: Positions = -1 if isinstance(logits, str) else logits
    answers = None if no_logits else resolve_positions(at, lengths, "logit")
    for edit in edits:
        model.head(edit.head)
        if edit.prompt is not None and not 0 <= edit.prompt < len(token_ids):
            raise HeadwiseError(f"an edit names prompt {edit.prompt} but there are {len(token_ids)} prompts")
    for indices in by_length(token_ids, batch_size, max_tokens):
        batch = Batch.of([token_ids[i] for i in indices], padding)
        here = pad_positions([rows[i] for i in indices]), pad_positions([columns[i] for i in indices])
        collector = _Collector(model, batch, chosen, wanted, *here, _of_batch(edits, indices))
        places = None if answers is None else pad_positions([answers[i] for i in indices])
        yield indices, collector.run(places)
        if progress is not None:
            progress(len(indices))


def _check_wanted(want: Iterable[Wanted]) -> frozenset[Wanted]:
    wanted = frozenset(want)
    for name in sorted(wanted):
        if name not in _ALL_WANTED:
            raise HeadwiseError(f"{name!r} cannot be captured: ask for some of {', '.join(_ALL_WANTED)}")
    return wanted


def _of_batch(edits: Sequence[Edit], indices: list[int]) -> list[Edit]:
    place = {index: here for here, index in enumerate(indices)}
    return [
        edit if edit.prompt is None else replace(edit, prompt=place[edit.prompt])
        for edit in edits
        if edit.prompt is None or edit.prompt in place
    ]


class _Collector:
    """Runs one batch and keeps what was asked for."""

    def __init__(
        self,
        model: Model,
        batch: Batch,
        heads: tuple[Head, ...],
        wanted: frozenset[Wanted],
        query_positions: Tensor,
        key_positions: Tensor,
        edits: list[Edit],
    ) -> None:
        self.model, self.batch, self.heads, self.wanted = model, batch, heads, wanted
        self.query_positions, self.key_positions = query_positions, key_positions
        self.editor = Editor(edits, batch) if edits else None
        self.by_layer: dict[int, list[int]] = {}
        for place, head in enumerate(heads):
            self.by_layer.setdefault(head.layer, []).append(place)
        self.kept: dict[str, list[Tensor | None]] = {
            name: [None] * len(heads) for name in (*wanted, "visible")
        }
        self.scale = torch.ones(len(heads), dtype=torch.float64)
        self.cap: list[float | None] = [None] * len(heads)
        self.rotary: dict[int, Rotary | None] = {}

    def run(self, logits_at: Tensor | None) -> Captured:
        instruments = Instruments(observe=self._observe)
        if self.editor is not None:
            instruments.edit, instruments.finish = self.editor.edit, self.editor.finish
            if self.batch.is_one_prompt:
                instruments.shared_below = min((*self.by_layer, *self.editor.by_layer), default=0)
        if logits_at is None:
            instruments.stop_at = max(self.by_layer, default=0)
        if self.wanted & {"q_before_rope", "k_before_rope"}:
            for layer in self.by_layer:
                note = partial(self._note_rotary, layer)
                instruments.before.append((self.model.anatomy.attention[layer], note))
        logits = forward(self.model, self.batch, instruments, logits_at)
        held: dict[str, Tensor] = {}
        if logits is not None and logits_at is not None:
            held = {"logits": logits, "logit_positions": logits_at}
        if self.heads:
            held |= {name: torch.stack(rows, 1) for name, rows in self.kept.items()}  # pyright: ignore[reportArgumentType]
        shape = (len(self.batch), 0, self.query_positions.shape[1], self.key_positions.shape[1])
        visible = held.pop("visible", torch.zeros(shape, dtype=torch.bool))
        return Captured(
            heads=self.heads,
            token_ids=[
                row[start : start + length].tolist()
                for row, start, length in zip(
                    self.batch.ids, self.batch.starts, self.batch.lengths, strict=True
                )
            ],
            query_positions=self.query_positions,
            key_positions=self.key_positions,
            visible=visible,
            scale=self.scale,
            cap=tuple(self.cap),
            held=held,
        )

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
        present = (self.query_positions >= 0).to(call.query)[:, None, :, None]
        query = _gather(call.query, rows)[:, heads] * present
        visible = call.visible(rows)
        seen = visible.gather(2, columns[:, None].expand(-1, rows.shape[1], -1))
        seen &= (self.query_positions >= 0).to(device)[:, :, None] & (self.key_positions >= 0).to(device)[
            :, None
        ]
        found: dict[str, Tensor] = {"visible": seen[:, None].expand(-1, len(heads), -1, -1)}
        rotary = self.rotary.get(call.layer)
        if self.wanted & {"q", "q_before_rope"}:
            found["q"] = query
            if "q_before_rope" in self.wanted:
                found["q_before_rope"] = query if rotary is None else rotary.at(rows).undo(query)
        if self.wanted & {"k", "k_before_rope"}:
            present = (self.key_positions >= 0).to(call.key)[:, None, :, None]
            found["k"] = _gather(call.key, columns)[:, key_heads] * present
            if "k_before_rope" in self.wanted:
                found["k_before_rope"] = found["k"] if rotary is None else rotary.at(columns).undo(found["k"])
        if self.wanted & {"scores", "pattern"}:
            scores = raw_scores(query, call.key[:, key_heads], call.scale, call.cap)
            if self.editor is not None:
                self.editor.override_rows(call, heads, rows, scores)
            masked = scores.masked_fill(~visible[:, None], float("-inf"))
            index = columns[:, None, None].expand(-1, len(heads), rows.shape[1], -1)
            if "scores" in self.wanted:
                found["scores"] = masked.gather(3, index).masked_fill(~seen[:, None], float("-inf"))
            if "pattern" in self.wanted:
                found["pattern"] = pattern_rows(scores, visible[:, None]).gather(3, index) * seen[:, None]
        for name, tensor in found.items():
            if name not in self.kept:
                continue
            for here, place in enumerate(places):
                self.kept[name][place] = _own(tensor[:, here], self.model.result_device)
        for place in places:
            self.scale[place], self.cap[place] = call.scale, call.cap


def _gather(vectors: Tensor, columns: Tensor) -> Tensor:
    """Vectors [n, h, columns, d] at ``columns`` [n, r]: [n, h, r, d]."""
    index = columns[:, None, :, None].expand(-1, vectors.shape[1], -1, vectors.shape[3])
    return vectors.gather(2, index)


def _own(tensor: Tensor, device: torch.device) -> Tensor:
    """At least float32, on the device where results live."""
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()
    return tensor.to(device)


def _merge(chunks: list[tuple[list[int], Captured]]) -> Captured:
    """Batches back in the order of the prompts, filled up to the widest."""
    if len(chunks) == 1 and chunks[0][0] == sorted(chunks[0][0]):
        return chunks[0][1]
    order = torch.tensor([index for indices, _ in chunks for index in indices]).argsort()
    parts = [captured for _, captured in chunks]
    first = parts[0]

    def join(tensors: list[Tensor], fill: float) -> Tensor:
        shape = [max(sizes) for sizes in zip(*(t.shape[1:] for t in tensors), strict=True)]
        joined = tensors[0].new_full((len(order), *shape), fill)
        start = 0
        for tensor in tensors:
            joined[(slice(start, start + len(tensor)), *map(slice, tensor.shape[1:]))] = tensor
            start += len(tensor)
        return joined[order]

    fills = {"logit_positions": -1, "scores": float("-inf")}
    token_ids = [ids for part in parts for ids in part.token_ids]
    return replace(
        first,
        token_ids=[token_ids[i] for i in order.tolist()],
        query_positions=join([part.query_positions for part in parts], -1),
        key_positions=join([part.key_positions for part in parts], -1),
        visible=join([part.visible for part in parts], 0),
        held={name: join([part.held[name] for part in parts], fills.get(name, 0.0)) for name in first.held},
    )
