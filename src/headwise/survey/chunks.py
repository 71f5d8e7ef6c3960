"""Some prompts traced as one batch, and kept whole or not at all.

A chunk's numbers depend on its prompts alone: it is traced with one thread, in the batches that its prompts' lengths
give, whoever traces it and whenever.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwise.bases.singular import one_thread
from headwise.circuits.circuit import Circuit
from headwise.circuits.trace import trace
from headwise.errors import HeadwiseError
from headwise.survey.records import PromptRecord, record_tables
from headwise.survey.schema import TABLES, schema_of
from headwise.tasks.answers.types import AnswerPrompt
from headwise.tokens import encode_one, shown

if TYPE_CHECKING:
    from headwise.model.model import Model

CHUNK = 32
"""Prompts traced together and kept together."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive prompts of a set, from number ``start``."""

    start: int
    prompts: tuple[AnswerPrompt, ...]

    def place(self, work: Path) -> Path:
        return work / f"{self.start:08d}"


@dataclass(frozen=True)
class TraceRules:
    """How every prompt is traced."""

    mode: str = "exact"
    tau: float | None = None


def cut(prompts: Sequence[AnswerPrompt], size: int = CHUNK) -> list[Chunk]:
    """Chunks at fixed places, so that an interrupted run goes on with the very batches of one that was not."""
    return [Chunk(start, tuple(prompts[start : start + size])) for start in range(0, len(prompts), size)]


# --- tracing -------------------------------------------------------------------------------------------------------


def trace_chunk(model: Model, chunk: Chunk, rules: TraceRules) -> list[PromptRecord]:
    """A record for every prompt, whatever becomes of it."""
    numbered = list(enumerate(chunk.prompts, chunk.start))
    with one_thread():
        try:
            found = _traced(model, chunk.prompts, rules)
        except Exception:
            # One prompt must not take the others with it, and its reason must be its own.
            return [_alone(model, number, prompt, rules) for number, prompt in numbered]
    return [_record(n, prompt, circuit) for (n, prompt), circuit in zip(numbered, found, strict=True)]


def _traced(model: Model, prompts: Sequence[AnswerPrompt], rules: TraceRules) -> list[Circuit]:
    made: dict[int, Circuit] = {}
    for compared in (True, False):
        places = [i for i, p in enumerate(prompts) if (p.wrong_id is not None) == compared]
        if not places:
            continue
        wrong = [w for i in places if (w := prompts[i].wrong_id) is not None] if compared else None
        circuits = trace(
            model, [prompts[i].prompt for i in places], answer=[prompts[i].answer_id for i in places], wrong=wrong,
            mode=rules.mode, tau=rules.tau,
        )  # fmt: skip
        made |= dict(zip(places, circuits, strict=True))
    return [made[i] for i in range(len(prompts))]


def _alone(model: Model, number: int, prompt: AnswerPrompt, rules: TraceRules) -> PromptRecord:
    try:
        return _record(number, prompt, _traced(model, [prompt], rules)[0])
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


# --- keeping -------------------------------------------------------------------------------------------------------


def keep(chunk: Chunk, records: Sequence[PromptRecord], work: Path) -> None:
    """Write beside, flush to the disk, then rename: a chunk is there whole, or not."""
    place = chunk.place(work)
    beside = place.with_name(f".{place.name}.{os.getpid()}.part")
    beside.mkdir()
    try:
        for name, table in record_tables(records).items():
            buffer = BytesIO()
            pq.write_table(table, buffer, compression="zstd")
            write_through(beside / f"{name}.parquet", buffer.getvalue())
        if not place.exists():
            beside.rename(place)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write_through(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def is_kept(chunk: Chunk, work: Path) -> bool:
    """Whether a chunk is there; one that cannot be read is removed, to be traced again."""
    place = chunk.place(work)
    if not place.is_dir():
        return False
    try:
        rows = [pq.read_metadata(place / f"{name}.parquet").num_rows for name in TABLES]
        if rows[TABLES.index("prompts")] == len(chunk.prompts):
            return True
    except (OSError, pa.ArrowException):
        pass
    shutil.rmtree(place)
    return False


def read_kept(chunk: Chunk, work: Path) -> dict[str, pa.Table]:
    place = chunk.place(work)
    return {name: pq.read_table(place / f"{name}.parquet").cast(schema_of(name)) for name in TABLES}
