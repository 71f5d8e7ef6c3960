"""Signals with the values of another prompt: its own change nothing, and all of them are its query or its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny
from tiny_circuits import largest_circuit

import headwise
from headwise.circuits.counterfactual import outcomes
from headwise.circuits.interventions import intervene
from headwise.circuits.patching import OtherRun, aligned
from headwise.model.model import Model
from headwise.model.stream import split
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Head, Side, Signal

HERE, THERE, LONGER = prompts_of(8, 8, 11, seed=2)
CELL = Cell(Head(2, 1), 6, 4)


def writes(model: Model, prompt: list[int], start: int = 0) -> PromptWrites:
    return PromptWrites(split(model, prompt, start=start), 0)


def every_signal(up: PromptWrites, side: Side) -> list[Signal]:
    """All that a side of the cell's head reads: every component below it, in all channels."""
    layer, channels = CELL.head.layer, tuple(range(up.stream.model.d_head))
    n = up.n_carried(layer) + up.n_static(layer)
    made = [up.component(layer, i) for i in range(n)]
    if up.stream.shares(CELL.head, side, 0).components[-1].kind == "offset":
        made.append(up.component(layer, n))
    return [Signal(CELL.head, side, one, channels) for one in made]


LEARNED = ("gpt2", "opt")
"""Their positions are learned, so that a prompt begins at 0."""


