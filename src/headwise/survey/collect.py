"""Trace the circuits of many prompts into a run folder, so that a kill at any moment loses only what was under way."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from headwise.circuits.trace import rules_for
from headwise.errors import HeadwiseError
from headwise.runs import RunFolder, package_versions
from headwise.survey.chunks import CHUNK, Chunk, TraceRules, cut, is_kept, keep, read_kept, trace_chunk
from headwise.survey.records import KIND, CircuitRun, TablesWriter, finished
from headwise.survey.schema import TABLES, schema_document
from headwise.survey.workers import Source, trace_apart
from headwise.tasks.answers.make import make_answers
from headwise.tasks.answers.types import AnswerSet

if TYPE_CHECKING:
    from headwise.model.model import Model

JOINED = 8
"""Chunks that are one row group of the final tables: bounds the memory of joining them."""
BYTES_PER_PROMPT, BYTES_PER_HEAD_TOKEN = 800, 1.15
"""Of one circuit in the tables, compressed; measured on a small and on the default model, and a guess for others."""


class Progress(Protocol):
    """Told which stage is under way, how many of its prompts are done, and how many there are."""

    def __call__(self, stage: str, done: int, total: int, /) -> None: ...


def trace_many(
    model: Model,
    task: str | Path | AnswerSet,
    *,
    out: str | Path,
    prompts: int | None = None,
    workers: int = 1,
    mode: str = "exact",
    tau: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> CircuitRun:
    """Trace one circuit a prompt, for thousands of prompts: ``headwise circuits`` in Python.

    (It is not called ``headwise.circuits`` because that is the package of single circuits.)

    ``task`` is ``ioi``, ``greater-than``, ``pronouns``, ``facts``, the path of a JSONL file, or an
    :class:`~headwise.tasks.answers.types.AnswerSet`; ``prompts`` how many are made (of a file: taken). The run is
    kept in the folder ``out`` as it goes. The same call continues an interrupted run, and returns a finished
    one as it is; the files do not depend on interruptions nor on ``workers``. Prompts that the model answers
    wrong are set aside, not dropped; a prompt that fails is recorded with its reason.

    ``workers`` above 1 starts processes that load the model anew; in a script, call it under
    ``if __name__ == "__main__":``.
    """
    rules_for(mode, tau, None)
    if workers < 1:
        raise HeadwiseError(f"workers={workers} cannot trace anything: give 1 or more")
    source = Source.of(model) if workers > 1 else None
    answers = make_answers(task, model.tokenizer, prompts=prompts, seed=seed)
    path = Path(out)
    if not finished(path):
        # While chunks are joined they and the tables are both there.
        refuse_small_disk(path, 2 * estimated_bytes(model, answers) - _used(path))
    config = {
        "model": model.name,
        "weight_hash": model.weight_hash,
        "dtype": str(model.dtype).removeprefix("torch."),
        "task": answers.name,
        "settings": {**answers.settings, "sha256": answers.digest, "chunk": CHUNK},
        "mode": mode,
        "tau": tau,
        "seed": seed,
        "prompts": len(answers),
    }
    versions = package_versions("headwise", "transformers", "safetensors", "pyarrow")
    folder = RunFolder(path, KIND, config, versions=versions)
    work = path / "work"
    if not finished(path):
        tell = progress or (lambda stage, done, total: None)
        with _alone_in(path, work):
            _Collection(path, work, cut(answers.prompts), TraceRules(mode, tau), tell).run(
                model, source, workers, folder
            )
    _clean(path, work)
    return CircuitRun.load(path)


class _Collection:
    """The chunks of one run, traced as far as they are not kept yet, then joined."""

    def __init__(
        self, path: Path, work: Path, chunks: Sequence[Chunk], rules: TraceRules, progress: Progress
    ) -> None:
        self.path, self.work, self.chunks, self.rules, self.progress = path, work, chunks, rules, progress
        self.total = sum(len(chunk.prompts) for chunk in chunks)
        self.done = 0

    def run(self, model: Model, source: Source | None, workers: int, folder: RunFolder) -> None:
        try:
            folder.write_json("schema.json", schema_document())
            for stray in self.work.glob(".*.part"):
                shutil.rmtree(stray, ignore_errors=True)
            waiting = [chunk for chunk in self.chunks if not is_kept(chunk, self.work)]
            self.done = self.total - sum(len(chunk.prompts) for chunk in waiting)
            self.progress("tracing", self.done, self.total)
            for count in self._trace(model, source, waiting, min(workers, len(waiting))):
                self.done += count
                self.progress("tracing", self.done, self.total)
            self._join()
        except OSError as error:
            raise self._disk_trouble(error) from None

    def _trace(
        self, model: Model, source: Source | None, waiting: Sequence[Chunk], workers: int
    ) -> Iterator[int]:
        if source is not None and workers > 1:
            yield from trace_apart(source, waiting, self.rules, self.work, workers)
            return
        for chunk in waiting:
            keep(chunk, trace_chunk(model, chunk, self.rules), self.work)
            yield len(chunk.prompts)

    def _join(self) -> None:
        """The kept chunks as final tables, some at a time."""
        writer = TablesWriter(self.path)
        try:
            for start in range(0, len(self.chunks), JOINED):
                parts = [read_kept(chunk, self.work) for chunk in self.chunks[start : start + JOINED]]
                writer.add({name: pa.concat_tables([part[name] for part in parts]) for name in TABLES})
            writer.finish()
        except BaseException:
            writer.abandon()
            raise

    def _disk_trouble(self, error: OSError) -> HeadwiseError:
        kept = f"{self.done} of {self.total} prompts are kept"
        again = "run the same command again to continue"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return HeadwiseError(
                f"the disk of {str(self.path)!r} is full: {kept}; free some space and {again}"
            )
        return HeadwiseError(
            f"{str(self.path)!r} cannot be written ({error.strerror or error}): {kept}; {again}"
        )


# --- the folder ----------------------------------------------------------------------------------------------------


@contextmanager
def _alone_in(path: Path, work: Path) -> Iterator[None]:
    """Refuse a folder that another process is filling; a killed process holds no lock."""
    from filelock import FileLock, Timeout

    try:
        work.mkdir(exist_ok=True)
        lock = FileLock(work / "lock")
        lock.acquire(timeout=0)
    except Timeout:
        raise HeadwiseError(
            f"{str(path)!r} is being written by another process: wait for it, or choose another --out folder"
        ) from None
    except OSError as error:
        raise HeadwiseError(f"{str(path)!r} cannot be written ({error.strerror or error})") from None
    try:
        yield
    finally:
        lock.release()


def _clean(path: Path, work: Path) -> None:
    """What a finished run does not need, also from a process that was killed at its end."""
    shutil.rmtree(work, ignore_errors=True)
    for stray in (*path.glob(".*.part"), *path.glob(".probe-*")):
        stray.unlink(missing_ok=True)


def _used(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0


def estimated_bytes(model: Model, answers: AnswerSet) -> int:
    """About how large the finished run folder will be."""
    sample = answers.prompts[:: max(1, len(answers) // 50)]
    tokens = sum(len(model.tokenizer(p.prompt).input_ids) for p in sample) / len(sample)
    return round(
        len(answers) * (BYTES_PER_PROMPT + BYTES_PER_HEAD_TOKEN * tokens * model.n_layers * model.n_heads)
    )


def refuse_small_disk(path: Path, needed: int) -> None:
    """One line now instead of a full disk later."""
    parent = path.absolute()
    while not parent.exists():
        parent = parent.parent
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise HeadwiseError(
            f"the disk of {str(path)!r} has {size_text(free)} free and the run needs about {size_text(needed)} "
            "while it is made: free some space, or ask for fewer prompts"
        )


def size_text(count: int) -> str:
    """Bytes for people.

    >>> size_text(1234), size_text(45_600_000)
    ('1.2 kB', '45.6 MB')
    """
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
