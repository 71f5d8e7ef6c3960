"""Long prompts: the same numbers some rows at a time, and nothing of the size tokens × tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from alike import assert_alike
from long_prompts import Largest, rows_at_a_time
from tiny import prompts_of, tiny

import headwise
from headwise.model.model import Model

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
    "all queries and keys": lambda model, ids: model.capture(ids, logits="last").held,
    "who reads a token": lambda model, ids: model.capture(ids, keys=3, want=("scores", "pattern")).held,
}


def test_some_rows_at_a_time_give_the_same(variant: str) -> None:
    model, ids = tiny(variant, torch.float64), prompts_of(50)[0]
    usual = {name: ask(model, ids) for name, ask in ASKED.items()}
    with rows_at_a_time(512):
        for name, ask in ASKED.items():
            assert_alike(ask(model, ids), usual[name], 1e-6, name)


@pytest.mark.parametrize(
    "asked", ["the answer", "a circuit", "a capture", "all queries and keys", "who reads a token"]
)
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
