"""Edits of the residual stream itself, made together with edits of queries and keys in one pass.

Where an edit of a query or key changes what one head reads, an edit of the stream is seen by everything above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.model.attend import AttentionCall, pattern_rows, raw_scores
from headwise.model.batch import Batch
from headwise.model.edits import Edit, Editor
from headwise.model.forward import Instruments, forward
from headwise.types import Cell

if TYPE_CHECKING:
    from headwise.model.model import Model


@dataclass(frozen=True, eq=False, kw_only=True)
class AddToStream:
    """Add ``value`` [positions, d_model] to the stream before a layer, in one prompt of a batch."""

    layer: int
    prompt: int
    positions: Sequence[int]
    value: Tensor


@dataclass(frozen=True, eq=False)
class EditedRun:
    """Patterns at the cells asked for, [prompts, cells], and logits of the last token, [prompts, vocabulary]."""

    cells: Tensor
    logits: Tensor


OutputEdit = Callable[[AttentionCall, Tensor], Tensor]


def run_edited(
    model: Model,
    token_ids: Sequence[int],
    copies: int,
    *,
    edits: Sequence[Edit] = (),
    adds: Sequence[AddToStream] = (),
    cells: Sequence[Cell] = (),
    output: OutputEdit | None = None,
) -> EditedRun:
    """Run ``copies`` of one prompt, each with its own edits.

    ``cells`` are those whose attention is wanted, in every copy; ``output`` may change each layer's
    attention output [copies, tokens, heads, d_head].
    """
    batch = Batch.of([list(token_ids)] * copies)
    editor = Editor(list(edits), batch)
    found = torch.zeros(copies, len(cells), dtype=torch.float64)

    def observe(call: AttentionCall) -> None:
        for place, (head, query, key) in enumerate(cells):
            if head.layer != call.layer:
                continue
            rows = torch.full((copies, 1), query, device=call.query.device)
            scores = raw_scores(
                call.query[:, head.index, query][:, None], call.key_of(head.index), call.scale, call.cap
            )
            scores = scores[:, None]
            editor.override_rows(call, [head.index], rows, scores)
            found[:, place] = pattern_rows(scores[:, 0], call.visible(rows))[:, 0, key].double().cpu()

    def finish(call: AttentionCall, result: Tensor) -> Tensor:
        result = editor.finish(call, result)
        return result if output is None else output(call, result)

    instruments = Instruments(edit=editor.edit, observe=observe, finish=finish)
    by_layer: dict[int, list[AddToStream]] = {}
    for add in adds:
        if not 0 <= add.layer < model.n_layers:
            raise HeadwiseError(
                f"layer {add.layer} does not exist: {model.name} has layers 0 to {model.n_layers - 1}"
            )
        by_layer.setdefault(add.layer, []).append(add)
    for layer, mine in by_layer.items():
        instruments.before.append((model.anatomy.layers[layer], partial(_add, mine)))
    if output is None:
        touched = (*editor.by_layer, *by_layer, *(cell.head.layer for cell in cells))
        instruments.shared_below = min(touched, default=0)
    last = torch.full((copies, 1), len(token_ids) - 1)
    logits = forward(model, batch, instruments, last)
    assert logits is not None
    return EditedRun(found, logits[:, 0].double().cpu())


def _add(adds: list[AddToStream], _module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    hidden = (args[0] if args else kwargs["hidden_states"]).clone()
    for add in adds:
        hidden[add.prompt, list(add.positions)] += add.value.to(hidden)
    if args:
        return (hidden, *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": hidden}
