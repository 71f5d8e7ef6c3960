"""Who shares the work of a study: the options ``--workers`` and ``--ray``, which every study has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headwise.scale.cluster import WorkSharing

LOCAL = "local"
"""What ``--ray`` without an address stands for."""


def _ray(value: str | None) -> str | None:
    """A cluster that does not answer is told before a model is loaded."""
    if value is not None:
        from headwise.scale.cluster import RayCluster, refuse_unreachable

        refuse_unreachable(RayCluster(None if value == LOCAL else value))
    return value


def with_address(arguments: list[str]) -> list[str]:
    """``--ray`` may be given alone: whatever follows it is an address only if it looks like one.

    >>> with_address(["ioi", "--ray", "--out", "runs"]), with_address(["--ray", "10.0.0.5:6379", "ioi"])
    (['ioi', '--ray=local', '--out', 'runs'], ['--ray=10.0.0.5:6379', 'ioi'])
    """
    made, rest = [], list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*made, word, *rest]
        if word == "--ray":
            given = bool(rest) and re.fullmatch(r"auto|local|[\w.\[\]-]*:.*|[0-9.]+", rest[0]) is not None
            word = f"--ray={rest.pop(0) if given else LOCAL}"
        made.append(word)
    return made


Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that share the work.", metavar="N", show_default="one per core"),
]
MoreWorkers = Annotated[
    int | None, typer.Option(min=1, help="Processes that share the work.", metavar="N", show_default="1")
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Work on a cluster of Ray; without an address, on one that is started here and ended again.",
        metavar="[ADDRESS]",
        callback=_ray,
    ),
]


def share_work(workers: int | None, ray: str | None, alone: int = 1) -> WorkSharing:
    """Who shares the work; ``alone`` is how many processes if nothing is said."""
    from headwise.scale.cluster import RayCluster

    if ray is None:
        return alone if workers is None else workers
    return RayCluster(None if ray == LOCAL else ray, workers)
