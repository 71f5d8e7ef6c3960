"""Relative attention by channel, for many cells of many prompts at once.

The maths is that of :func:`headwise.bases.cell.split_cell`: RA(d, s) is linear in the keys, so with
k̄ the mean of the other visible keys it is scale · q·(k_s − k̄), split over channels like any logit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from headwise.bases.basis import Basis
from headwise.bases.relative import channels_needed, relative_attention, sparsity
from headwise.model.threads import steady
from headwise.progress import Tick
from headwise.randomness import keyed
from headwise.scale.stages import Stages, ValuesJob
from headwise.scale.work import Chunk, cut
from headwise.sparsity.nulls import CellVectors, cell_vectors
from headwise.types import Cell, Head

if TYPE_CHECKING:
    from headwise.model.capture import Captured
    from headwise.model.model import Model

PART = 8
"""Prompts worked on at a time."""
MAX_TOKENS = 1024
"""Tokens in one pass: all queries and keys of the heads are held."""


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
    vectors: CellVectors
    """The queries and keys behind them, for the nulls."""
    error: float
    """How far the channels' sums are from the model's own logits."""
    rotation_error: float
    """How far the rotated sums are from the others."""

    @classmethod
    def cat(cls, parts: Sequence[SplitCells]) -> SplitCells:
        """Several groups of cells of one head, one after another."""
        return cls(
            head=parts[0].head,
            prompts=torch.cat([part.prompts for part in parts]),
            attention=torch.cat([part.attention for part in parts]),
            relative=torch.cat([part.relative for part in parts]),
            control=torch.cat([part.control for part in parts], 1),
            vectors=CellVectors.cat([part.vectors for part in parts]),
            error=max(part.error for part in parts),
            rotation_error=max(part.rotation_error for part in parts),
        )

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
    work: Stages | None = None,
) -> dict[Head, SplitCells]:
    """Split every cell, head by head, with one capture of all prompts."""
    by_prompt: dict[int, list[Cell]] = {}
    for prompt, cell in cells:
        by_prompt.setdefault(prompt, []).append(cell)
    asked = [CellsOf(i, tuple(token_ids[i]), tuple(by_prompt[i])) for i in sorted(by_prompt)]
    run = work or Stages.here(model)
    found: dict[Head, list[SplitCells]] = {}
    for part in run("channels", SplitJob(rotations, seed), cut(asked, PART)):
        for split in part:
            found.setdefault(split.head, []).append(split)
    return {head: SplitCells.cat(found[head]) for head in sorted(found)}


@dataclass(frozen=True)
class CellsOf:
    """A prompt and its cells."""

    prompt: int
    token_ids: tuple[int, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class SplitJob(ValuesJob):
    """Splits the cells of some prompts; one value per head."""

    kind: ClassVar = SplitCells
    rotations: int
    seed: int

    def make(self, model: Model, chunk: Chunk[CellsOf], tick: Tick, /) -> list[SplitCells]:
        heads = sorted({cell.head for one in chunk.items for cell in one.cells})
        rows: dict[Head, list[_CapturedCell]] = {head: [] for head in heads}
        with steady():
            stream = model.stream_capture(
                [list(one.token_ids) for one in chunk.items],
                heads=heads,
                queries=[rows_of(one.cells) for one in chunk.items],
                want=("q", "k", "pattern"),
                max_tokens=MAX_TOKENS,
            )
            for indices, got in stream:
                for place, i in enumerate(indices):
                    one = chunk.items[i]
                    for cell in one.cells:
                        at = place, heads.index(cell.head), rows_of(one.cells).index(cell.query)
                        rows[cell.head].append(_captured(got, *at, one.prompt, cell, self.seed))
            return [_split(model, head, rows[head], self.rotations, self.seed) for head in heads]


class _CapturedCell(NamedTuple):
    """One cell as it was captured."""

    prompt: int
    attention: float
    vectors: CellVectors
    whole: float
    """Its relative attention."""


def rows_of(cells: Sequence[Cell]) -> list[int]:
    """The rows that cells are in: no other row of a long prompt is needed."""
    return sorted({cell.query for cell in cells})


def _captured(
    got: Captured, place: int, head: int, row: int, prompt: int, cell: Cell, seed: int
) -> _CapturedCell:
    scale = float(got.scale[head])
    q, k = got.q[place, head, row].double().cpu(), got.k[place, head].double().cpu()
    seen = got.visible[place, head, row].cpu()
    pattern = got.pattern[place, head, row].double().cpu()
    g = keyed(seed, "unattended", prompt, str(cell.head), cell.query, cell.key)
    return _CapturedCell(
        prompt=prompt,
        attention=float(pattern[cell.key]),
        vectors=cell_vectors(q * scale, k, cell.key, seen, pattern, g),
        whole=float(relative_attention(((k @ q) * scale)[:, None], torch.tensor(cell.key), seen)),
    )


def _split(model: Model, head: Head, rows: Sequence[_CapturedCell], rotations: int, seed: int) -> SplitCells:
    channels = Basis.of(model, head, frame="absolute")
    rows = sorted(rows, key=lambda row: row.prompt)
    vectors = CellVectors.cat([row.vectors for row in rows])
    q, key = vectors.q, vectors.key
    by_channel = channels.split(q, key)
    control = torch.stack(
        [
            channels.rotated(keyed(seed, "rotation", str(head), draw)).split(q, key)
            for draw in range(rotations)
        ]
    )
    whole = torch.tensor([row.whole for row in rows], dtype=torch.float64)
    return SplitCells(
        head=head,
        prompts=torch.tensor([row.prompt for row in rows]),
        attention=torch.tensor([row.attention for row in rows], dtype=torch.float64),
        relative=by_channel,
        control=control,
        vectors=vectors,
        error=float((by_channel.sum(-1) - whole).abs().max()),
        rotation_error=float((control.sum(-1) - whole).abs().max()),
    )
