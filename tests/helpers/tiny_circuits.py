"""Circuits of tiny random models that are large enough to test something."""

from __future__ import annotations

from typing import Any

from tiny import prompts_of

import headwise
from headwise.circuits.circuit import Circuit


def two_answers(model: headwise.Model, prompt: list[int]) -> tuple[int, int]:
    """The likeliest and the unlikeliest next token."""
    logits = model.capture([prompt], heads=[], want=(), logits="last").logits
    assert logits is not None
    order = logits[0, 0].argsort(descending=True).tolist()
    return order[0], order[-1]


def largest_circuit(model: headwise.Model, **request: Any) -> Circuit:
    """Of some random prompts, the circuit with the most edges."""
    prompts = [prompts_of(10, seed=seed)[0] for seed in range(6)]
    answers = [two_answers(model, prompt) for prompt in prompts]
    circuits = headwise.trace(
        model, prompts, answer=[a for a, _ in answers], wrong=[w for _, w in answers], **request
    )
    return max(circuits, key=lambda circuit: len(circuit.edges))
