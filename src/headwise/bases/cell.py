"""One cell's logit and relative attention, split over the channels of a basis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.bases.basis import Bases, Basis
from headwise.bases.relative import channels_needed, relative, sparsity
from headwise.basis_names import BasisKind, Frame
from headwise.errors import HeadwiseError
from headwise.model.batch import resolve_positions
from headwise.model.stream import split
from headwise.randomness import keyed
from headwise.tokens import Prompt
from headwise.types import Cell, HeadLike

if TYPE_CHECKING:
    from headwise.model.model import Model


@dataclass(frozen=True, eq=False)
class ChannelSplit:
    """One cell of a head's pattern over channels: its logit and its relative attention."""

    cell: Cell
    basis: Basis
    """The head's channels."""
    logit: Tensor
    """[channels]: sums to the pre-cap logit A'_ds."""
    relative: Tensor
    """[channels]: sums to RA(d, s), the logit less the mean of the other visible logits."""
    control: Tensor
    """[channels]: the relative attention along rotated directions; the same sum."""
    attention: float
    error: float
    """How far the channels' sum is from the model's own logit."""

    @property
    def sparsity(self) -> float:
        return float(sparsity(self.relative))

    @property
    def control_sparsity(self) -> float:
        return float(sparsity(self.control))

    @property
    def channels_needed(self) -> int:
        """How many channels rebuild the relative attention to 10 %."""
        return int(channels_needed(self.relative))

    @property
    def control_channels_needed(self) -> int:
        return int(channels_needed(self.control))


def split_cell(
    model: Model,
    prompt: Prompt,
    head: HeadLike,
    query: int,
    key: int,
    *,
    basis: BasisKind = "singular",
    frame: Frame = "query",
    seed: int = 0,
    start: int = 0,
) -> ChannelSplit:
    """Split one cell's logit and relative attention over the head's channels.

    RA(d, s) = A'_ds − mean over the other visible keys j of A'_dj; it is linear in the keys, so it splits alike.
    """
    wanted = model.head(head)
    bases = Bases.of(model, basis, frame=frame)
    token_ids = model.prompt_ids(prompt)
    (d,) = resolve_positions([query], [len(token_ids)], "query")[0]
    (s,) = resolve_positions([key], [len(token_ids)], "key")[0]
    stream = split(model, token_ids, layers=wanted.layer + 1, start=start)
    call, rotary = stream.layers[wanted.layer].call, stream.rotary(wanted.layer, 0)
    seen = call.visible(torch.tensor([[d]], device=call.query.device))[0, 0].cpu()
    if not bool(seen[s]):
        why = "lies after the query" if s > d else f"is outside the window of {wanted}"
        raise HeadwiseError(f"key position {s} {why}: {wanted} at position {d} cannot attend there")
    channels = basis_here = bases.head(wanted)
    control_channels = channels.rotated(keyed(seed, "rotation", str(wanted), 0))
    if rotary is not None:
        here = rotary.at_positions([d]).double()
        channels, control_channels = channels.seen_from(here), control_channels.seen_from(here)
    q, k = call.query[0, wanted.index, d].double().cpu(), call.key_of(wanted.index)[0].double().cpu()
    key_vector, scale = relative(k, s, seen), call.scale
    attention = float(stream.whole_pattern(wanted, rows=[d])[0, s])
    logit = channels.split(q, k[s]) * scale
    by_channel = channels.split(q, key_vector) * scale
    control = control_channels.split(q, key_vector) * scale
    error = abs(float(logit.sum()) - scale * float(q @ k[s]))
    return ChannelSplit(Cell(wanted, d, s), basis_here, logit, by_channel, control, attention, error)
