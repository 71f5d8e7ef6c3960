"""Relative attention by channel, for many cells of many prompts at once.

The maths is that of :func:`headwise.bases.cell.split_cell`: RA(d, s) is linear in the keys, so with
k̄ the mean of the other visible keys it is scale · q·(k_s − k̄), split over channels like any logit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from headwise.bases.basis import Basis
from headwise.bases.relative import channels_needed, relative, relative_attention, sparsity
from headwise.randomness import keyed
from headwise.types import Cell, Head

if TYPE_CHECKING:
    from headwise.model.model import Model


class PromptCell(NamedTuple):
    """One cell of a head's pattern, and the prompt it is of."""

    prompt: int
    cell: Cell


@dataclass(frozen=True, eq=False)
class SplitCells:
    """Some cells of one head over channels. n cells, K channels, R rotations; float64."""

    head: Head
    prompts: Tensor
    """[n]: the prompt of each cell."""
    attention: Tensor
    """[n]"""
    relative: Tensor
    """[n, K]: sums to the relative attention."""
    control: Tensor
    """[R, n, K]: the same along directions turned by random rotations; the same sums."""
    error: float
    """How far the channels' sums are from the model's own logits."""
    rotation_error: float
    """How far the rotated sums are from the others."""

    @property
    def sparsity(self) -> Tensor:
        """[n]"""
        return sparsity(self.relative)

    @property
    def control_sparsity(self) -> Tensor:
        """[n]: mean over rotations."""
        return sparsity(self.control).mean(0)

    @property
    def needed(self) -> Tensor:
        """[n]: channels that rebuild the relative attention to 10 %."""
        return channels_needed(self.relative).double()

    @property
    def control_needed(self) -> Tensor:
        """[n]: mean over rotations."""
        return channels_needed(self.control).double().mean(0)


def split_cells(
    model: Model,
    token_ids: Sequence[Sequence[int]],
    cells: Sequence[PromptCell],
    *,
    rotations: int = 8,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> dict[Head, SplitCells]:
    """Split every cell, head by head, with one capture of all prompts."""
    heads = sorted({one.cell.head for one in cells})
    by_prompt: dict[int, list[Cell]] = {}
    for prompt, cell in cells:
        by_prompt.setdefault(prompt, []).append(cell)
    prompts = sorted(by_prompt)
    rows: dict[Head, list[tuple[int, float, Tensor, Tensor, float]]] = {head: [] for head in heads}
    scale = torch.ones(len(heads), dtype=torch.float64)
    for indices, got in model.stream_capture(
        [list(token_ids[i]) for i in prompts], heads=heads, want=("q", "k", "pattern"), max_tokens=1024
    ):
        scale = got.scale.double()
        for place, i in enumerate(indices):
            for cell in by_prompt[prompts[i]]:
                h = heads.index(cell.head)
                q, k = got.q[place, h, cell.query].double().cpu(), got.k[place, h].double().cpu()
                seen = got.visible[place, h, cell.query].cpu()
                key = relative(k, cell.key, seen)
                attention = float(got.pattern[place, h, cell.query, cell.key])
                logits = (k @ q) * float(scale[h])
                whole = float(relative_attention(logits[:, None], torch.tensor(cell.key), seen))
                rows[cell.head].append((prompts[i], attention, q, key, whole))
        if progress is not None:
            progress(len(indices))
    return {
        head: _split(model, head, rows[head], float(scale[h]), rotations, seed)
        for h, head in enumerate(heads)
    }


def _split(
    model: Model,
    head: Head,
    rows: Sequence[tuple[int, float, Tensor, Tensor, float]],
    scale: float,
    rotations: int,
    seed: int,
) -> SplitCells:
    channels = Basis.of(model, head, frame="absolute")
    rows = sorted(rows, key=lambda row: row[0])
    q, key = torch.stack([row[2] for row in rows]), torch.stack([row[3] for row in rows])
    by_channel = channels.split(q, key) * scale
    control = torch.stack(
        [
            channels.rotated(keyed(seed, "rotation", str(head), draw)).split(q, key) * scale
            for draw in range(rotations)
        ]
    )
    whole = torch.tensor([row[4] for row in rows], dtype=torch.float64)
    return SplitCells(
        head=head,
        prompts=torch.tensor([row[0] for row in rows]),
        attention=torch.tensor([row[1] for row in rows], dtype=torch.float64),
        relative=by_channel,
        control=control,
        error=float((by_channel.sum(-1) - whole).abs().max()),
        rotation_error=float((control.sum(-1) - whole).abs().max()),
    )
