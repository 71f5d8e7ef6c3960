"""Work on a cluster: one actor of Ray per worker holds the model; whatever they make is kept by this process.

Ray starts the actors, spreads them over nodes and moves the bytes. What is here is what Ray leaves to its callers: no
more work is begun than memory holds, what a lost actor was at is begun again elsewhere, and results come in order.
"""

from __future__ import annotations

import heapq
import pickle
import time
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)

from headwise.errors import HeadwiseError
from headwise.progress import Tick, remark
from headwise.scale.cluster import RayCluster, cores
from headwise.scale.disk import Interrupted
from headwise.scale.engines import AHEAD, Item, Job, Made, ModelSource, loaded, made_bytes
from headwise.scale.machine import refuse_too_many, room_for
from headwise.scale.nodes import joined, refuse_unlike
from headwise.scale.work import Chunk, Keeper
from headwise.strings import counted

AT_ONCE = 2
"""Chunks that an actor is handed: the one it works at, and the next, so that it need not wait for this process."""
TRIES = 3
"""Actors that a chunk may cost before it is taken for the cause."""
PATIENCE = 90.0
"""Seconds without a single actor before the work is given up: a node may come back."""
SAID_EVERY = 30.0
"""Seconds between two lines about the nodes."""
LOST = (RayActorError, ObjectLostError, NodeDiedError, OutOfMemoryError, WorkerCrashedError)
"""What tells that an actor, or what it made, is gone with its process or node."""


class _Maker:
    """What lives in an actor: a process of one node, with the model that it loaded."""

    def __init__(self, source: ModelSource) -> None:
        import torch

        torch.set_num_threads(1)  # there is one worker per core
        self.source = source

    def begin(self) -> tuple[str, str]:
        """Load the model from this node's cache or the hub; the node's address, and the hash of what was loaded."""
        node = ray.util.get_node_ip_address()
        try:
            return node, loaded(self.source).weight_hash
        except HeadwiseError as error:
            raise HeadwiseError(f"the node {node} cannot load the model: {error}") from None

    def make(self, asked: bytes, items: bytes) -> bytes:
        return made_bytes(self.source, asked, items)


@dataclass(eq=False)
class _Actor:
    """An actor, the node that it lives on once it has begun, and the chunks that it was handed, oldest first."""

    handle: Any
    node: str | None = None
    chunks: deque[int] = field(default_factory=deque)


