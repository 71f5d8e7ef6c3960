"""Edits made during a forward pass: of one query head's queries or keys, of its output, of the stream.

An edit of vectors is a pure function of one prompt's queries or keys [positions, d_head] as the head multiplies them
(after RoPE and QK-norm). Several edits of the same vectors act in the order in which they are given. Under
grouped-query attention an edit of a key changes it for the named query head only; the neighbours that share the key
keep theirs. Where that changes what one head reads, an edit of its output changes what it writes, and an edit of the
stream is seen by everything above.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall
from headwise.model.batch import resolve_positions
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
