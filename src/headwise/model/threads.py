"""Give every core prompts of its own.

torch shares each matrix product among all its threads, which then wait for one another some dozens of times per layer.
A batch that is cut into parts, each computed from end to end by its own thread, has nothing to wait for: the same
numbers, 12 to 22 % faster on two cores (``benchmarks/capture.py``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from headwise.model.model import Model

LEAST_TOKENS = 128
"""Tokens that make a part worth a thread: below that the interpreter's time, which threads cannot share, eats it."""

FAIR = 1.1
"""How much longer the longest part may take than an even share would."""

STEADY = 8
"""Threads that batches are cut for where the numbers must not depend on how many there are."""

_helpers: ContextVar[int | None] = ContextVar("helpers", default=None)
"""Threads that compute parts inside :func:`steady`."""


@contextmanager
def steady() -> Iterator[None]:
    """Inside, numbers are the same to the bit for any number of threads.

    Batches are cut at the same places on every machine, and one thread computes each part from end to end; as many
    parts are under way as there are threads. Everything else has one thread.
    """
    threads = torch.get_num_threads()
    inside = _helpers.set(_helpers.get() or threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _helpers.reset(inside)


def parts(model: Model, lengths: Sequence[int]) -> list[range]:
    """How to cut a batch of prompts, sorted by length: one range where it is better left whole."""
    whole = [range(len(lengths))]
    threads = torch.get_num_threads() if _helpers.get() is None else STEADY
    if threads == 1 or sum(lengths) < 2 * LEAST_TOKENS or not _may_spread(model):
        return whole
    for number in range(threads, 1, -1):
        # Only even shares of the threads: a machine with more cores than prompts gives each part several.
        if threads % number == 0 and sum(lengths) >= number * LEAST_TOKENS:
            cut = fair_cut(lengths, number)
            if cut is not None:
                return cut
    return whole


def fair_cut(lengths: Sequence[int], number: int) -> list[range] | None:
    """At most ``number`` runs of neighbours, or None where one would take much longer than an even share.

    Prompts are sorted by length; a run costs its number of prompts times its longest one.

    >>> fair_cut([4, 4, 4, 4], 2), fair_cut([2, 2, 2, 2, 8], 2), fair_cut([4, 4, 4], 2)
    ([range(0, 2), range(2, 4)], [range(0, 4), range(4, 5)], None)
    """
    low, high = 1, len(lengths) * lengths[-1]
    whole = high
    while low < high:
        middle = (low + high) // 2
        if len(_filled(lengths, middle)) <= number and lengths[-1] <= middle:
            high = middle
        else:
            low = middle + 1
    cut = _filled(lengths, low)
    return cut if low * number <= FAIR * whole else None


def _filled(lengths: Sequence[int], most: int) -> list[range]:
    """Runs as long as ``most`` allows."""
    cut, start = [], 0
    for end in range(1, len(lengths) + 1):
        if end == len(lengths) or (end + 1 - start) * lengths[end] > most:
            cut.append(range(start, end))
            start = end
    return cut


def side_by_side(tasks: Sequence[Callable[[threading.Event], Any]]) -> list[Any]:
    """Run tasks at once, each with its share of torch's threads; all have ended when this returns or raises.

    Inside :func:`steady` each has one thread, and they take turns where there are fewer threads than tasks.

    A task is given an event; once it is set, because another one failed or the caller was interrupted, nobody waits
    for the result.
    """
    given_up, helpers = threading.Event(), _helpers.get()
    if len(tasks) == 1 or helpers == 1:
        return [task(given_up) for task in tasks]
    if helpers is None:
        each = max(1, torch.get_num_threads() // len(tasks))  # fewer cores than parts: they share one
        pool = _pool(len(tasks), each, os.getpid())
    else:
        pool = _pool(min(helpers, len(tasks)), 1, os.getpid())
    futures: list[Future[Any]] = []
    try:
        futures += (pool.submit(task, given_up) for task in tasks)
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        if not all(future.done() for future in futures):
            given_up.set()
        wait(futures)  # what the tasks use is taken away next
    for failed in filter(Future.exception, futures):
        failed.result()
    return [future.result() for future in futures]


# A few stay: sooner or later torch's buffers of a thread that ends are lost. A forked process needs its own.
@lru_cache(maxsize=4)
def _pool(workers: int, threads_each: int, _process: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(workers, "headwise")
    all_here, threads = threading.Barrier(workers + 1), torch.get_num_threads()

    def start() -> None:
        # The number of threads is each thread's own, but the first look at it resets it, and setting it also sets
        # what threads that come later start with: hence look first, and set it back once all are here.
        torch.get_num_threads()
        torch.set_num_threads(threads_each)
        all_here.wait()

    for _ in range(workers):
        pool.submit(start)
    all_here.wait()
    torch.set_num_threads(threads)
    return pool


def _may_spread(model: Model) -> bool:
    """Whether threads can share the model: all of it on the CPU, and no state that a pass changes."""
    return (
        _threads_are_own()
        and all(parameter.device.type == "cpu" for parameter in model.hf.parameters())
        and not torch.is_autocast_enabled("cpu")  # holds in the calling thread alone
        and not any("dynamic" in kind or kind == "longrope" for kind in _rope_types(model.anatomy.config))
        and not any(_foreign_hooks(model))
    )


@cache
def _threads_are_own() -> bool:
    """Whether threads can differ in how many helpers they use, as with OpenMP."""
    return "parallel backend: OpenMP" in torch.__config__.parallel_info()


def _rope_types(config: Any) -> Iterator[str]:
    """Kinds of RoPE; some rewrite their frequencies when a longer prompt comes."""
    parameters = getattr(config, "rope_parameters", None) or {}
    for one in (parameters, *parameters.values()):  # one for all layers, or one per kind of layer
        if isinstance(one, dict) and "rope_type" in one:
            yield one["rope_type"]


def _foreign_hooks(model: Model) -> Iterator[Any]:
    """Hooks of the caller's own on the model: they expect a batch in one piece."""
    for module in model.hf.modules():
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            if not (getattr(hook, "__module__", None) or "").startswith("transformers."):
                yield hook