class Actors:
    """The engine of a cluster: joins or starts Ray with its first chunk, and keeps its actors for the next stage."""

    def __init__(self, source: ModelSource, cluster: RayCluster, *, on_gpu: bool = False) -> None:
        # Ray shows every actor its own GPU as the only one.
        here = {"device": "cuda"} if on_gpu and source.origin["device"] else {}
        self.source = replace(source, origin={**source.origin, **here})
        self.cluster, self.on_gpu = cluster, on_gpu
        self.made_by: Counter[str] = Counter()
        """How many items each node has made, by its address."""
        self._actors: list[_Actor] = []
        self._asked: dict[Any, tuple[_Actor, int | None]] = {}
        self._open = ExitStack()
        self._is_open = False

    # --- a stage -----------------------------------------------------------------------------------------------------

    def run(
        self, job: Job[Item, Made], chunks: Sequence[Chunk[Item]], keeper: Keeper | None, tick: Tick, /
    ) -> Generator[Made]:
        if not chunks:
            return
        try:
            self._gather()
            # In Ray's store once, not with every chunk.
            stage = _Stage(ray.put(pickle.dumps(job)), list(chunks), AHEAD * len(self._actors))
            while stage.taken < len(chunks):
                self._feed(stage)
                for number, content in self._finished(stage, keeper is not None):
                    if keeper is not None:
                        keeper.keep(chunks[number], content)
                    tick(len(chunks[number]))
                for content in stage.in_turn():
                    yield job.from_bytes(content)
        except BaseException as error:
            # Nobody waits for what was begun; but a caller that has taken all comes back for the next stage.
            if self._working() or not isinstance(error, GeneratorExit):
                self.close()
            raise

    def _working(self) -> list[_Actor]:
        return [actor for actor in self._actors if actor.chunks]

    def _feed(self, stage: _Stage) -> None:
        """Hand chunks to the actors that have the fewest, as far ahead as memory allows."""
        while stage.may_begin():
            free = [one for one in self._actors if one.node is not None and len(one.chunks) < AT_ONCE]
            if not free:
                return
            actor, number = min(free, key=lambda one: len(one.chunks)), heapq.heappop(stage.left)
            actor.chunks.append(number)
            items = pickle.dumps(stage.chunks[number])
            self._asked[actor.handle.make.remote(stage.job, items)] = (actor, number)

    def _finished(self, stage: _Stage, kept: bool) -> list[tuple[int, bytes]]:
        """What was made since the last look; waits a moment if nothing was."""
        found = list[tuple[int, bytes]]()
        for ref in self._ready():
            actor, number = self._asked.pop(ref)
            try:
                answer: Any = ray.get(ref)
            except LOST:
                self._lose(actor, number, stage, kept)
                continue
            except RayTaskError as error:
                raise _cause(error) from None
            if number is None:
                self._settle(actor, *answer)
                continue
            actor.chunks.remove(number)
            stage.made[number] = answer
            found.append((number, answer))
            self.made_by[str(actor.node)] += len(stage.chunks[number])
        self._say(ended=not stage.left and not self._working())
        self._watch(kept)
        return found

    def _ready(self) -> list[Any]:
        first, _ = ray.wait(list(self._asked), num_returns=1, timeout=1.0) if self._asked else ([], [])
        return ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)[0] if first else []

    # --- the actors --------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Join Ray, compare its nodes with this machine, and have every actor load the model: all before any work."""
        if self._is_open:
            return
        self._is_open = True
        self._open.enter_context(joined(self.cluster, self.cluster.workers or cores()))
        left = refuse_unlike(self.source.origin)
        self._wanted, self._replaced = self._how_many(left), 0
        for _ in range(self._wanted):
            self._start()
        self._alone_since = self._said = time.monotonic()
        waiting, lost = list(self._asked), 0
        while waiting:
            (first,), waiting = ray.wait(waiting, num_returns=1)
            actor, _ = self._asked.pop(first)
            try:
                self._settle(actor, *ray.get(first))
            except LOST:
                lost += 1
                self._actors.remove(actor)
            except RayTaskError as error:
                raise _cause(error) from None
        if not self._actors:
            raise Interrupted(
                f"none of {counted(lost, 'worker')} could load the model (out of memory, or killed): give fewer workers"
            )
        if lost:
            remark(f"{counted(lost, 'worker')} ended while loading the model: going on with the others")

    def _how_many(self, left: Sequence[int]) -> int:
        """As many workers as were asked for, if processors and the memory ``left`` on each node suffice; or as many as
        they suffice for."""
        kind = "GPU" if self.on_gpu else "CPU"
        free = int(ray.available_resources().get(kind, 0))
        where = "this machine" if self.cluster.address is None else f"the cluster at {self.cluster.address!r}"
        if free < (self.cluster.workers or 1):
            raise HeadwiseError(
                f"{counted(self.cluster.workers or 1, 'worker')} need as many free {kind}s, and {where} has {free}: "
                + ("give fewer workers" if free else "wait until some are free, or add a node")
            )
        need = self.source.bytes
        wanted = self.cluster.workers or max(1, min(free, room_for(need, left) if need else free))
        refuse_too_many(wanted, need, left, where)
        return wanted

    def _start(self) -> None:
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        if self.on_gpu:
            options["num_gpus"] = 1
        made = ray.remote(_Maker).options(**options)
        actor = _Actor(made.remote(self.source))
        self._actors.append(actor)
        self._asked[actor.handle.begin.remote()] = (actor, None)

    def _settle(self, actor: _Actor, node: str, weight_hash: str) -> None:
        """An actor has loaded the model: the very one of the caller, or the work is refused."""
        if weight_hash != self.source.weight_hash:
            raise HeadwiseError(
                f"the node {node} loads {str(self.source.origin['name'] or 'the default model')!r} with the weights "
                f"{weight_hash[:12]}, and here they are {self.source.weight_hash[:12]}: give every node the same files "
                "(weights that were changed in memory cannot be shared)"
            )
        actor.node = node

    def _lose(self, actor: _Actor, number: int | None, stage: _Stage, kept: bool) -> None:
        """Put back what a lost actor was at, and ask Ray for another one, which waits where no node has room."""
        if actor in self._actors:
            self._actors.remove(actor)
            self._replaced += 1
            if self._replaced <= TRIES * self._wanted:
                self._start()
            remark(f"a worker on {actor.node or 'a node'} was lost: what it was at is begun again")
        if number is None:
            return
        if actor.chunks and actor.chunks[0] == number:  # the others were only waiting for it
            stage.tries[number] += 1
        actor.chunks.remove(number)
        heapq.heappush(stage.left, number)
        if stage.tries[number] >= TRIES:
            raise Interrupted(
                f"{TRIES} workers died at the same part of the work (out of memory, or killed)"
                f"{': what was finished is kept' if kept else ''}; run the same command again to continue, with fewer "
                "workers if memory is short"
            )

    def _watch(self, kept: bool) -> None:
        """Give up once no actor was there for a while."""
        if any(actor.node is not None for actor in self._actors):
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > PATIENCE:
            raise Interrupted(
                f"no node of the cluster has been left for {PATIENCE:.0f} s: "
                f"{'what was finished is kept; ' if kept else ''}run the same command again to continue"
            )

    def _say(self, *, ended: bool = False) -> None:
        """Now and then, and at the end of a stage of many nodes, how much every node has done."""
        now = time.monotonic()
        if now - self._said >= SAID_EVERY or (ended and len(self.made_by) > 1):
            self._said = now
            workers = Counter(actor.node for actor in self._actors)
            nodes = [
                f"{node}: {done} by {counted(workers[node], 'worker')}"
                for node, done in sorted(self.made_by.items())
            ]
            remark(f"done by node: {'; '.join(nodes)}")

    def close(self) -> None:
        """End the actors, and Ray with them if it was started here."""
        for actor in self._actors:
            if ray.is_initialized():
                ray.kill(actor.handle)
        self._actors, self._asked, self._is_open = [], {}, False
        self._open.close()


@dataclass
class _Stage:
    """The chunks of one stage: which are left to begin, which are made, and how many were taken, in their order."""

    job: Any
    chunks: list[Any]
    ahead: int
    taken: int = 0
    made: dict[int, bytes] = field(default_factory=dict)
    tries: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.left = list(range(len(self.chunks)))  # a heap: what was lost is begun again first

    def may_begin(self) -> bool:
        return bool(self.left) and self.left[0] < self.taken + self.ahead

    def in_turn(self) -> Generator[bytes]:
        while self.taken in self.made:
            content = self.made.pop(self.taken)
            self.taken += 1
            yield content


def _cause(error: RayTaskError) -> BaseException:
    """What went wrong in an actor, as if it had happened here."""
    return error.cause if isinstance(error.cause, HeadwiseError) else error
