"""Interventions: local edits touch one read, global edits the stream, controls are comparable, ablations exact."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch
from long_prompts import rows_at_a_time
from tiny import prompts_of, tiny
from tiny_circuits import largest_circuit

from headwise.circuits.counterfactual import outcomes
from headwise.circuits.faithfulness import _ablation, _matched, _random_like, faithfulness
from headwise.circuits.interventions import choose_edges, intervene
from headwise.circuits.resampling import OtherFirings, reordered, resample
from headwise.errors import HeadwiseError
from headwise.model.edits import AddToStream, SetOutput
from headwise.model.outputs import head_outputs
from headwise.types import Cell, Head


def test_removing_all_signals_of_a_side_is_the_traced_counterfactual(variant: str) -> None:
    model = tiny(variant)
    circuit = largest_circuit(model)
    c = max(circuit.counterfactuals, key=lambda one: one.attention - one.predicted)
    edges = circuit.into(c.target, c.side)  # pyright: ignore[reportArgumentType]
    (effect,) = intervene(model, circuit, [edges], draws=2)
    assert effect.clean.cells[0] == pytest.approx(c.attention, abs=1e-5)
    assert effect.edited.cells[0] == pytest.approx(c.predicted, abs=1e-5)
    assert len(effect.controls) == 2
    (boosted,) = intervene(model, circuit, [edges], action="boost", draws=1)
    assert boosted.edited.cells[0] > effect.edited.cells[0]


def test_a_circuit_is_tested_where_its_prompt_began() -> None:
    model = tiny("llama-biased", torch.float64)
    circuit = largest_circuit(model, start=20, verify=True)
    assert circuit.start == 20
    assert all(abs(c.predicted - (c.edited or 0.0)) < 1e-9 for c in circuit.counterfactuals)
    c = max(circuit.counterfactuals, key=lambda one: one.attention - one.predicted)
    edges = circuit.into(c.target, c.side)  # pyright: ignore[reportArgumentType]
    (effect,) = intervene(model, circuit, [edges], draws=1)
    assert effect.edited.cells[0] == pytest.approx(c.predicted, abs=1e-9)
    # the rotations are those of position 20: with those of position 0 another signal would leave
    assert faithfulness(model, circuit, draws=1).clean == pytest.approx(effect.clean.lead, abs=1e-9)


def test_a_global_edit_removes_the_signal_from_the_stream(variant: str) -> None:
    """With the norm's scalar as it was, the head that reads the edited stream sees the traced counterfactual.

    Norms react to the edit, so the attention differs from the local one by little where the edit is small.
    """
    model = tiny(variant, torch.float64)
    circuit = largest_circuit(model)
    edge = max((e for e in circuit.edges if e.channels), key=lambda e: e.weight)
    effects = [intervene(model, circuit, [[edge]], scope=scope, draws=1)[0] for scope in ("local", "global")]
    assert effects[0].clean.attention == pytest.approx(effects[1].clean.attention, abs=1e-9)
    assert effects[0].norm_ratio == pytest.approx(effects[1].norm_ratio, abs=1e-12)
    assert effects[1].cosine < 1
    # both push the attention the same way
    assert effects[0].attention_change * effects[1].attention_change > 0


def test_edits_of_the_stream_are_seen_by_everything_above(variant: str) -> None:
    model = tiny(variant, torch.float64)
    prompt = prompts_of(7)[0]
    stream = model.split([prompt])
    target = prompts_of(7, seed=9)[0]
    other = model.split([target])
    # replacing the whole stream before layer 2 by another prompt's makes the rest of the pass that prompt's
    delta = (other.before(2) - stream.before(2))[0]
    add = AddToStream(layer=2, prompt=0, positions=range(7), value=delta)
    run = model.edit([prompt] * 2, [add], heads=["L3H1"])
    expected = model.capture([target, prompt], heads=["L3H1"], want=("pattern",), logits="last")
    assert expected.logits is not None and expected.pattern is not None
    assert (run.logits - expected.logits).abs().max() < 1e-8
    assert (run.pattern[:, 0] - expected.pattern[:, 0]).abs().max() < 1e-9


def test_ablating_nothing_changes_nothing_and_ablating_all_equals_uniform_values(variant: str) -> None:
    model = tiny(variant, torch.float64)
    circuit = largest_circuit(model)
    got = faithfulness(model, circuit, draws=3)
    logits = model.capture([list(circuit.token_ids)], heads=[], want=(), logits="last").logits
    assert logits is not None
    clean = float(logits[0, 0, circuit.answer_id] - logits[0, 0, circuit.wrong_id])
    assert got.clean == pytest.approx(clean, abs=1e-9)
    assert got.firings == len([n for n in circuit.causal().heads if n.key <= n.query])
    assert len({got.none, got.outside_ablated, got.inside_ablated, got.clean}) == 4
    assert len(got.random_inside_ablated) == len(got.matched_inside_ablated) == 3
    worse = sum(one <= got.inside_ablated for one in got.matched_inside_ablated)
    if got.clean >= 0:
        assert got.necessary.p == (1 + worse) / 4
    kept = sum(one >= got.resampled_outside for one in got.matched_resampled_outside)
    if got.clean >= 0:
        assert got.sufficient.p == (1 + kept) / 4
    # three draws say nothing
    assert not any(one.supported for one in (got.necessary, got.sufficient, got.sufficient_by_means))


def test_a_firing_that_is_resampled_carries_what_it_carries_in_the_other_prompt(variant: str) -> None:
    """With all outside nothing taken over, the heads write what they write there; from the same prompt, what they
    wrote anyway; and some firings of a head change its output by the difference of what they carry."""
    model = tiny(variant, torch.float64)
    circuit = largest_circuit(model)
    ids, answer = list(circuit.token_ids), circuit.answer_ids
    (instead,) = reordered(ids, 1, 0)
    last, none = model.n_layers - 1, frozenset[Cell]()
    queries = [len(ids) - 1]
    same, other = (OtherFirings.of(model, one, queries) for one in (ids, instead))
    cells = frozenset({Cell(Head(last, 0), len(ids) - 1, 1), Cell(Head(last, 1), len(ids) - 1, 0)})
    here, there = (head_outputs(model, one, [f"L{last}H0", f"L{last}H1"])[0] for one in (ids, instead))
    own, whole, inside, outside = outcomes(
        model,
        ids,
        [
            [],
            [resample(none, same, outside=True)],
            [resample(cells, other, outside=False)],
            [resample(cells, same, outside=True)],
        ],
        answer,
    )
    assert whole.lead == pytest.approx(own.lead, abs=1e-8) == outside.lead
    edits = []
    for head, _, key in sorted(cells):
        carried = [
            one.rows[last, queries[0]][head.index, key] * one.values[last][0, head.index, key]
            for one in (same, other)
        ]
        value = here[head].clone()
        value[-1] += carried[1] - carried[0]
        edits.append(SetOutput(head=head, value=value))
    (patched,) = outcomes(model, ids, [edits], answer)
    assert inside.lead == pytest.approx(patched.lead, abs=1e-8)
    assert not torch.allclose(here[Head(last, 0)], there[Head(last, 0)])


def test_prompts_of_another_length_give_no_messages() -> None:
    model = tiny("llama")
    circuit = largest_circuit(model)
    for others, said in (
        ([[1, 2]], "others[0] has 2 tokens and the circuit's prompt"),
        ([], "leaves no prompt to take messages over from"),
    ):
        with pytest.raises(HeadwiseError, match=re.escape(said)):
            faithfulness(model, circuit, others=others, draws=1)


INSIDE = frozenset({Cell(Head(1, 2), 5, 3), Cell(Head(1, 0), 5, 1), Cell(Head(2, 3), 2, 2)})


def _by_row(cells: frozenset[Cell]) -> Counter[tuple[int, int]]:
    return Counter((cell.head.layer, cell.query) for cell in cells)


def test_random_circuits_have_the_same_size_in_each_layer_and_row() -> None:
    drawn = _random_like(INSIDE, 4, torch.Generator().manual_seed(0))
    assert _by_row(drawn) == _by_row(INSIDE)
    assert all(cell.key <= cell.query and cell.head.index < 4 for cell in drawn)


def test_matched_circuits_attend_as_much_and_are_as_large() -> None:
    generator = torch.Generator().manual_seed(0)
    pattern = torch.rand(3, 4, 6, 6, generator=generator).tril()
    pattern = pattern / pattern.sum(-1, keepdim=True)
    rows = {(layer, query): pattern[layer, :, query, : query + 1] for layer in range(3) for query in range(6)}
    drawn = _matched(INSIDE, rows, generator)
    assert _by_row(drawn) == _by_row(INSIDE)
    assert drawn != INSIDE and all(cell.key <= cell.query for cell in drawn)
    attention = [
        sum(float(pattern[c.head.layer, c.head.index, c.query, c.key]) for c in cells)
        for cells in (drawn, INSIDE)
    ]
    assert abs(attention[0] - attention[1]) < 0.15
    alone = frozenset({Cell(Head(0, 0), 0, 0)})
    assert _matched(alone, {(0, 0): torch.ones(1, 1)}, generator) == alone


@pytest.mark.parametrize("outside", [False, True])
def test_a_firing_that_is_ablated_carries_the_mean_value(variant: str, outside: bool) -> None:
    """Against the whole grid of every head, in a long prompt whose rows are worked on a few at a time."""
    model, ids = tiny(variant, torch.float64), prompts_of(20)[0]
    cells = frozenset({Cell(Head(1, 0), 19, 2), Cell(Head(1, 1), 7, 7), Cell(Head(1, 1), 8, 7)})
    call = model.split([ids]).layers[1].call
    shape = (1, 20, call.query.shape[1], call.value.shape[-1])
    clean = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gone = torch.full((call.query.shape[1], 20, 20), outside)
    for head, query, key in cells:
        gone[head.index, query, key] = not outside
    ((_, pattern, seen),) = call.in_rows()
    value = call.value.repeat_interleave(call.query.shape[1] // call.value.shape[1], 1)
    expected = clean.clone()
    for head, query, key in gone.nonzero().tolist():
        mean = value[0, head][seen[0, query]].mean(0)
        expected[0, query, head] -= pattern[0, head, query, key] * (value[0, head, key] - mean)
    with rows_at_a_time(200):
        assert len(list(call.in_rows())) > 3
        found = _ablation(cells, outside=outside).change(call, clean)
    assert torch.allclose(found, expected, atol=1e-9)
    other = _ablation(cells, outside=False).change(model.split([ids]).layers[2].call, clean)
    assert torch.equal(other, clean)  # no firing of that layer is meant


def test_edges_are_chosen_by_name_and_bad_names_are_one_line() -> None:
    circuit = largest_circuit(tiny("llama"))
    edge = next(e for e in circuit.edges if e.channels)
    assert edge in choose_edges(circuit, [f"{edge.source} -> {edge.target}"])
    assert choose_edges(circuit, [edge.id]) == [edge]
    assert set(choose_edges(circuit, [edge.target])) == {e for e in circuit.edges if e.target == edge.target}
    weights = [e.weight for e in choose_edges(circuit, top=4)]
    assert weights == sorted((e.weight for e in circuit.edges if e.channels), reverse=True)[:4]
    for bad in (["nobody -> nothing"], ["L1H1"]):
        with pytest.raises(HeadwiseError, match="is not an edge of this circuit"):
            choose_edges(circuit, bad)
    with pytest.raises(HeadwiseError, match="top 0 names no edges"):
        choose_edges(circuit, top=0)
    with pytest.raises(HeadwiseError, match="scope 'far' is not a scope"):
        intervene(tiny("llama"), circuit, [[edge]], scope="far")  # pyright: ignore[reportArgumentType]
