"""Edits made during a forward pass: of one query head's queries or keys, of its output, of the stream.

An edit of vectors is a pure function of one prompt's queries or keys [positions, d_head] as the head multiplies them
(after RoPE and QK-norm). Several edits of the same vectors act in the order in which they are given. Under
grouped-query attention an edit of a key changes it for the named query head only; the neighbours that share the key
keep theirs. Where that changes what one head reads, an edit of its output changes what it writes, and an edit of the
stream is seen by everything above.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall, pattern_rows, raw_scores
from headwise.model.batch import Batch, CleanPass, Packing, resolve_positions
from headwise.types import Head, Side, Subspace


@dataclass(frozen=True, eq=False, kw_only=True)
class Edit:
    """What every edit says: in which prompt of the batch it is made (None: in all of them)."""

    prompt: int | None = None
    """The prompt of the batch in which the edit is made, by number; None: all of them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AddToStream(Edit):
    """Add ``value`` [positions, d_model] to the stream before a layer."""

    layer: int
    positions: Sequence[int]
    value: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class ChangeOutput(Edit):
    """Let ``change`` make another output [1, columns, heads, d_head] of every layer's attention from the prompt's own
    call and output."""

    change: Callable[[AttentionCall, Tensor], Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class VectorEdit(Edit, ABC):
    """An edit of one head's queries or keys.

    ``seen_by`` limits an edit of keys to some query positions: every other row of the head still reads the
    unedited keys, so that one cell of the pattern can be tested without touching the rest of the head.
    """

    head: Head
    """The query head whose vectors are edited."""
    side: Side = "key"
    """Which of its vectors: ``query`` or ``key``."""
    seen_by: int | Sequence[int] | None = None
    """The query positions that see an edit of keys; None: all of them."""

    def __post_init__(self) -> None:
        if self.side not in ("query", "key"):
            raise HeadwiseError(f"side {self.side!r} is not a side: write 'query' or 'key'")
        if self.side == "query" and self.seen_by is not None:
            raise HeadwiseError("seen_by limits edits of keys; a query is its own row already")
        object.__setattr__(self, "head", Head.parse(self.head))

    @abstractmethod
    def apply(self, vectors: Tensor) -> Tensor:
        """The edited vectors, from one prompt's vectors [positions, d_head]."""

    def first_position(self, length: int) -> int:
        """Of a prompt of so many tokens, the first position that the edit can reach."""
        if self.seen_by is not None:
            return min(resolve_positions(self.seen_by, [length], f"{self.head} query")[0], default=length - 1)
        return min(self._changed(length), default=length - 1)

    def _changed(self, length: int) -> list[int]:
        """Positions whose vectors are changed; all of them, unless an edit knows better."""
        return list(range(length))

    def _at(self, positions: int | Sequence[int], vectors: Tensor) -> list[int]:
        return resolve_positions(positions, [vectors.shape[0]], f"{self.head} {self.side}")[0]


@dataclass(frozen=True, eq=False, kw_only=True)
class SetVectors(VectorEdit):
    """Replace the vectors at ``positions`` by ``value`` ([d_head] or [positions, d_head])."""

    positions: int | Sequence[int]
    """The position or positions that are edited; negative ones count from the end."""
    value: Tensor
    """[d_head] or [positions, d_head]: what is put there."""

    def _changed(self, length: int) -> list[int]:
        return resolve_positions(self.positions, [length], f"{self.head} {self.side}")[0]

    def apply(self, vectors: Tensor) -> Tensor:
        edited = vectors.clone()
        at = self._at(self.positions, vectors)
        edited[at] = _fit(self.value, vectors, len(at))
        return edited


@dataclass(frozen=True, eq=False, kw_only=True)
class AddVectors(VectorEdit):
    """Add ``value`` ([d_head] or [positions, d_head]) to the vectors at ``positions``."""

    positions: int | Sequence[int]
    """The position or positions that are edited; negative ones count from the end."""
    value: Tensor
    """[d_head] or [positions, d_head]: what is added there."""

    def _changed(self, length: int) -> list[int]:
        return resolve_positions(self.positions, [length], f"{self.head} {self.side}")[0]

    def apply(self, vectors: Tensor) -> Tensor:
        edited = vectors.clone()
        at = self._at(self.positions, vectors)
        edited[at] += _fit(self.value, vectors, len(at))
        return edited


@dataclass(frozen=True, eq=False, kw_only=True)
class SwapWithin(VectorEdit):
    """Exchange what two positions hold inside a subspace (all of it where ``subspace`` is None).

    ``dose`` 1 is the whole swap, 0 none, 0.5 leaves both with the mean.
    """

    first: int
    """One position."""
    second: int
    """The other."""
    subspace: Subspace | None = None
    """Where the two are exchanged; None: in the whole of the head's space."""
    dose: float = 1.0
    """How much of the swap is made, from 0 to 1."""

    def _changed(self, length: int) -> list[int]:
        return resolve_positions([self.first, self.second], [length], f"{self.head} {self.side}")[0]

    def apply(self, vectors: Tensor) -> Tensor:
        first, second = self._at([self.first, self.second], vectors)
        difference = vectors[second] - vectors[first]
        if self.subspace is not None:
            difference = _check_width(self.subspace, vectors).project(difference)
        edited = vectors.clone()
        edited[first] += self.dose * difference
        edited[second] -= self.dose * difference
        return edited


@dataclass(frozen=True, eq=False, kw_only=True)
class RemoveWithin(VectorEdit):
    """Remove what the vectors at ``positions`` (None: all) hold inside a subspace.

    ``dose`` 1 removes all of it, 0.5 half, 0 nothing; -1 doubles it.
    """

    subspace: Subspace
    """What is projected out."""
    positions: int | Sequence[int] | None = None
    """The position or positions that are edited; None: all of them."""
    dose: float = 1.0
    """How much of it is removed."""

    def _changed(self, length: int) -> list[int]:
        return resolve_positions(self.positions, [length], f"{self.head} {self.side}")[0]

    def apply(self, vectors: Tensor) -> Tensor:
        at = list(range(vectors.shape[0])) if self.positions is None else self._at(self.positions, vectors)
        edited = vectors.clone()
        edited[at] -= self.dose * _check_width(self.subspace, vectors).project(vectors[at])
        return edited


@dataclass(frozen=True, eq=False, kw_only=True)
class OutputEdit(Edit, ABC):
    """An edit of what one head writes at ``positions`` (None: at all): its values weighted by its attention, [rows,
    d_head], before the layer's output projection. The head still attends as it did."""

    head: Head
    """The head whose output is edited."""
    positions: int | Sequence[int] | None = None
    """The position or positions at which it writes; None: all of them."""
    dose: float = 1.0
    """How far what it writes goes from its own to the edited one: 1 all the way, 0.5 half."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", Head.parse(self.head))

    @abstractmethod
    def apply(self, outputs: Tensor) -> Tensor:
        """The edited outputs, from one prompt's outputs [positions, d_head]."""

    def first_position(self, length: int) -> int:
        """Of a prompt of so many tokens, the first position that the edit can reach."""
        return min(self._rows(length), default=length - 1)

    def _rows(self, length: int) -> list[int]:
        return resolve_positions(self.positions, [length], f"{self.head} output")[0]


@dataclass(frozen=True, eq=False, kw_only=True)
class Silence(OutputEdit):
    """Let a head write nothing at ``positions`` (None: at all).

    ``dose`` 0.5 lets it write half of what it writes, -1 twice as much.
    """

    def apply(self, outputs: Tensor) -> Tensor:
        edited = outputs.clone()
        edited[self._rows(len(outputs))] *= 1.0 - self.dose
        return edited


@dataclass(frozen=True, eq=False, kw_only=True)
class SetOutput(OutputEdit):
    """Replace what a head writes at ``positions`` (None: at all) by ``value`` ([d_head] or [positions, d_head]).

    With the head's mean output this is mean ablation, with its outputs in another prompt it is patching.
    """

    value: Tensor
    """[d_head] or [positions, d_head]: what it writes there instead."""

    def apply(self, outputs: Tensor) -> Tensor:
        rows, edited = self._rows(len(outputs)), outputs.clone()
        edited[rows] = edited[rows].lerp(_fit(self.value, outputs, len(rows)), self.dose)
        return edited


def _fit(value: Tensor, vectors: Tensor, places: int) -> Tensor:
    if value.shape[-1] != vectors.shape[-1]:
        raise HeadwiseError(
            f"the vector has {value.shape[-1]} dimensions but the head has {vectors.shape[-1]}"
        )
    if value.ndim > 2 or (value.ndim == 2 and len(value) not in (1, places)):
        raise HeadwiseError(
            f"a value of shape {list(value.shape)} was given for {places} positions: give one vector, or one for each"
        )
    return value.to(device=vectors.device, dtype=vectors.dtype)


def _check_width(subspace: Subspace, vectors: Tensor) -> Subspace:
    if subspace.d_head != vectors.shape[-1]:
        raise HeadwiseError(f"{subspace} does not fit a head of {vectors.shape[-1]} dimensions")
    return subspace


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
