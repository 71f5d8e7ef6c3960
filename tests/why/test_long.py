"""Long prompts: the same numbers some rows at a time, and nothing of the size tokens × tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from alike import assert_alike
from tiny import prompts_of, tiny
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import headwise
from headwise.model import attend, forward
from headwise.model.model import Model
from headwise.tracing import writes
from headwise.why import question

ASKED: dict[str, Callable[[Model, list[int]], Any]] = {
    "the answer": lambda model, ids: headwise.explain(model, ids, wrong=5, draws=19).to_json(),
    "a head": lambda model, ids: headwise.explain(model, ids, head="L2H1", draws=19).to_json(),
    "a row in the middle": lambda model, ids: headwise.explain(
        model, ids, head="L2H1", query=len(ids) // 2, draws=19
    ).to_json(),
    "a circuit": lambda model, ids: headwise.trace(model, ids, answer=5, wrong=7).to_json(),
    "a capture": lambda model, ids: (
        model.capture(ids, heads="L3H1", queries=-1, want=("pattern",), logits="last").held
    ),
}


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


def test_some_rows_at_a_time_give_the_same(variant: str) -> None:
    model, ids = tiny(variant, torch.float64), prompts_of(50)[0]
    usual = {name: ask(model, ids) for name, ask in ASKED.items()}
    with rows_at_a_time(512):
        for name, ask in ASKED.items():
            assert_alike(ask(model, ids), usual[name], 1e-6, name)


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


@pytest.mark.parametrize("asked", ["the answer", "a circuit", "a capture"])
@pytest.mark.parametrize("name", ["llama", pytest.param("gemma2", marks=pytest.mark.slow)])
def test_nothing_is_as_large_as_tokens_squared(name: str, asked: str) -> None:
    sizes = {}
    for length in (269, 541):  # prime
        model = tiny(name, settings={"max_position_embeddings": 1024})
        with rows_at_a_time(1 << 14), Largest(length) as seen:
            ASKED[asked](model, prompts_of(length)[0])
        assert seen.squares == set()
        sizes[length] = seen.bytes
    first, second = sizes.values()
    if asked != "a circuit":  # which may have more firings in the longer prompt
        assert second <= (541 / 269) ** 1.1 * first
