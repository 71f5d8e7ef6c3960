"""Circuits whose truth is known: planted ones with an MLP in their path, and a small trained model by brute force."""

from __future__ import annotations

import pytest
from planted_mlp import FAMILIES
from toy_answers import answer_lines, small_model

import headwise
from truth import Score, auc, carried_by, edges_of, forced, planted_circuits, scored, without


@pytest.mark.parametrize("family", FAMILIES)
def test_without_distractors_the_planted_circuit_is_found_and_nothing_else(family: str) -> None:
    circuits = list(planted_circuits(family, 0.0, seeds=1, prompts=3))
    assert len(circuits) == 6
    for _, made, circuit in circuits:
        assert edges_of(circuit.edges) == made.edges
        assert edges_of(circuit.accounts) == made.accounts


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("noise", "whole", "strong"), [(0.1, 0.8, 0.9), (0.3, 0.5, 0.8)])
@pytest.mark.slow
def test_among_distractors_every_planted_edge_is_found(
    family: str, noise: float, whole: float, strong: float
) -> None:
    """What is found beside them are writers that bring some of the answer, and what makes those attend."""
    total, heavy, n = Score(), Score(), 0
    for model, made, circuit in planted_circuits(family, noise, seeds=6, prompts=2):
        n += 1
        truth = made.edges | made.accounts
        total += scored(edges_of((*circuit.edges, *circuit.accounts)), truth)
        part = carried_by(circuit, 0.1)
        heavy += scored(edges_of((*part.edges, *part.accounts)), truth)
        # The truth is true: without the head that feeds the MLP the planted attention is gone.
        clean, (edited,) = without(model, made, [made.brings])
        assert clean.attention > 0.5 and edited.attention < 0.2
    assert n == 24
    assert total.recall == 1.0 and total.precision > whole
    assert heavy.recall == 1.0 and heavy.precision > strong


@pytest.mark.parametrize("family", FAMILIES)
def test_where_mlps_are_leaves_what_the_mlp_read_is_missed(family: str) -> None:
    for model, made, _ in planted_circuits(family, 0.1, seeds=1, prompts=1):
        leaves = headwise.trace(model, [made.prompt], answer=made.answer, wrong=made.wrong, mlp_depth=0)[0]
        assert made.edges <= edges_of(leaves.edges)
        assert str(made.brings) not in leaves.by_id


@pytest.mark.slow
def test_in_a_trained_model_found_writers_are_those_whose_removal_takes_most() -> None:
    """Every writer below every firing is taken away in a pass of its own: an answer that needs no search."""
    model = small_model()
    necessary, ranks, first = Score(), [], []
    for line in answer_lines(3):
        circuit = headwise.trace(model, line["prompt"], answer=line["answer"], wrong=line["wrong"])
        lost = forced(model, circuit)
        found = {edge for edge in edges_of(circuit.edges) if edge in lost}
        necessary += scored(found, {edge for edge, one in lost.items() if one.share >= 0.5})
        for side in {edge[1:] for edge in found}:
            here = {edge: one.nats for edge, one in lost.items() if edge[1:] == side}
            ranks.append(
                auc(*([n for e, n in here.items() if (e in found) == kind] for kind in (True, False)))
            )
            first.append(max(here, key=lambda e: here[e]) in found)
    assert necessary.right and not necessary.missed
    assert len(ranks) > 20 and sum(ranks) / len(ranks) > 0.95
    assert sum(first) / len(first) > 0.9
