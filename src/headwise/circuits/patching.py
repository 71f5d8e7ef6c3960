"""Values from another prompt's run: which position of it stands for which of this one, and signals taken over from it.

A signal that is patched has, in this prompt, the value that its writer gives it in the other one. What a head reads is
rotated by where it is read, so a value that comes from another position is turned back there and turned again here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwise.circuits.counterfactual import Removal, removal
from headwise.errors import HeadwiseError
from headwise.model.batch import resolve_positions
from headwise.strings import in_short
from headwise.types import Cell, Signal

if TYPE_CHECKING:
    from torch import Tensor

    from headwise.tracing.writes import PromptWrites

Align = Mapping[int, int] | None
"""Positions of a prompt, each with the position of the other prompt that stands for it; None: the same ones."""


def aligned(length: int, other: int, align: Align = None) -> dict[int, int]:
    """For positions of a prompt of ``length`` tokens, the position in the other prompt; all of them, if both are alike.

    >>> aligned(3, 3), aligned(3, 5, {-1: -1, 0: 1})
    ({0: 0, 1: 1, 2: 2}, {2: 4, 0: 1})
    >>> aligned(3, 5)
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: the prompt has 3 tokens and the other one 5: say with align= which...
    """
    if align is None:
        if length != other:
            raise HeadwiseError(
                f"the prompt has {length} tokens and the other one {other}: say with align= which positions belong "
                "together"
            )
        return {position: position for position in range(length)}
    if not isinstance(align, Mapping) or not align:
        raise HeadwiseError(f"align={in_short(align)} names no positions: give a mapping such as {{9: 10}}")
    here = resolve_positions(list(align), [length], "aligned")[0]
    there = resolve_positions(list(align.values()), [other], "the other prompt's")[0]
    if len(set(here)) < len(here):
        twice = next(position for i, position in enumerate(here) if position in here[:i])
        raise HeadwiseError(f"position {twice} is aligned twice: give each position once")
    return dict(zip(here, there, strict=True))


def require_source(action: str, source: object, align: object) -> None:
    """Another prompt is given where values are taken from one, and nowhere else."""
    if action == "patch" and source is None:
        raise HeadwiseError("patch takes values from another prompt: give it with source=")
    if action != "patch" and (source is not None or align is not None):
        given = "source=" if source is not None else "align="
        raise HeadwiseError(
            f"{given} is used only with the action 'patch', not with {action!r}: leave it out"
        )


def place_in(places: Mapping[int, int], position: int, what: str) -> int:
    """Where a position is in the other prompt; ``what`` says what is there."""
    if position not in places:
        raise HeadwiseError(
            f"{what} is at position {position}, which is aligned with none of the other prompt: add it to align="
        )
    return places[position]


@dataclass(frozen=True, eq=False)
class OtherRun:
    """Another prompt's run, and which of its positions stands for which of this prompt."""

    up: PromptWrites
    places: Mapping[int, int]

    def difference(self, up: PromptWrites, cell: Cell, signals: Iterable[Signal]) -> Removal:
        """What is taken from a cell so that the given signals have the values of the other prompt.

        Keys that are aligned with nothing keep what they hold.
        """
        signals = list(signals)
        query = place_in(self.places, cell.query, f"the query of {cell}")
        there = Cell(cell.head, query, place_in(self.places, cell.key, f"the key of {cell}"))
        own = removal(up, cell, signals)
        other = removal(self.up, there, [self._moved(one) for one in signals])
        made: dict[str, Any] = {}
        if own.query is not None and other.query is not None:
            made["query"] = own.query - self._turned(up, cell, other.query, query, cell.query)
        if own.key is not None and other.key is not None:
            taken = own.key.new_zeros(own.key.shape)
            for here, position in self.places.items():
                taken[here] = own.key[here] - self._turned(up, cell, other.key[position], position, here)
            made["key"] = taken
        return Removal(cell, **made)

    def _moved(self, signal: Signal) -> Signal:
        """The same signal in the other prompt: a head that wrote it reads the token that stands for its own."""
        writer = signal.writer
        if writer.source < 0:
            return signal
        source = place_in(self.places, writer.source, f"what {writer.name} reads for {signal.head}")
        return replace(signal, writer=replace(writer, source=source))

    def _turned(self, up: PromptWrites, cell: Cell, vector: Tensor, there: int, here: int) -> Tensor:
        layer = cell.head.layer
        before, after = self.up.stream.rotary(layer, self.up.prompt), up.stream.rotary(layer, up.prompt)
        if before is None or after is None:
            return vector
        return after.at_positions([here]).turn(before.at_positions([there]).undo(vector[None, None, None]))[
            0, 0, 0
        ]
