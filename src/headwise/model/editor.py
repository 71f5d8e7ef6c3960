"""All edits of one forward pass, at work: which layer, head and prompt each of them touches, and in what order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall, pattern_rows, raw_scores
from headwise.model.batch import Batch, CleanPass, Packing, resolve_positions
from headwise.model.edits import AddToStream, ChangeOutput, Edit, OutputEdit, VectorEdit


class Editor:
    """Applies many edits, over layers, heads and prompts, in one forward pass."""

    def __init__(self, edits: Sequence[Edit], batch: Batch) -> None:
        self.batch = batch
        self.packing: Packing | None = None
        """How the copies lie in the stream, where they are packed."""
        self.by_layer: dict[int, list[VectorEdit]] = {}
        self.stream: dict[int, list[AddToStream]] = {}
        self.written: dict[int, list[OutputEdit]] = {}
        self.outputs: list[ChangeOutput] = []
        for edit in edits:
            if isinstance(edit, VectorEdit):
                self.by_layer.setdefault(edit.head.layer, []).append(edit)
            elif isinstance(edit, OutputEdit):
                self.written.setdefault(edit.head.layer, []).append(edit)
            elif isinstance(edit, AddToStream):
                self.stream.setdefault(edit.layer, []).append(edit)
            elif isinstance(edit, ChangeOutput):
                self.outputs.append(edit)
            else:
                raise HeadwiseError(f"{type(edit).__name__} is not an edit that a forward pass can make")
        # keys that only some rows of a head see: layer -> (prompt, head, row) -> keys of the prompt
        self._private: dict[int, dict[tuple[int, int, int], Tensor]] = {}

    @property
    def first_layer(self) -> int:
        """No edit is made below this layer."""
        return 0 if self.outputs else min((*self.attention_layers, *self.stream), default=0)

    @property
    def attention_layers(self) -> set[int]:
        """Layers in which a head's queries, keys or output are edited."""
        return {*self.by_layer, *self.written}

    @property
    def first_position(self) -> int:
        """Of copies of one prompt, the first position that any edit can reach."""
        length = int(self.batch.lengths[0])
        if self.outputs:
            return 0
        of_heads = [*self.by_layer.values(), *self.written.values()]
        reached = [edit.first_position(length) for edits in of_heads for edit in edits]
        for adds in self.stream.values():
            reached += [min(resolve_positions(list(add.positions), [length], "stream")[0]) for add in adds]
        return min(reached, default=length - 1)

    def pack(self, n_layers: int, seen: Collection[int], clean: CleanPass | None) -> Packing:
        """Let copies of one prompt share what no edit can reach; in the layers ``seen`` each is looked at."""
        every = range(n_layers) if self.outputs else ()
        self.packing = Packing(
            copies=len(self.batch),
            length=int(self.batch.lengths[0]),
            start=self.first_position,
            clean=clean,
            below=min((self.first_layer, *seen)),
            touched=frozenset((*self.attention_layers, *seen, *every)),
        )
        return self.packing

    def edit_stream(self, layer: int, _module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Edit the stream before a layer (a hook of the layer's module)."""
        hidden = (args[0] if args else kwargs["hidden_states"]).clone()
        for add in self.stream[layer]:
            for prompt in range(len(self.batch)) if add.prompt is None else (add.prompt,):
                length = int(self.batch.lengths[prompt])
                at = resolve_positions(list(add.positions), [length], "stream")[0]
                if self.packing is None:
                    hidden[prompt, [position + int(self.batch.starts[prompt]) for position in at]] += (
                        add.value.to(hidden)
                    )
                else:
                    columns = self.packing.columns(torch.tensor(prompt), torch.tensor(at))
                    hidden[0, columns.to(hidden.device)] += add.value.to(hidden)
        return ((hidden, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": hidden})

    def edit(self, call: AttentionCall) -> AttentionCall:
        """Edit a layer's queries and keys before anybody reads them."""
        edits = self.by_layer.get(call.layer)
        if not edits:
            return call
        if any(edit.side == "query" for edit in edits):
            call = replace(call, query=call.query.clone())
        if any(edit.side == "key" and edit.seen_by is None for edit in edits):
            call = call.with_own_keys()
        private = self._private[call.layer] = {}
        for edit in edits:
            prompts = range(len(self.batch)) if edit.prompt is None else (edit.prompt,)
            for prompt in prompts:
                span = self.batch.span(prompt)
                if edit.side == "query":
                    call.query[prompt, edit.head.index, span] = edit.apply(
                        call.query[prompt, edit.head.index, span]
                    )
                elif edit.seen_by is None:
                    call.key[prompt, edit.head.index, span] = edit.apply(
                        call.key[prompt, edit.head.index, span]
                    )
                    _edit_private(private, prompt, edit)
                else:
                    length = int(self.batch.lengths[prompt])
                    for row in resolve_positions(edit.seen_by, [length], f"{edit.head} query")[0]:
                        place = (prompt, edit.head.index, row)
                        seen = private.get(place, call.key_of(edit.head.index)[prompt, span])
                        private[place] = edit.apply(seen)
        return call

    def override_rows(self, call: AttentionCall, heads: Sequence[int], rows: Tensor, scores: Tensor) -> None:
        """Put the scores of rows with private keys into ``scores`` [prompts, heads, rows, columns]."""
        for (prompt, head, row), keys in self._private.get(call.layer, {}).items():
            if head not in heads:
                continue
            column = self.batch.column(prompt, row)
            for place in (rows[prompt] == column).nonzero().flatten().tolist():
                query = call.query[prompt, head, column]
                line = raw_scores(query[None], keys, call.scale, call.cap)[0].to(scores.dtype)
                scores[prompt, heads.index(head), place, self.batch.span(prompt)] = line

    def finish(self, call: AttentionCall, output: Tensor) -> Tensor:
        """Replace the outputs of rows that read private keys, then what heads write by what the edits say."""
        private, written = self._private.pop(call.layer, {}), self.written.get(call.layer, ())
        output = output.clone() if private or written else output
        for (prompt, head, row), keys in private.items():
            span, column = self.batch.span(prompt), self.batch.column(prompt, row)
            rows = torch.tensor([[column]], device=output.device)
            visible = call.of_prompt(prompt).visible(rows)[0, :, span]
            scores = raw_scores(call.query[prompt, head, column][None], keys, call.scale, call.cap)
            value = call.value[prompt, head // (call.query.shape[1] // call.value.shape[1]), span]
            output[prompt, column, head] = (pattern_rows(scores, visible).to(value.dtype) @ value)[0]
        for edit in written:
            for prompt in range(len(self.batch)) if edit.prompt is None else (edit.prompt,):
                span = self.batch.span(prompt)
                output[prompt, span, edit.head.index] = edit.apply(output[prompt, span, edit.head.index])
        for edit in self.outputs:
            output = output.clone()
            for prompt in range(len(self.batch)) if edit.prompt is None else (edit.prompt,):
                one = slice(prompt, prompt + 1)
                output[one] = edit.change(call.of_prompt(prompt), output[one])
        return output


def _edit_private(private: dict[tuple[int, int, int], Tensor], prompt: int, edit: VectorEdit) -> None:
    """An edit of keys that every row sees also acts on the private copies made before it."""
    for place, keys in private.items():
        if place[:2] == (prompt, edit.head.index):
            private[place] = edit.apply(keys)
