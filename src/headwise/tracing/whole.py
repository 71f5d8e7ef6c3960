"""Writers whatever token they read: heads added up over the tokens, then all others as they are.

Rows of two prompts, or of two keys, belong together only in this form: their tokens are not the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.types import Component

if TYPE_CHECKING:
    from headwise.model.model import Model
    from headwise.tracing.writes import PromptWrites


def whole_heads(model: Model, layer: int) -> list[Component]:
    """The heads below a layer, in the order of their rows."""
    return [Component("head", below, index) for below in range(layer) for index in range(model.n_heads)]


def whole_writers(model: Model, layer: int) -> list[Component]:
    """Everyone who writes below a layer, in the order of :func:`over_tokens`; last the reader's own constants."""
    anatomy = model.anatomy
    biased = any(bias(0) is not None for bias in (anatomy.output_bias, anatomy.value_bias))
    kinds = ("bias", "mlp") if biased else ("mlp",)
    others = [Component(kind, below) for below in range(layer) for kind in kinds]
    return [*whole_heads(model, layer), Component("embedding"), *others, Component("offset")]


def over_tokens(up: PromptWrites, layer: int, values: Tensor) -> Tensor:
    """Values of writers below a layer [N], heads by the token they read, as [M]: each head's added up."""
    carried = up.n_carried(layer)
    return torch.cat((values[:carried].view(-1, up.tokens).sum(1), values[carried:]))


def whole_place(up: PromptWrites, layer: int, row: int) -> int:
    """Where a row of [N] is in [M]."""
    carried = up.n_carried(layer)
    return row // up.tokens if row < carried else row - carried + carried // up.tokens
