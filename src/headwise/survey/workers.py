"""Chunks traced by several processes, each with a model of its own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from headwise.errors import HeadwiseError
from headwise.survey.chunks import Chunk, TraceRules, keep, trace_chunk

if TYPE_CHECKING:
    from headwise.model.model import Model


@dataclass(frozen=True)
class Source:
    """What a worker needs to load the very model of the caller."""

    origin: Mapping[str, Any]
    weight_hash: str

    @classmethod
    def of(cls, model: Model) -> Source:
        if model.origin is None:
            raise HeadwiseError(
                f"the model {model.name!r} was not loaded by headwise.load, so other processes cannot load it: "
                "use workers=1"
            )
        return cls(model.origin, model.weight_hash)


_loaded: Model | None = None


def _begin() -> None:
    """An interruption is the caller's to handle; and no worker outlives it, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)  # there is a worker a core
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _model(source: Source) -> Model:
    global _loaded
    if _loaded is None:
        from headwise.model.loading.load import load

        model = load(**source.origin, check=False)
        if model.weight_hash != source.weight_hash:
            raise HeadwiseError(
                f"the weights of {model.name!r} in memory are not those it was loaded from: use workers=1"
            )
        _loaded = model
    return _loaded


def _work(source: Source, chunk: Chunk, rules: TraceRules, work: Path) -> int:
    keep(chunk, trace_chunk(_model(source), chunk, rules), work)
    return len(chunk.prompts)


def trace_apart(
    source: Source, chunks: Sequence[Chunk], rules: TraceRules, work: Path, workers: int
) -> Iterator[int]:
    """Trace and keep chunks in ``workers`` processes; yields how many prompts each had, as they are done."""
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)
    try:
        for done in as_completed([pool.submit(_work, source, chunk, rules, work) for chunk in chunks]):
            yield done.result()
    except BrokenProcessPool:
        _kill_workers(pool)
        raise HeadwiseError(
            "a worker process died (out of memory, or killed): what was traced is kept; run the same command again to "
            "continue, with fewer --workers if memory is short"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _kill_workers(pool: ProcessPoolExecutor) -> None:
    """End what is left of a broken pool.

    A pool starts its processes one by one. It ends those that it has when it breaks, but then waits for all: without
    end for one that started meanwhile.
    """
    processes = getattr(pool, "_processes", None) or {}  # no public name before Python 3.14
    for process in list(processes.values()):
        process.kill()
