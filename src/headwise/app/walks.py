"""A circuit as far as it was opened by clicks: in the app, and the same in Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from headwise.circuits.circuit import Circuit
from headwise.circuits.walk import Steps, walk
from headwise.model.model import Model
from headwise.tokens import Prompt
from headwise.why.question import PromptReading, find_answer


@torch.no_grad()
def walked(read: PromptReading, steps: Steps, answer: str | None, wrong: str | None) -> Circuit:
    """What some steps have opened in a prompt that was read."""
    found = find_answer(read.up.stream.model, read.token_ids, read.logits, answer, wrong)
    circuit = walk(
        read.up, read.logits, steps, answer=found.token, wrong=found.wrong if found.compared else None
    )
    return replace(circuit, prompt=read.prompt)


def walk_circuit(
    model: Model,
    prompt: Prompt,
    *,
    opened: Iterable[str] = (),
    root: str | None = None,
    answer: str | None = None,
    wrong: str | None = None,
) -> Circuit:
    """The circuit's screen in Python: the boxes that were opened, and the cell where it begins (None: the answer)."""
    return walked(PromptReading.of(model, prompt), Steps.parse(opened, root), answer, wrong)
