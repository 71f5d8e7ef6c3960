"""A study from its first stage to its result: read where its folder holds it already, else made and written there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from headwise.progress import Progress, stages
from headwise.scale.disk import refuse_small_disk
from headwise.scale.engines import Engine
from headwise.scale.folder import RunFolder
from headwise.scale.stages import Stages


class StudyResult(Protocol):
    """A frozen result that writes itself into an open run folder, and says how long it took."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def write(self, folder: RunFolder, /) -> None: ...


Result = TypeVar("Result", bound=StudyResult)


def run_study(
    kind: str,
    config: Mapping[str, Any],
    find: Callable[[Stages], Result],
    load: Callable[[Path], Result],
    *,
    engine: Engine,
    out: str | Path | None = None,
    progress: Progress | None = None,
    needed: int = 0,
) -> Result:
    """What ``find`` finds by going through stages, with the seconds that it took.

    With ``out`` everything is kept there as it is made, and ``needed`` bytes must be free. A folder whose run is
    finished is only read; what comes back is always what ``load`` finds in the folder.
    """
    began, begin = time.perf_counter(), stages(progress)
    if out is None:
        with closing(engine):
            found = find(Stages(engine, None, begin))
        return replace(found, seconds=time.perf_counter() - began)
    path, folder = Path(out), RunFolder(out, kind, config)
    if not folder.finished:
        refuse_small_disk(path, needed)
        with closing(engine), folder:
            work = Stages(engine, folder, begin)
            with work.trouble_told():
                if not folder.finished:  # by another process, while this one waited for it
                    find(work).write(folder)
    folder.clean()
    return replace(load(path), seconds=time.perf_counter() - began)


def save_result(result: StudyResult, folder: str | Path, kind: str, config: Mapping[str, Any]) -> Path:
    """Make a folder that holds one result: the very files that its study would write."""
    with RunFolder(folder, kind, config) as opened:
        result.write(opened)
    return Path(folder)
