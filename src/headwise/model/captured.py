"""What a capture gives back, and how the parts of a run become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.types import Head

Wanted = Literal["q", "k", "scores", "pattern", "q_before_rope", "k_before_rope"]
ALL_WANTED = ("q", "k", "scores", "pattern", "q_before_rope", "k_before_rope")


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
        """[n, h, r, c]: attention; the softmax runs over all the keys a row sees, including those not asked for."""
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
        names = [name for name in (*ALL_WANTED, "logits") if name in self.held]
        held = ", ".join(f"{name} {list(self.held[name].shape)}" for name in names)
        heads = ", ".join(map(str, self.heads[:4])) + (", …" if len(self.heads) > 4 else "")
        return f"Captured({len(self)} prompts, {len(self.heads)} heads [{heads}]: {held})"


def merge(parts: Sequence[tuple[Sequence[int], Captured]]) -> Captured:
    """One result of several, each with the places of its prompts in the whole; filled up to the widest."""
    places = [list(at) for at, _ in parts]
    if len(parts) == 1 and places[0] == sorted(places[0]):
        return parts[0][1]
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
        visible=join([part.visible for part in captured], 0),
        # Popped, so that no more than one of the things asked for is there twice.
        held={
            name: join([part.held.pop(name) for part in captured], fills.get(name, 0.0))
            for name in list(captured[0].held)
        },
    )
