"""A cluster of Ray as it is asked for, and whether anybody answers there: known before anything heavy is loaded."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from importlib.util import find_spec

from headwise.errors import HeadwiseError

AUTO = "auto"
ANSWERS_WITHIN = 5.0
"""Seconds that a cluster has to answer."""
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client of gRPC says first, which Ray's head answers with a frame of settings (type 4)."""


@dataclass(frozen=True)
class RayCluster:
    """Machines that share a study's work through Ray (``headwise[cluster]``): give it as ``workers=``.

    >>> RayCluster("10.0.0.5")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: '10.0.0.5' is not a cluster's address: give HOST:PORT, such as 10.0.0.5:6379, or auto
    """

    address: str | None = None
    """``HOST:PORT`` of the head, or ``auto`` for the cluster that this machine is a node of; None starts Ray on this
    machine alone, and ends it with the study."""
    workers: int | None = None
    """How many workers, each with the model and a CPU of its own (and a GPU, where the model is on one); None: as many
    as there are free."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise HeadwiseError(f"workers={self.workers} cannot do anything: give 1 or more")
        if self.address not in (None, AUTO):
            host_and_port(str(self.address))


WorkSharing = int | RayCluster
"""Who shares the work of a study: so many processes of this machine, or a cluster."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of an address.

    >>> host_and_port("gpu1.lab:6379")
    ('gpu1.lab', 6379)
    """
    found = re.fullmatch(r"\[?([\w.:-]+?)\]?:([0-9]{1,5})", address, re.ASCII)
    if found is None or not 0 < int(found[2]) < 65536:
        raise HeadwiseError(
            f"{address!r} is not a cluster's address: give HOST:PORT, such as 10.0.0.5:6379, or auto"
        )
    return found[1], int(found[2])


def refuse_unreachable(cluster: RayCluster) -> None:
    """One line now instead of minutes of silence: Ray itself waits long for a cluster that is not there."""
    if find_spec("ray") is None:
        raise HeadwiseError("a cluster needs Ray: install it with `pip install 'headwise[cluster]'`")
    if cluster.address in (None, AUTO):
        return
    try:
        with socket.create_connection(host_and_port(str(cluster.address)), ANSWERS_WITHIN) as line:
            line.settimeout(ANSWERS_WITHIN)
            line.sendall(_PREFACE)
            reply = line.recv(9)
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise HeadwiseError(
            f"no cluster answers at {cluster.address!r} ({why}): start one with `ray start --head --port=6379`, or "
            "leave the address out to work on this machine"
        ) from None
    if len(reply) < 4 or reply[3] != 4:
        raise HeadwiseError(
            f"what answers at {cluster.address!r} is not Ray: give the address that `ray start --head` printed"
        )
