"""What heads write: their attention outputs, captured before the layer's output projection mixes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.model.attend import AttentionCall, at_least_float32, attend
from headwise.model.batch import Batch, Padding, checked_start
from headwise.model.forward import Instruments, forward
from headwise.tokens import Prompt
from headwise.types import Head, HeadLike

if TYPE_CHECKING:
    from headwise.model.model import Model


def head_outputs(
    model: Model,
    prompts: Prompt | Sequence[Prompt],
    heads: Sequence[HeadLike],
    *,
    start: int = 0,
    padding: Padding = "right",
) -> list[dict[Head, Tensor]]:
    """What some heads write in each prompt, by head: [positions, d_head].

    These are the values that the head attends to, weighted by its attention; the output projection makes its write of
    them. The pass ends with the last layer that is needed.
    """
    token_ids = model.token_ids(prompts)
    batch = Batch.of(token_ids, padding, checked_start(model, start, [len(ids) for ids in token_ids]))
    wanted = [model.head(head) for head in heads]
    found: list[dict[Head, Tensor]] = [{} for _ in token_ids]

    def observe(call: AttentionCall) -> None:
        here = [head for head in wanted if head.layer == call.layer]
        if not here:
            return
        written = at_least_float32(attend(call)).to(model.result_device)
        for prompt, outputs in enumerate(found):
            outputs |= {head: written[prompt, batch.span(prompt), head.index] for head in here}

    with torch.no_grad():
        last = max((head.layer for head in wanted), default=0)
        forward(model, batch, Instruments(observe=observe, stop_at=last))
    return found