@pytest.mark.parametrize("side", ["query", "key"])
@pytest.mark.parametrize(
    ("name", "start"),
    [(name, start) for name in VARIANTS for start in (0, 20) if start == 0 or name not in LEARNED],
)
def test_all_signals_of_another_prompt_are_its_query_or_keys(name: str, start: int, side: Side) -> None:
    """The slow obvious way: the row of this head with the other prompt's query, or keys, as it captured them."""
    model = tiny(name, torch.float64)
    up, other = writes(model, HERE, start), writes(model, THERE, start)
    removed = OtherRun(other, aligned(8, 8)).difference(up, CELL, every_signal(up, side))
    got = model.edit(HERE, removed.edits(), heads=[CELL.head], queries=CELL.query, start=start).pattern[
        0, 0, 0
    ]
    layer, index, row = CELL.head.layer, CELL.head.index, CELL.query
    q, k = up.q[layer, index, row], up.k[layer, index // up.group]
    q = other.q[layer, index, row] if side == "query" else q
    k = other.k[layer, index // up.group] if side == "key" else k
    logits = k @ q * up.scale[layer]
    logits = logits if up.cap is None else up.cap * torch.tanh(logits / up.cap)
    expected = logits.masked_fill(~up.visible(layer)[row], float("-inf")).softmax(-1)
    assert (got - expected).abs().max() < 1e-8
    assert removed.predicted(up) == pytest.approx(float(expected[CELL.key]), abs=1e-8)


@pytest.mark.parametrize("name", ["llama-yarn", "qwen3", "gpt_neox"])
def test_a_value_from_another_position_is_turned_to_where_it_is_read(name: str) -> None:
    """The same prompt, three positions later and behind nothing: every aligned signal has the value it had."""
    model = tiny(name, torch.float64)
    up, later = writes(model, HERE), writes(model, HERE, start=3)
    for side in ("query", "key"):
        signals = every_signal(up, side)[-3:]
        removed = OtherRun(later, aligned(8, 8)).difference(up, CELL, signals)
        own = OtherRun(up, aligned(8, 8)).difference(up, CELL, signals)
        for one in (removed, own):
            left = one.query if side == "query" else one.key
            assert left is not None
            assert left.abs().max() < 1e-5  # transformers' tables of rotations are float32


def test_keys_that_are_aligned_with_nothing_keep_what_they_hold() -> None:
    model = tiny("llama", torch.float64)
    up, other = writes(model, HERE), writes(model, LONGER)
    places = aligned(8, 11, {6: 9, 4: 7})
    signal = Signal(CELL.head, "key", up.component(2, up.n_carried(2)), tuple(range(8)))
    removed = OtherRun(other, places).difference(up, CELL, [signal])
    assert removed.key is not None
    assert removed.key.any(-1).nonzero().flatten().tolist() == [4, 6]


def test_edges_are_patched_against_unused_channels() -> None:
    model = tiny("llama-biased", torch.float64)
    circuit = largest_circuit(model)
    ids = list(circuit.token_ids)
    edge = max((e for e in circuit.edges if e.channels), key=lambda e: e.weight)
    (same,) = intervene(model, circuit, [[edge]], action="patch", source=ids, draws=2)
    assert same.edited.lead == pytest.approx(same.clean.lead, abs=1e-9)
    other = prompts_of(10, seed=77)[0]
    (effect,) = intervene(model, circuit, [[edge]], action="patch", source=other, draws=2)
    assert effect.action == "patch" and len(effect.controls) == 2
    up = writes(model, ids)
    source = OtherRun(writes(model, other), aligned(10, 10))
    cell = circuit.node(edge.target).cell
    removed = source.difference(up, cell, [circuit.signal(edge)])
    assert effect.edited.attention == pytest.approx(removed.predicted(up), abs=1e-9)
    (seen,) = outcomes(model, ids, [removed.edits()], circuit.answer_ids, [cell])
    assert effect.edited.lead == pytest.approx(seen.lead, abs=1e-9)
    (wide,) = intervene(model, circuit, [[edge]], action="patch", source=other, scope="global", draws=1)
    assert wide.edited.lead != pytest.approx(wide.clean.lead, abs=1e-9)


@pytest.mark.parametrize(
    ("align", "message"),
    [
        (
            None,
            "the prompt has 8 tokens and the other one 11: say with align= which positions belong together",
        ),
        ({}, "align={} names no positions"),
        ([(1, 2)], r"align=\[\(1, 2\)\] names no positions: give a mapping"),
        ({8: 1}, "aligned position 8 is outside prompt 0, which has 8 tokens"),
        ({1: 11}, "the other prompt's position 11 is outside prompt 0, which has 11 tokens"),
        ({1.5: 1}, "aligned position 1.5 is not a whole number"),
        ({7: 1, -1: 2}, "position 7 is aligned twice: give each position once"),
    ],
)
def test_positions_that_do_not_fit_are_one_line(align: Any, message: str) -> None:
    with pytest.raises(headwise.HeadwiseError, match=message):
        aligned(8, 11, align)


@pytest.mark.parametrize(
    ("align", "message"),
    [
        ({4: 7}, r"the query of L2H1@6<-4 is at position 6, which is aligned with none"),
        ({6: 9}, r"the key of L2H1@6<-4 is at position 4, which is aligned with none"),
        ({6: 9, 4: 7}, r"what L1H0 reads for L2H1 is at position 3, which is aligned with none"),
    ],
)
def test_what_is_patched_must_be_aligned(align: Mapping[int, int], message: str) -> None:
    model = tiny("llama", torch.float64)
    up, other = writes(model, HERE), writes(model, LONGER)
    component = up.component(2, (1 * model.n_heads) * 8 + 3)
    signal = Signal(CELL.head, "query", component, (0, 1))
    with pytest.raises(headwise.HeadwiseError, match=message):
        OtherRun(other, aligned(8, 11, align)).difference(up, CELL, [signal])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"action": "patch"}, "patch takes values from another prompt: give it with source="),
        ({"source": [1, 2]}, "source= is used only with the action 'patch', not with 'remove': leave it out"),
        ({"align": {1: 1}}, "align= is used only with the action 'patch'"),
        ({"action": "swap"}, "action 'swap' is not an action: write 'remove', 'boost' or 'patch'"),
    ],
)
def test_another_prompt_is_given_only_to_patch_from(request_: dict[str, Any], message: str) -> None:
    model = tiny("llama", torch.float64)
    circuit = largest_circuit(model)
    edge = next(e for e in circuit.edges if e.channels)
    with pytest.raises(headwise.HeadwiseError, match=message):
        intervene(model, circuit, [[edge]], draws=1, **request_)
