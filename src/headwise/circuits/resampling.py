"""Resample ablation: firings carry what the same firings carry in another prompt of as many tokens.

Nothing leaves the distribution of what heads write, but what it says is of something else. Of the other prompt a clean
pass is kept: what every head writes, its values, and the rows of attention that a circuit's firings are in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall, attend
from headwise.model.batch import Batch, checked_start
from headwise.model.edits import ChangeOutput
from headwise.model.forward import Instruments, forward
from headwise.randomness import keyed
from headwise.types import Cell

if TYPE_CHECKING:
    from headwise.model.model import Model

AttentionOfRows = Mapping[tuple[int, int], Tensor]
"""(Layer, query) → attention of the layer's heads from there [heads, keys up to the query]."""


@dataclass(frozen=True, eq=False)
class OtherFirings:
    """What the firings of another prompt carry."""

    rows: AttentionOfRows
    outputs: dict[int, Tensor]
    """By layer: what its heads write [1, T, heads, d_head]."""
    values: dict[int, Tensor]
    """By layer: the values they read [1, heads, T, d_head]."""

    @classmethod
    def of(
        cls, model: Model, token_ids: Sequence[int], queries: Sequence[int], start: int = 0
    ) -> OtherFirings:
        """One clean pass of the prompt, and its rows of attention from ``queries``."""
        batch = Batch.of([list(token_ids)], "right", checked_start(model, start, [len(token_ids)]))
        outputs: dict[int, Tensor] = {}
        values: dict[int, Tensor] = {}

        def observe(call: AttentionCall) -> None:
            outputs[call.layer], values[call.layer] = attend(call), _values(call)

        with torch.no_grad():
            forward(model, batch, Instruments(observe=observe, stop_at=model.n_layers - 1))
        return cls(rows_of(model, token_ids, queries, start), outputs, values)


def rows_of(
    model: Model, token_ids: Sequence[int], queries: Sequence[int], start: int = 0
) -> AttentionOfRows:
    """The rows of a prompt's patterns from some queries."""
    ids = [list(token_ids)]
    seen = model.capture(ids, queries=list(queries), want=("pattern",), start=start).pattern[0].double().cpu()
    by_layer = seen.unflatten(0, (model.n_layers, model.n_heads))
    return {
        (layer, query): by_layer[layer, :, place, : query + 1]
        for layer in range(model.n_layers)
        for place, query in enumerate(queries)
    }


def resample(cells: frozenset[Cell], other: OtherFirings, *, outside: bool) -> ChangeOutput:
    """The edit that takes what some firings carry, or all but them, from another prompt."""

    def change(call: AttentionCall, output: Tensor) -> Tensor:
        here = [cell for cell in cells if cell.head.layer == call.layer]
        if not here and not outside:
            return output
        changed = (other.outputs[call.layer] if outside else output).to(output.dtype).clone()
        own, there = _values(call), other.values[call.layer]
        for rows, pattern, _ in call.in_rows():
            for head, query, key in here:
                if rows.start <= query < rows.stop:
                    mine = pattern[0, head.index, query - rows.start, key] * own[0, head.index, key]
                    theirs = other.rows[call.layer, query][head.index, key] * there[0, head.index, key]
                    carried = mine - theirs if outside else theirs - mine
                    changed[0, query, head.index] += carried.to(output.dtype)
        return changed

    return ChangeOutput(change=change)


def reordered(token_ids: Sequence[int], count: int, seed: int) -> list[list[int]]:
    """The same tokens in other orders; the first, on which many heads park, stays where it is.

    >>> [sorted(one) == [1, 2, 3, 4] and one[0] == 4 for one in reordered([4, 1, 2, 3], 2, 0)]
    [True, True]
    """
    first, rest = list(token_ids[:1]), list(token_ids[1:])
    made = []
    for number in range(count):
        order = torch.randperm(len(rest), generator=keyed(seed, "reordered", number)).tolist()
        made.append(first + [rest[i] for i in order])
    return made


def check_lengths(others: Sequence[Sequence[int]], tokens: int) -> None:
    """Refuse prompts whose firings are not those of this one."""
    if not others:
        raise HeadwiseError("others=[] leaves no prompt to take messages over from: give at least one")
    for number, one in enumerate(others):
        if len(one) != tokens:
            raise HeadwiseError(
                f"others[{number}] has {len(one)} tokens and the circuit's prompt {tokens}: firings are taken over "
                "at the same positions, so give prompts of the same length"
            )


def _values(call: AttentionCall) -> Tensor:
    return call.value.repeat_interleave(call.query.shape[1] // call.value.shape[1], dim=1)
