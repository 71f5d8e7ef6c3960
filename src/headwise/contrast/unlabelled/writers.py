"""Who writes a feature: every component's part of its logit in some cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.contrast.unlabelled.attention_rows import AttendedCells
from headwise.contrast.unlabelled.features import LabelFree
from headwise.types import Head

if TYPE_CHECKING:
    from headwise.model.model import Model


def writer_profiles(
    model: Model,
    head: Head,
    found: LabelFree,
    feature: int,
    cells: AttendedCells,
    texts: Sequence[Sequence[int]],
) -> tuple[list[str], Tensor]:
    """Components by name, and their parts of a feature's logit through the key of each cell [cells, components].

    Heads count once, whatever token they read.
    """
    group = list(found.groups[feature])
    read = found.contrast.key_ @ torch.from_numpy(found.axes.components_.T)[:, group]
    asks = cells.q.double() @ found.key_directions[:, group]
    profiles: list[dict[str, float]] = [{} for _ in range(len(cells))]
    # Cells of one text share its pass.
    for text in cells.unit.unique().tolist():
        stream = model.split([list(texts[text])], layers=head.layer + 1)
        rotary = stream.rotary(head.layer, 0)
        for cell in (cells.unit == text).nonzero()[:, 0].tolist():
            made = stream.shares(head, "key", int(cells.key[cell]))
            vectors = made.vectors.double().cpu()
            if rotary is not None:
                here = rotary.at_positions([int(cells.row[cell])]).double()
                vectors = here.transposed(vectors[None, :, None])[0, :, 0]
            values = (vectors @ read @ asks[cell]).tolist()
            for component, value in zip(made.components, values, strict=True):
                profiles[cell][component.name] = profiles[cell].get(component.name, 0.0) + value
    names = list(dict.fromkeys(name for one in profiles for name in one))
    return names, torch.tensor([[one.get(name, 0.0) for name in names] for one in profiles])
