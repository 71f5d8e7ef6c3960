"""What is made of captures after their passes: one of several, and which columns the rows see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.model.attend import AttentionCall, row_blocks
from headwise.model.batch import Batch
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.capture import Captured


@dataclass(frozen=True, eq=False)
class Sight:
    """What the rows of a batch that were asked for see of the columns, worked out when it is called: of all rows and
    columns it is the square of a prompt, while a long prompt's mask is a rule."""

    batch: Batch
    heads: tuple[Head, ...]
    masks: Mapping[int, AttentionCall]
    """Layer → its call, of which only the mask is left."""
    device: torch.device
    """Where results live."""

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[n, h, r, c] at query positions [n, r] and key positions [n, c]."""
        there = (queries >= 0)[:, :, None] & (keys >= 0)[:, None]
        made = torch.zeros(len(there), len(self.heads), *there.shape[1:], dtype=torch.bool)
        for layer, call in self.masks.items():
            places = [place for place, head in enumerate(self.heads) if head.layer == layer]
            rows, columns = (self.batch.columns_of(at).to(call.query.device) for at in (queries, keys))
            for low, high in row_blocks(0, rows.shape[1], len(rows), columns=call.key.shape[2]):
                visible = call.sees(rows[:, low:high], columns).cpu() & there[:, low:high]
                for place in places:
                    made[:, place, low:high] = visible
        return made.to(self.device)


def merge(parts: Sequence[tuple[Sequence[int], Captured]]) -> Captured:
    """One result of several, each with the places of its prompts in the whole; filled up to the widest."""
    places = [list(at) for at, _ in parts]
    number = sum(map(len, places))
    rows = [torch.tensor(at) for at in places]
    captured = [part for _, part in parts]

    def join(tensors: list[Tensor], fill: float) -> Tensor:
        shape = [max(sizes) for sizes in zip(*(t.shape[1:] for t in tensors), strict=True)]
        joined = tensors[0].new_full((number, *shape), fill)
        for at, tensor in zip(rows, tensors, strict=True):
            joined[(at.to(tensor.device), *map(slice, tensor.shape[1:]))] = tensor
        return joined

    fills = {"logit_positions": -1, "scores": float("-inf")}
    token_ids: list[list[int]] = [[]] * number
    for at, part in zip(places, captured, strict=True):
        for place, ids in zip(at, part.token_ids, strict=True):
            token_ids[place] = ids
    return replace(
        captured[0],
        token_ids=token_ids,
        query_positions=join([part.query_positions for part in captured], -1),
        key_positions=join([part.key_positions for part in captured], -1),
        sight=lambda *_: join([part.visible for part in captured], 0),
        # Popped, so that no more than one of the things asked for is there twice.
        held={
            name: join([part.held.pop(name) for part in captured], fills.get(name, 0.0))
            for name in list(captured[0].held)
        },
    )
