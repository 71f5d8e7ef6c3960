"""Some prompts traced as one batch: the job of a survey.

A chunk's numbers depend on its prompts alone: it is traced with one thread, in the batches that its prompts' lengths
give, whoever traces it and whenever.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwise.bases.singular import one_thread
from headwise.basis_names import BasisKind
from headwise.circuits.circuit import Circuit
from headwise.circuits.trace import trace
from headwise.errors import HeadwiseError
from headwise.progress import Tick
from headwise.scale.tables import pack, unpack
from headwise.scale.work import Chunk
from headwise.strings import printable, shortened
from headwise.survey.records import PromptRecord, record_tables
from headwise.survey.schema import COLUMNS
from headwise.tasks.answers.types import AnswerPrompt
from headwise.tokens import encode_one, shown

if TYPE_CHECKING:
    from headwise.model.model import Model

CHUNK = 32
"""Prompts traced together and kept together."""


@dataclass(frozen=True)
class TraceJob:
    """How every prompt is traced; what is made of a chunk is the three tables of its prompts."""

    mode: str = "exact"
    tau: float | None = None
    basis: BasisKind = "singular"

    def make(self, model: Model, chunk: Chunk[AnswerPrompt], tick: Tick, /) -> dict[str, pa.Table]:
        return record_tables(trace_chunk(model, chunk, self))

    def to_bytes(self, made: dict[str, pa.Table], /) -> bytes:
        return pack(made)

    def from_bytes(self, content: bytes, /) -> dict[str, pa.Table]:
        return unpack(content, COLUMNS)


def trace_chunk(model: Model, chunk: Chunk[AnswerPrompt], rules: TraceJob) -> list[PromptRecord]:
    """A record for every prompt, whatever becomes of it."""
    numbered = list(enumerate(chunk.items, chunk.start))
    with one_thread():
        try:
            found = circuits_of(model, chunk.items, rules)
        except Exception as error:
            # One prompt must not take the others with it, and its reason must be its own.
            if not isinstance(error, HeadwiseError):
                warn_of(error)
            return [_alone(model, number, prompt, rules) for number, prompt in numbered]
    return [_record(n, prompt, circuit) for (n, prompt), circuit in zip(numbered, found, strict=True)]


_warned = False


def warn_of(error: Exception) -> None:
    """Say once what made a batch fail: it may be a mistake in the program rather than in a prompt."""
    global _warned
    if not _warned:
        _warned = True
        told = printable(shortened(" ".join(str(error).split()), 200))
        warnings.warn(
            f"a batch of prompts could not be traced together ({type(error).__name__}: {told}): its prompts are traced "
            "one by one, and those that fail are recorded with their reasons",
            RuntimeWarning,
            stacklevel=2,
        )


def circuits_of(model: Model, prompts: Sequence[AnswerPrompt], rules: TraceJob) -> list[Circuit]:
    """Circuits of a few prompts; those with and those without a wrong answer are traced apart."""
    made: dict[int, Circuit] = {}
    for compared in (True, False):
        places = [i for i, p in enumerate(prompts) if (p.wrong_id is not None) == compared]
        if not places:
            continue
        wrong = [w for i in places if (w := prompts[i].wrong_id) is not None] if compared else None
        circuits = trace(
            model,
            [prompts[i].prompt for i in places],
            answer=[prompts[i].answer_id for i in places],
            wrong=wrong,
            mode=rules.mode,
            tau=rules.tau,
            basis=rules.basis,
            # The tables of a run hold signals; accounts through MLPs would only make it slower.
            mlp_depth=0,
        )
        made |= dict(zip(places, circuits, strict=True))
    return [made[i] for i in range(len(prompts))]


def _alone(model: Model, number: int, prompt: AnswerPrompt, rules: TraceJob) -> PromptRecord:
    try:
        return _record(number, prompt, circuits_of(model, [prompt], rules)[0])
    except Exception as error:
        told = isinstance(error, HeadwiseError)
        text = " ".join(str(error).split()).replace("prompt 0 ", "the prompt ", 1)
        reason = text if told else f"{type(error).__name__}: {text}"
    try:
        ids = encode_one(model.tokenizer, prompt.prompt)
    except HeadwiseError:
        ids = []  # what cannot be made into tokens has its reason in the record
    row = _row(number, prompt, ids, shown(model.tokenizer, ids))
    return PromptRecord(row | {"status": "failed", "reason": reason, "difference": None, "top": None})


def _record(number: int, prompt: AnswerPrompt, circuit: Circuit) -> PromptRecord:
    row = _row(number, prompt, circuit.token_ids, circuit.tokens)
    row |= {"difference": circuit.difference, "top": circuit.top, "reason": None}
    difference = circuit.difference
    assert difference is not None
    if not math.isfinite(difference):
        return PromptRecord(
            row | {"status": "failed", "reason": "the logits are not finite", "difference": None}
        )
    if difference <= 0:
        against = circuit.top if prompt.wrong is None else prompt.wrong
        return PromptRecord(row | {"status": "wrong", "reason": f"the model prefers {against!r}"})
    if not circuit.edges:
        reason = circuit.notes[-1] if circuit.notes else "no head carries the answer"
        return PromptRecord(row | {"status": "empty", "reason": reason})
    return PromptRecord(row | {"status": "traced"}, circuit)


def _row(number: int, prompt: AnswerPrompt, ids: Sequence[int], tokens: Sequence[str]) -> dict[str, Any]:
    labels = json.dumps(dict(prompt.labels), ensure_ascii=False, sort_keys=True)
    return {
        "prompt": number,
        "text": prompt.prompt,
        "token_ids": list(ids),
        "tokens": list(tokens),
        "answer": prompt.answer,
        "wrong": prompt.wrong,
        "answer_id": prompt.answer_id,
        "wrong_id": prompt.wrong_id,
        "labels": labels,
    }
