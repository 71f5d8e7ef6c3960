"""What studies and the app ask of long prompts: the same some rows at a time, and nothing as large as their square."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from alike import assert_alike
from long_prompts import Largest, rows_at_a_time
from tiny import prompts_of, tiny

import headwise
from headwise.app.patterns import columns_of, glance, pattern_of
from headwise.bases.moments import collect_moments
from headwise.circuits.faithfulness import faithfulness
from headwise.model.model import Model
from headwise.scale.work import Chunk
from headwise.sinks.find import find_parking, on_sinks, tokens_received
from headwise.sinks.signals import KINDS, _ChooseJob
from headwise.sparsity.cells import PromptCell, split_cells
from headwise.types import Cell, Head
from headwise.why.question import PromptReading, ask, find_answer

THRESHOLD = 0.01
"""Low enough that random models have sinks."""


def _parking(model: Model, ids: list[int]) -> Any:
    found = find_parking(model, [ids], threshold=THRESHOLD)
    return [found.sinks[0], found.received[0].nan_to_num(-1.0), found.attention.nan_to_num(-1.0)]


def _firings(model: Model, ids: list[int]) -> Any:
    job = _ChooseJob((Head(2, 1), Head(3, 0)), KINDS, 0.0, 0, frequent=(ids[4], ids[9]))
    return [str(one) for one in job.make(model, Chunk(0, ((0, ids, (0, 2)),)), lambda _: None)]


def _glance(model: Model, ids: list[int]) -> Any:
    read = PromptReading.of(model, ids)
    answer = find_answer(model, read.token_ids, read.logits, None, None)
    made = glance(read, answer, ask(model, read.up, read.tokens, answer, None, None, None), side=10)
    return [made.thumbs, made.highest, made.entropy, made.resting, columns_of(read, 3)]


def _ablated(model: Model, ids: list[int]) -> Any:
    circuits = (headwise.trace(model, ids, answer=answer, wrong=7) for answer in range(8, 40))
    found = next(one for one in circuits if any(node.key <= node.query for node in one.causal().heads))
    return vars(faithfulness(model, found, draws=1))


def _sparsity(model: Model, ids: list[int]) -> Any:
    cells = [PromptCell(0, Cell(Head(2, 1), query, 1)) for query in (9, len(ids) - 1)]
    (found,) = split_cells(model, [ids], cells, rotations=1).values()
    return [found.attention, found.relative, found.error]


ASKED: dict[str, Callable[[Model, list[int]], Any]] = {
    "sinks": _parking,
    "firings on sinks": _firings,
    "moments": lambda model, ids: vars(collect_moments(model, [ids])),
    "cells over channels": _sparsity,
    "all heads at a glance": _glance,
    "a circuit ablated": _ablated,
}


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_some_rows_at_a_time_give_the_same(name: str) -> None:
    model, ids = tiny(name, torch.float64), prompts_of(50)[0]
    usual = {what: asked(model, ids) for what, asked in ASKED.items()}
    with rows_at_a_time(512):
        for what, asked in ASKED.items():
            assert_alike(asked(model, ids), usual[what], 1e-5, what)


@pytest.mark.parametrize("what", ASKED)
def test_nothing_is_as_large_as_tokens_squared(what: str) -> None:
    length = 269  # prime
    model = tiny("llama", settings={"max_position_embeddings": 1024})
    with rows_at_a_time(1 << 14), Largest(length) as seen:
        ASKED[what](model, prompts_of(length)[0])
    assert seen.squares == set()


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_sinks_of_a_long_prompt_are_those_of_its_whole_patterns(name: str) -> None:
    model, ids = tiny(name), prompts_of(40)[0]
    got = model.capture([ids], want=("pattern",))
    pattern, visible = got.pattern[0], got.visible[0]
    with rows_at_a_time(512):
        found = find_parking(model, [ids], threshold=THRESHOLD)
    received = tokens_received(pattern, visible)
    torch.testing.assert_close(found.received[0], received, atol=1e-6, rtol=1e-5, equal_nan=True)
    assert found.sinks[0] and found.sinks[0] == tuple((received >= THRESHOLD).nonzero()[:, 0].tolist())
    wanted = on_sinks(pattern, visible, found.sinks[0])
    torch.testing.assert_close(found.attention[0].flatten(), wanted, atol=1e-6, rtol=1e-5, equal_nan=True)


def test_a_pattern_is_packed_row_by_row() -> None:
    model, ids = tiny("llama"), prompts_of(40)[0]
    read = PromptReading.of(model, ids)
    with rows_at_a_time(512):
        packed = pattern_of(read, Head(2, 3))
    whole = read.up.stream.whole_pattern("L2H3")
    half = whole[torch.ones(40, 40, dtype=torch.bool).tril()]
    assert packed.tolist() == (half.double() * 65535).round().int().tolist()
