"""Short prompts that are treated as long ones, and what is as large as the square of a prompt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headwise.model import attend, forward
from headwise.tracing import writes
from headwise.why import question


@contextmanager
def rows_at_a_time(numbers: int) -> Iterator[None]:
    """Every prompt is a long one: patterns have so many numbers at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "LONG", 8)
        patch.setattr(attend, "BLOCK", numbers)
        patch.setattr(question, "BLOCK", numbers)
        patch.setattr(attend.row_blocks, "__defaults__", (numbers,))
        patch.setattr(writes, "BLOCK_BYTES", 8 * numbers)
        patch.setattr(writes, "KEPT_BYTES", 0)
        patch.setattr(writes, "LONG", 8)
        yield


class Largest(TorchDispatchMode):
    """Notes the memory of the largest tensor, and every tensor with two axes that are multiples of the prompt."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.bytes = length, 0
        self.squares: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor):
                self.bytes = max(self.bytes, one.untyped_storage().nbytes())
                if sum(size > 0 and size % self.length == 0 for size in one.shape) > 1:
                    self.squares.add(f"{func} {tuple(one.shape)}")
        return made
