"""Worker processes: what they are handed, and how long they stay."""

from __future__ import annotations

import resource
from contextlib import closing
from multiprocessing import active_children
from pathlib import Path

import pytest
import torch
from jobs import SumJob
from toy_answers import small_model

from headwise.errors import HeadwiseError
from headwise.scale import engines
from headwise.scale.cluster import RayCluster
from headwise.scale.engines import ModelSource, engine_for
from headwise.scale.mapping import map_chunks
from headwise.scale.work import Keeper, cut


@pytest.mark.slow
def test_a_job_may_hold_more_tensors_than_a_process_may_open_files(tmp_path: Path) -> None:
    """And the processes of one stage, whose chunks are kept, are those of the next."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    job = SumJob(tuple(torch.tensor(1) for _ in range(400)))
    pids = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        with closing(engine_for(small_model(), 2)) as engine:
            for stage in range(2):
                keeper = Keeper(tmp_path, stage, "stamp")
                made = list(map_chunks(job, cut(range(6), 2), engine=engine, keeper=keeper))
                assert made == [401, 405, 409]
                pids.append({child.pid for child in active_children()})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(pids[0]) == 2 and pids[0] == pids[1]
    assert not active_children()


def test_workers_that_memory_cannot_hold_are_refused_before_any_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = small_model()
    need = sum(one.nbytes for one in model.hf.parameters())
    monkeypatch.setattr(engines, "memory_left", lambda: int(2.5 * need))
    engine_for(model, 2).close()
    with pytest.raises(
        HeadwiseError, match=r"^workers=3 would hold .* of memory left: give workers=2 or fewer$"
    ):
        engine_for(model, 3)
    monkeypatch.setattr(engines, "memory_left", lambda: need - 1)
    with pytest.raises(HeadwiseError, match="load the model in a smaller precision, or spread it"):
        engine_for(model, 2)
    engine_for(model, 1)  # this process has the model already
    assert not active_children()


def test_workers_of_a_cluster_fit_into_the_memory_of_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = pytest.importorskip("headwise.scale.actors", reason="needs Ray", exc_type=ImportError)
    monkeypatch.setattr(actors.ray, "available_resources", lambda: {"CPU": 8.0})
    source = ModelSource({"name": "m"}, "hash", bytes=10**9)

    def workers(asked: int | None, *left: float) -> int:
        cluster = RayCluster("head:6379", workers=asked)
        return actors.Actors(source, cluster, on_gpu=False)._how_many([int(one * 10**9) for one in left])

    assert workers(None, 2.5, 1.5) == 3  # what is left over on two nodes is no place for a model
    assert workers(None, 40) == 8
    assert workers(3, 2.5, 1.5) == 3
    with pytest.raises(HeadwiseError) as refused:
        workers(4, 2.5, 1.5)
    assert str(refused.value) == (
        "workers=4 would hold 4.0 GB of weights (1.0 GB each), and the cluster at 'head:6379' has 4.0 GB of memory "
        "left: give workers=3 or fewer"
    )
    with pytest.raises(
        HeadwiseError, match=r"has 900\.0 MB of memory left: load the model in a smaller precision"
    ):
        workers(None, 0.9)
