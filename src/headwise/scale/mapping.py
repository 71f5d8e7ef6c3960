"""The one way to go over many prompts or texts: in chunks, by any engine, resumable where they are kept.

    with closing(map_chunks(job, cut(prompts, 32), engine=engine_for(model, workers), keeper=folder.keeper(0))) as made:
        for one in made: ...

What comes out is the same for every engine and number of workers, and after any interruption: a chunk's content
depends on its items alone, and results come in the order of the chunks. One result is in memory at a time, and as
many more as the engine works ahead.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from headwise.progress import Tick
from headwise.scale.disk import Interrupted
from headwise.scale.engines import Engine, Item, Job, Made
from headwise.scale.work import Chunk, Keeper


def map_chunks(
    job: Job[Item, Made],
    chunks: Sequence[Chunk[Item]],
    *,
    engine: Engine,
    keeper: Keeper | None = None,
    tick: Tick = lambda more: None,
) -> Generator[Made]:
    """What the job makes of each chunk, in their order.

    With a keeper, a chunk that is kept already is read, and any other is kept as soon as it is made; a damaged one is
    made again. ``tick`` hears first of the items that were kept, then of others as they are done. Whoever may leave the
    iterator half-way closes it, so that no worker goes on.
    """
    if keeper is None:
        yield from engine.run(job, chunks, None, tick)
        return
    waiting = [chunk for chunk in chunks if not keeper.has(chunk)]
    todo = {chunk.start for chunk in waiting}
    if len(waiting) < len(chunks):
        tick(sum(len(chunk) for chunk in chunks if chunk.start not in todo))
    with closing(engine.run(job, waiting, keeper, tick)) as made:
        for chunk in chunks:
            if chunk.start in todo:
                yield next(made)
                continue
            content = keeper.read(chunk)
            if content is None:
                raise Interrupted(
                    "a finished part of the work was removed or changed meanwhile: run the same command again"
                )
            yield job.from_bytes(content)
