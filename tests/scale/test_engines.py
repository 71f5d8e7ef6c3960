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

from headwise.scale.engines import engine_for
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
