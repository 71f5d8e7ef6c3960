"""Going on through MLPs: how firings read them, which writers are followed, and how far."""

from __future__ import annotations

import pytest
import torch
from tiny import prompts_of, tiny
from torch import Tensor

import headwise
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.tracing.causes import path_gradient
from headwise.tracing.mlps import read_mlp
from headwise.tracing.search import LayerSearch, Rules, SideSignals
from headwise.tracing.seeds import chosen_seeds, probability_seeds
from headwise.tracing.through import Follower, MLPPart, MLPRules, Unit
from headwise.tracing.tracer import Traced, cell_of, trace_down
from headwise.tracing.vectors import signal_vectors
from headwise.tracing.writes import PromptWrites
from headwise.types import Cell, Component, Head, Side

RULES = Rules(mlps=MLPRules())


def _up(model: Model) -> PromptWrites:
    return PromptWrites(model.split(prompts_of(9, 7)), 1)


def _wrote(up: PromptWrites, layer: int, position: int) -> Tensor:
    written = up.stream.layers[layer].mlp
    assert written is not None
    return written[up.prompt, up.span][position]


def _at_the_key(up: PromptWrites, signals: SideSignals, layer: int) -> float:
    """What an MLP's signals bring to the attention at the key itself, from the vectors that a removal takes away."""
    cell = signals.cell
    head, d, s = cell
    k = up.k[head.layer, head.index // up.group]
    q = up.q[head.layer, head.index, d]
    visible = up.visible(head.layer)[d][None]
    logits = (k @ q)[None] * up.scale[head.layer] * visible
    g = path_gradient(logits, visible, torch.tensor([s]), cap=up.cap, rule="gauss")[0]
    (one,) = [r for r in signals.by_writer() if r.signal.writer == Component("mlp", layer)]
    gone = signal_vectors(up, one.signal, d)[s]
    return float(gone @ q * up.scale[head.layer] * g[s]) * one.drop / one.attribution


def test_a_firing_reads_an_mlp_by_what_its_removal_took(variant: str) -> None:
    model = tiny(variant, torch.float64)
    up, seen = _up(model), 0
    cells = [
        Cell(Head(3, h), d, s)
        for h in range(4)
        for d in (4, 6)
        for s in range(d + 1)
        if bool(up.visible(3)[d, s])
    ]
    rules = Rules(mlps=MLPRules(), tau=0.02)
    for sides in LayerSearch(up.bases, 3, rules, up.dtype).run(up, cells):
        for side, signals in sides.items():
            taken = {
                r.signal.writer.layer: r.drop for r in signals.by_writer() if r.signal.writer.kind == "mlp"
            }
            for layer, vector in signals.mlps:
                found = float(vector @ _wrote(up, layer, signals.cell.at(side)))
                expected = taken[layer] if side == "query" else _at_the_key(up, signals, layer)
                assert found == pytest.approx(expected, rel=1e-8, abs=1e-10)
                seen += 1
    assert seen > 3


def test_nothing_is_read_where_mlps_are_leaves() -> None:
    model = tiny("llama", torch.float64)
    up = _up(model)
    for rules in (Rules(), Rules.published()):
        for sides in LayerSearch(up.bases, 3, rules, up.dtype).run(up, [Cell(Head(3, 0), 6, 2)]):
            assert all(signals.mlps == () for signals in sides.values())


@pytest.mark.parametrize("how", ["linear", "probability"])
def test_the_answer_reads_an_mlp_by_its_weight(variant: str, how: str) -> None:
    model = tiny(variant, torch.float64)
    up = _up(model)
    order = model.capture(prompts_of(9, 7), logits="last").logits[1, 0].argsort(descending=True).tolist()
    seeds, _ = chosen_seeds(up, order[0], order[-1]) if how == "linear" else probability_seeds(up, order[:3])
    assert seeds
    for seed in seeds:
        assert (seed.reading is not None) == (seed.component.kind == "mlp" and seed.weight > 0)
        if seed.reading is not None:
            found = float(seed.reading @ _wrote(up, seed.component.layer, 6))
            assert found == pytest.approx(seed.weight, rel=1e-8)


def test_the_strongest_writers_are_followed_until_they_cover_enough(variant: str) -> None:
    model = tiny(variant, torch.float64)
    up = _up(model)
    vector = torch.randn(24, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for rules in (
        MLPRules(),
        MLPRules(cover=0.3),
        MLPRules(least=0.15),
        MLPRules(cover=1, least=0.001, floor=1e-6),
        MLPRules(cover=1, least=0.001, floor=0.2),
    ):
        follower = Follower(up, rules)
        follower.read(2, 5, "key", "attention", vector)
        parts = list(follower.follow(2))
        ((_, shares),) = read_mlp(up, 2, [5], vector[None]).chunks([0])
        helping = sorted((x for x in shares[0].tolist() if x > 0), reverse=True)
        expected, held = [], 0.0
        for share in helping:
            if held >= rules.cover * sum(helping) or share < max(rules.least * sum(helping), rules.floor):
                break
            expected.append(share)
            held += share
        assert [part.weight for part in parts] == pytest.approx(expected)
        assert [part.helping for part in parts] == pytest.approx([sum(helping)] * len(parts))
        assert {(part.mlp, part.position, part.side, part.unit) for part in parts} <= {
            (Component("mlp", 2), 5, "key", "attention")
        }
        assert list(follower.follow(2)) == []


def test_readers_of_one_mlp_are_one_reading() -> None:
    """Shares are linear in the reading, so an account of the sum is the sum of the accounts."""
    model = tiny("gemma2", torch.float64)
    up = _up(model)
    a, b = torch.randn(2, 24, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    every = MLPRules(cover=1, least=1e-9, floor=1e-9)

    def parts(*vectors: Tensor) -> dict[Component, float]:
        follower = Follower(up, every)
        for vector in vectors:
            follower.read(1, 4, "query", "answer", vector)
        return {part.writer: part.weight for part in follower.follow(1)}

    assert parts(a, b) == pytest.approx(parts(a + b))
    assert parts(a) != pytest.approx(parts(a + b))


def test_lower_mlps_are_followed_as_deep_as_asked() -> None:
    model = tiny("llama", torch.float64)
    up = _up(model)
    vector = torch.randn(24, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def followed(depth: int) -> list[MLPPart]:
        follower = Follower(up, MLPRules(least=0.001, cover=1, floor=1e-6, depth=depth))
        follower.read(3, 6, "query", "answer", vector)
        return [part for layer in (3, 2, 1, 0) for part in follower.follow(layer)]

    layers = [{part.mlp.layer for part in followed(depth)} for depth in range(5)]
    assert layers[0] == set()
    assert layers[1] == {3}
    assert layers[2] == {3} | {p.writer.layer for p in followed(1) if p.writer.kind == "mlp"}
    assert layers[1] < layers[2] <= layers[3] <= layers[4]
    deep = followed(4)
    for part in deep:
        if part.writer.kind == "mlp":
            # What was followed below it is a reading with the same product as the part.
            below = [p.weight for p in deep if p.mlp == part.writer]
            assert below


def test_heads_found_through_mlps_are_traced_like_others(variant: str) -> None:
    model = tiny(variant, torch.float64)
    up = _up(model)
    logits = model.capture(prompts_of(9, 7), logits="last").logits[1, 0]
    best, worst = int(logits.argmax()), int(logits.argmin())
    seeds, _ = chosen_seeds(up, best, worst)

    def traced(rules: Rules) -> Traced:
        return trace_down(model, [up], [seeds], rules)[0]

    leaves, through = traced(Rules()), traced(RULES)
    assert leaves.parts == []
    assert through.parts
    for firing, sides in leaves.signals.items():
        again = through.signals[firing]
        for side, signals in sides.items():
            assert again[side].signals == signals.signals
            assert again[side].after == pytest.approx(signals.after)
    for part in through.parts:
        cell = cell_of(part.writer, part.position)
        if cell is None:
            continue
        attention = through.attention[cell]
        assert attention == pytest.approx(up.attention_at([cell])[0])
        keys = int(up.visible(cell.head.layer)[cell.query].sum())
        expands = cell.head.layer > 0 and cell.query > 0 and attention >= RULES.least(keys)
        assert (cell in through.signals) == (expands and through.influence[cell] >= RULES.influence)


@pytest.mark.parametrize("least", [0.0, 0.02, 0.3])
def test_influence_is_what_every_way_to_the_answer_brings(variant: str, least: float) -> None:
    """Every way from a firing up to the answer, one by one: a part at each step, multiplied."""
    model = tiny(variant, torch.float64)
    up = _up(model)
    logits = model.capture(prompts_of(9, 7), logits="last").logits[1, 0]
    seeds, _ = chosen_seeds(up, int(logits.argmax()), int(logits.argmin()))
    rules = Rules(mlps=MLPRules(depth=9), influence=least)
    found = trace_down(model, [up], [seeds], rules)[0]
    whole = sum(seed.weight for seed in seeds)
    brought: dict[object, float] = {}

    def walk(writer: Component, at: int, reader: tuple[Side, Unit], part: float) -> None:
        cell = cell_of(writer, at)
        node = cell if cell is not None else (writer, at, *reader)
        brought[node] = brought.get(node, 0.0) + part
        if cell is not None:
            for side, signals in found.signals.get(cell, {}).items():
                read = {Component("mlp", layer) for layer, _ in signals.mlps}
                for one in signals.by_writer():
                    if one.signal.writer.kind != "mlp" or one.signal.writer in read:
                        below = part * max(one.drop, 0.0) / signals.attention
                        walk(one.signal.writer, cell.at(side), (side, "attention"), below)
        elif writer.kind == "mlp":
            for one in found.parts:
                if (one.mlp, one.position, one.side, one.unit) == (writer, at, *reader):
                    walk(one.writer, at, reader, part * one.weight / one.helping)

    for seed in seeds:
        walk(seed.component, up.tokens - 1, ("query", "answer"), seed.weight / whole)
    assert found.influence == pytest.approx({f: brought[f] for f in found.influence}, rel=1e-9)
    assert set(found.signals) <= {f for f, part in found.influence.items() if part >= least}
    followed = {(p.mlp, p.position, p.side, p.unit) for p in found.parts}
    assert all(brought[mlp] >= least * (1 - 1e-9) for mlp in followed)


def test_a_head_that_carries_next_to_nothing_is_shown_and_not_asked_about() -> None:
    model = tiny("llama", torch.float64)
    whole, cut = (headwise.trace(model, prompts_of(9, 7)[0], influence=least) for least in (0, 0.2))
    assert len(cut.counterfactuals) < len(whole.counterfactuals)
    assert {edge.target for edge in cut.edges} < {edge.target for edge in whole.edges}
    assert not any("of the answer passes" in note for note in whole.notes)
    assert any("less than 20% of the answer passes" in note for note in cut.notes)
    with pytest.raises(HeadwiseError, match=r"influence=1.5 is not a share: give a number from 0 to 1"):
        headwise.trace(model, prompts_of(9, 7)[0], influence=1.5)
