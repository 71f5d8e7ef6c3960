"""Who makes chunks: this process, several, or a cluster, each with a model of its own. Whoever does, they are the same.

An engine is handed a job, chunks and what keeps them, and gives back what the job made, in the order of the chunks.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from headwise.errors import HeadwiseError
from headwise.progress import Tick
from headwise.scale.cluster import RayCluster, WorkSharing, refuse_unreachable
from headwise.scale.disk import Interrupted
from headwise.scale.machine import memory_left, refuse_too_many
from headwise.scale.work import Chunk, Keeper

if TYPE_CHECKING:
    from headwise.model.model import Model

Item = TypeVar("Item")
Made = TypeVar("Made")
AHEAD = 4
"""Chunks per worker that are begun before the oldest is taken: what bounds memory where one of them is slow."""


class Job(Protocol[Item, Made]):
    """What is made of a chunk, and its bytes. Other processes can be handed a job that can be pickled."""

    def make(self, model: Model, chunk: Chunk[Item], tick: Tick, /) -> Made:
        """The result, which depends on the chunk's items alone. Ticks are optional."""
        ...

    def to_bytes(self, made: Made, /) -> bytes: ...

    def from_bytes(self, content: bytes, /) -> Made: ...


class Engine(Protocol):
    """Makes chunks, keeps each as soon as it is made, and gives the results in the order of the chunks."""

    def run(
        self, job: Job[Item, Made], chunks: Sequence[Chunk[Item]], keeper: Keeper | None, tick: Tick, /
    ) -> Generator[Made]: ...

    def close(self) -> None:
        """Let go of what is held for the next run."""
        ...


# --- this process --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThisProcess:
    """One chunk after the other, with the model at hand."""

    model: Model

    def run(
        self, job: Job[Item, Made], chunks: Sequence[Chunk[Item]], keeper: Keeper | None, tick: Tick, /
    ) -> Generator[Made]:
        for chunk in chunks:
            told = 0

            def count(more: int) -> None:
                nonlocal told
                told += more
                tick(more)

            made = job.make(self.model, chunk, count)
            if keeper is not None:
                content = job.to_bytes(made)
                keeper.keep(chunk, content)
                # Read back even now, so that nothing can depend on who made a chunk and when.
                made = job.from_bytes(content)
            if told < len(chunk):
                tick(len(chunk) - told)
            yield made

    def close(self) -> None:
        """There is nothing to let go of."""


# --- several processes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelSource:
    """What a worker needs to load the very model of the caller."""

    origin: Mapping[str, Any]
    weight_hash: str
    bytes: int = 0
    """What its weights take of a worker's main memory."""

    @classmethod
    def of(cls, model: Model) -> ModelSource:
        if model.origin is None:
            raise HeadwiseError(
                f"the model {model.name!r} was not loaded by headwise.load, so other processes cannot load it: "
                "use workers=1"
            )
        weights = (one for one in model.hf.parameters() if one.device.type == "cpu")
        return cls(model.origin, model.weight_hash, sum(one.nbytes for one in weights))


class Processes:
    """Several worker processes on this machine. Each loads the model once, when it gets its first chunk, and stays
    for the next stage of the same study.
    """

    def __init__(self, source: ModelSource, workers: int) -> None:
        self.source, self.workers = source, workers
        self._pool: ProcessPoolExecutor | None = None

    def run(
        self, job: Job[Item, Made], chunks: Sequence[Chunk[Item]], keeper: Keeper | None, tick: Tick, /
    ) -> Generator[Made]:
        if not chunks:
            return
        # Processes start as there is work for them: never more than there are chunks.
        self._pool = pool = self._pool or ProcessPoolExecutor(
            self.workers, mp_context=get_context("spawn"), initializer=_begin
        )
        left, begun = iter(chunks), deque[tuple[Chunk[Item], Future[bytes]]]()
        # As bytes: between processes, torch would open a file for every tensor, more than a process may have.
        asked = pickle.dumps(job)

        def begin(count: int) -> None:
            for _, chunk in zip(range(count), left, strict=False):
                begun.append((chunk, pool.submit(_work, self.source, asked, pickle.dumps(chunk), keeper)))

        try:
            begin(AHEAD * self.workers)
            while begun:
                chunk, future = begun.popleft()
                content = future.result()
                begin(1)
                tick(len(chunk))
                yield job.from_bytes(content)
        except BrokenProcessPool:
            _kill_workers(pool)
            self.close()
            kept = "" if keeper is None else "what was finished is kept; "
            raise Interrupted(
                f"a worker process died (out of memory, or killed): {kept}run the same command again to continue, "
                "with fewer workers if memory is short"
            ) from None
        except BaseException as error:
            # Nobody waits for what was begun; but a caller that has taken all comes back for the next stage.
            if begun or not isinstance(error, GeneratorExit):
                self.close()
            raise

    def close(self) -> None:
        """End the workers, once what they are at is done."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def engine_for(model: Model, workers: WorkSharing = 1) -> Engine:
    """The engine for a number of workers, of which one is this process; or for a cluster."""
    if isinstance(workers, RayCluster):
        refuse_unreachable(workers)
        from headwise.scale.actors import Actors

        return Actors(ModelSource.of(model), workers, on_gpu=model.device.type == "cuda")
    if workers < 1:
        raise HeadwiseError(f"workers={workers} cannot do anything: give 1 or more")
    if workers == 1:
        return ThisProcess(model)
    source = ModelSource.of(model)
    refuse_too_many(workers, source.bytes, [memory_left()])
    return Processes(source, workers)


_loaded: Model | None = None


def _begin() -> None:
    """An interruption is the caller's to handle; and no worker outlives it, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)  # there is one worker per core
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def loaded(source: ModelSource) -> Model:
    """The model of a worker: loaded once, and kept as long as its process lives."""
    global _loaded
    if _loaded is None:
        from headwise.model.loading.load import load

        _loaded = load(**source.origin, check=False)
    return _loaded


def made_bytes(source: ModelSource, asked: bytes, items: bytes) -> bytes:
    """What a worker gives back: the bytes of what a pickled job makes of a pickled chunk."""
    # From the process that began the work, like all that a pool or a cluster hands over; never from a file.
    job: Job[Any, Any] = pickle.loads(asked)
    return job.to_bytes(job.make(loaded(source), pickle.loads(items), lambda more: None))


def _work(source: ModelSource, asked: bytes, items: bytes, keeper: Keeper | None) -> bytes:
    changed = "its weights were changed in memory, which other processes do not see; use workers=1"
    model = loaded(source)
    model.require(source.weight_hash, "the work", of=model.name, do=changed)
    content = made_bytes(source, asked, items)
    if keeper is not None:
        keeper.keep(pickle.loads(items), content)
    return content


def _kill_workers(pool: ProcessPoolExecutor) -> None:
    """End what is left of a broken pool.

    A pool starts its processes one by one. It ends those that it has when it breaks, but then waits for all: without
    end for one that started meanwhile.
    """
    processes = getattr(pool, "_processes", None) or {}  # no public name before Python 3.14
    for process in list(processes.values()):
        process.kill()
