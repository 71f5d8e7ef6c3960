"""Capture what was asked for, of the heads, query rows and key columns that were asked for, in one call.

The forward pass stops after the last layer needed, scores are computed for the rows asked for only, and the
attention output itself goes through the model's fastest kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model import threads as spread
from headwise.model.attend import AttentionCall, at_least_float32, pattern_rows, raw_scores
from headwise.model.batch import (
    Batch,
    Padding,
    Positions,
    by_length,
    pad_positions,
    resolve_positions,
)
from headwise.model.captured import ALL_WANTED, Captured, Wanted, merge
from headwise.model.edits import AddToStream, Edit, Editor, VectorEdit
from headwise.model.forward import Instruments, Pass, forward_all
from headwise.model.rotary import Rotary
from headwise.strings import in_short
from headwise.tokens import Prompt
from headwise.types import Head, HeadLike, head_list

if TYPE_CHECKING:
    from headwise.model.model import Model

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
    batch_size: int = 64
    max_tokens: int = MAX_TOKENS


def run(model: Model, prompts: Prompt | Sequence[Prompt], request: Request) -> Captured:
    """Capture from many prompts of different lengths."""
    return merge([part for batch in _in_parts(model, prompts, request) for part in batch])


def stream(
    model: Model, prompts: Prompt | Sequence[Prompt], request: Request
) -> Iterator[tuple[list[int], Captured]]:
    """The same, one batch at a time: yields the indices of a batch's prompts and what was captured from them.

    Memory follows one batch, whatever the number of prompts.
    """
    for batch in _in_parts(model, prompts, request):
        indices = [index for part, _ in batch for index in part]
        place = {index: here for here, index in enumerate(indices)}
        yield indices, merge([([place[index] for index in part], captured) for part, captured in batch])


def _in_parts(
    model: Model, prompts: Prompt | Sequence[Prompt], request: Request
) -> Iterator[list[tuple[list[int], Captured]]]:
    """Batch by batch: the parts that it was cut into, each the indices of its prompts and what was captured."""
    token_ids = model.token_ids(prompts)
    lengths = [len(ids) for ids in token_ids]
    wanted = _check_wanted(request.want)
    chosen = model.heads if request.heads is None else tuple(map(model.head, head_list(request.heads)))
    rows = resolve_positions(request.queries, lengths, "query")
    columns = resolve_positions(request.keys, lengths, "key")
    no_logits = isinstance(request.logits, str) and request.logits == "none"
    at: Positions = -1 if isinstance(request.logits, str) else request.logits
    answers = None if no_logits else resolve_positions(at, lengths, "logit")
    for edit in request.edits:
        if isinstance(edit, VectorEdit):
            model.head(edit.head)
        elif isinstance(edit, AddToStream) and not 0 <= edit.layer < model.n_layers:
            last = model.n_layers - 1
            raise HeadwiseError(f"layer {edit.layer} does not exist: {model.name} has layers 0 to {last}")
        if edit.prompt is not None and not 0 <= edit.prompt < len(token_ids):
            raise HeadwiseError(f"an edit names prompt {edit.prompt} but there are {len(token_ids)} prompts")

    def collector(indices: list[int]) -> _Collector:
        batch = Batch.of([token_ids[i] for i in indices], request.padding)
        here = pad_positions([rows[i] for i in indices]), pad_positions([columns[i] for i in indices])
        places = None if answers is None else pad_positions([answers[i] for i in indices])
        return _Collector(model, batch, chosen, wanted, *here, places, _of_batch(request.edits, indices))

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
    ) -> None:
        self.model, self.batch, self.heads, self.wanted = model, batch, heads, wanted
        self.query_positions, self.key_positions, self.logits_at = query_positions, key_positions, logits_at
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

    def planned(self) -> Pass:
        """The forward pass that this needs."""
        instruments = Instruments(observe=self._observe)
        if self.editor is not None:
            instruments.edit, instruments.finish = self.editor.edit, self.editor.finish
            if self.batch.is_one_prompt:
                instruments.shared_below = min((self.editor.first_layer, *self.by_layer))
            for layer in self.editor.stream:
                edit = partial(self.editor.edit_stream, layer)
                instruments.before.append((self.model.anatomy.layers[layer], edit))
        if self.logits_at is None:
            instruments.stop_at = max(self.by_layer, default=0)
        if self.wanted & {"q_before_rope", "k_before_rope"}:
            for layer in self.by_layer:
                note = partial(self._note_rotary, layer)
                instruments.before.append((self.model.anatomy.attention[layer], note))
        return Pass(self.batch, instruments, self.logits_at)

    def captured(self, logits: Tensor | None) -> Captured:
        """What the pass left."""
        held: dict[str, Tensor] = {}
        if logits is not None and self.logits_at is not None:
            held = {"logits": logits, "logit_positions": self.logits_at}
        if self.heads:
            held |= {name: torch.stack(rows, 1) for name, rows in self.kept.items()}  # pyright: ignore[reportArgumentType]
        shape = (len(self.batch), 0, self.query_positions.shape[1], self.key_positions.shape[1])
        visible = held.pop("visible", torch.zeros(shape, dtype=torch.bool))
        return Captured(
            heads=self.heads,
            token_ids=[self.batch.token_ids(prompt) for prompt in range(len(self.batch))],
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
                self.kept[name][place] = at_least_float32(tensor[:, here]).to(self.model.result_device)
        for place in places:
            self.scale[place], self.cap[place] = call.scale, call.cap


def _gather(vectors: Tensor, columns: Tensor) -> Tensor:
    """Vectors [n, h, columns, d] at ``columns`` [n, r]: [n, h, r, d]."""
    index = columns[:, None, :, None].expand(-1, vectors.shape[1], -1, vectors.shape[3])
    return vectors.gather(2, index)
