"""What heads write, read and overwritten by hooks on the plain model: the slow, obvious way to edit it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from headwise.model.edits import OutputEdit, SetOutput
from headwise.model.model import Model
from headwise.types import Head


def projection(model: Model, layer: int) -> Any:
    return reduce(getattr, model.family.output.split("."), model.anatomy.attention[layer])


def bound(model: Model) -> float:
    """Where scores are capped, the plain model takes their softmax in float32 even if it is a float64 model."""
    return 1e-9 if getattr(model.anatomy.config, "attn_logit_softcapping", None) is None else 1e-6


@contextmanager
def hooked(model: Model, edits: list[OutputEdit]) -> Iterator[None]:
    """The slow obvious way: what the output projection is given is overwritten, head by head and row by row."""
    handles = []
    for edit in edits:
        assert edit.positions is not None

        def overwrite(_module: Any, args: tuple[Tensor], edit: OutputEdit = edit) -> tuple[Tensor]:
            given = args[0].clone()
            own = slice(edit.head.index * model.d_head, (edit.head.index + 1) * model.d_head)
            rows = [edit.positions] if isinstance(edit.positions, int) else list(edit.positions or ())
            for place, row in enumerate(rows):
                value = torch.zeros(model.d_head, dtype=given.dtype)
                if isinstance(edit, SetOutput):
                    value = edit.value if edit.value.ndim == 1 else edit.value[place]
                given[0, row, own] = value
            return (given,)

        handles.append(projection(model, edit.head.layer).register_forward_pre_hook(overwrite))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def written(model: Model, prompt: list[int], head: Head) -> Tensor:
    """What the plain model hands to the output projection of a head: [positions, d_head]."""
    seen: list[Tensor] = []
    handle = projection(model, head.layer).register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    model.hf(torch.tensor([prompt]), use_cache=False)
    handle.remove()
    return seen[0].view(len(prompt), model.n_heads, model.d_head)[:, head.index]
