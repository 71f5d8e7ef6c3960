"""Trace the circuits of many prompts into a run folder, so that a kill at any moment loses only what was under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwise.basis_names import BasisKind
from headwise.circuits.trace import bases_for, rules_for
from headwise.progress import Progress
from headwise.scale.cluster import WorkSharing
from headwise.scale.disk import disk_trouble_told, refuse_small_disk
from headwise.scale.engines import Engine, engine_for
from headwise.scale.folder import RunFolder
from headwise.scale.manifest import ModelShape
from headwise.scale.mapping import map_chunks
from headwise.scale.work import Chunk, cut
from headwise.survey.chunks import CHUNK, TraceJob
from headwise.survey.reading import KIND
from headwise.survey.records import CircuitRun, write_run
from headwise.survey.schema import TABLES
from headwise.tasks.answers.make import make_answers
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet

if TYPE_CHECKING:
    from headwise.model.model import Model

JOINED = 8
"""Chunks that are one row group of the final tables: bounds the memory of joining them."""
BYTES_PER_PROMPT, BYTES_PER_HEAD_TOKEN = 800, 1.15
"""Of one circuit in the tables, compressed; measured on a small and on the default model, and a guess for others."""


def trace_many(
    model: Model,
    task: str | Path | AnswerSet,
    *,
    out: str | Path,
    prompts: int | None = None,
    workers: WorkSharing = 1,
    mode: str = "exact",
    tau: float | None = None,
    basis: BasisKind = "singular",
    seed: int = 0,
    progress: Progress | None = None,
) -> CircuitRun:
    """Trace one circuit per prompt, for thousands of prompts: ``headwise circuits`` in Python.

    The same call continues an interrupted run, and returns a finished one as it is; the files depend neither on
    interruptions nor on ``workers``. Prompts that the model answers wrong are set aside, not dropped; a prompt that
    fails is recorded with its reason. Every prompt begins at position 0: there is no ``start``, because in the query's
    frame another one gives the same circuits up to rounding.

    Parameters
    ----------
    model:
        A loaded model.
    task:
        ``ioi``, ``greater-than``, ``pronouns``, ``facts``, the path of a JSONL file, or an
        :class:`~headwise.tasks.answers.types.AnswerSet`.
    out:
        The folder that keeps the run as it goes.
    prompts:
        How many prompts are made (of a file: taken); default: 300, or all of a file.
    workers:
        Processes; above 1 they load the model anew, so in a script call this under ``if __name__ == "__main__":``. Or a
        :class:`~headwise.scale.cluster.RayCluster`.
    mode:
        ``exact``, or ``published`` to follow the authors' rules to the letter.
    tau:
        The attention of a firing must fall below this without its cause; default: a quarter of it or
        2.5 / visible keys, the larger, but at most half of it.
    basis:
        Which channels signals are made of: ``singular``, ``balanced`` (after ``headwise calibrate``) or ``rotated``.
    seed:
        The seed of everything random.
    progress:
        Told the stage, how many of its prompts are done, and how many there are.

    Returns
    -------
    CircuitRun
        The tables of the finished run, and each prompt's circuit.
    """
    rules_for(mode, tau, None)
    engine = engine_for(model, workers)
    answers = make_answers(task, model.tokenizer, prompts=prompts, seed=seed)
    path = Path(out)
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "shape": ModelShape.of(model).model_dump(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "task": answers.name,
        "settings": {**answers.settings, "sha256": answers.digest, "chunk": CHUNK},
        "mode": mode,
        "tau": tau,
        "basis": bases_for(model, mode, basis).name.to_json(),
        "seed": seed,
        "prompts": len(answers),
    }
    folder = RunFolder(path, KIND, config)
    if not folder.finished:
        # While chunks are joined they and the tables are both there.
        refuse_small_disk(path, 2 * estimated_bytes(model, answers))
        with closing(engine), folder:
            collection = _Collection(folder, cut(answers.prompts, CHUNK), progress)
            with disk_trouble_told(path, collection.kept):
                if not folder.finished:
                    write_run(folder, collection.traced(TraceJob(mode, tau, basis), engine))
    folder.clean()
    return CircuitRun.load(path)


class _Collection:
    """The chunks of one run, traced as far as they are not kept yet, and joined some at a time."""

    def __init__(
        self, folder: RunFolder, chunks: Sequence[Chunk[AnswerPrompt]], progress: Progress | None
    ) -> None:
        self.chunks, self.keeper = chunks, folder.keeper(0)
        self.progress = progress or (lambda stage, done, total: None)
        self.total = sum(len(chunk) for chunk in chunks)

    def traced(self, job: TraceJob, engine: Engine) -> Iterator[Mapping[str, pa.Table]]:
        done, parts = 0, list[Mapping[str, pa.Table]]()

        def tick(more: int) -> None:
            nonlocal done
            done += more
            self.progress("tracing", done, self.total)

        if not any(self.keeper.has(chunk) for chunk in self.chunks):
            tick(0)
        with closing(map_chunks(job, self.chunks, engine=engine, keeper=self.keeper, tick=tick)) as made:
            for number, part in enumerate(made, 1):
                parts.append(part)
                if len(parts) == JOINED or number == len(self.chunks):
                    yield {name: pa.concat_tables([one[name] for one in parts]) for name in TABLES}
                    parts.clear()

    def kept(self) -> str:
        """What an interruption leaves, in words."""
        done = sum(len(chunk) for chunk in self.chunks if self.keeper.has(chunk))
        return f"{done} of {self.total} prompts are kept"


def estimated_bytes(model: Model, answers: AnswerSet) -> int:
    """About how large the finished run folder will be."""
    sample = answers.prompts[:: max(1, len(answers) // 50)]
    tokens = sum(len(model.tokenizer(p.prompt).input_ids) for p in sample) / len(sample)
    return round(
        len(answers) * (BYTES_PER_PROMPT + BYTES_PER_HEAD_TOKEN * tokens * model.n_layers * model.n_heads)
    )
