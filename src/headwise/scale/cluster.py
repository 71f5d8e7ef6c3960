"""A cluster of Ray as it is asked for, and whether anybody answers there: known before anything heavy is loaded."""

from __future__ import annotations

import os
import re
import socket
import time
from dataclasses import dataclass
from importlib.util import find_spec

from headwise.errors import HeadwiseError

AUTO = "auto"
ANSWERS_WITHIN = 5.0
"""Seconds that a cluster has to answer."""
_SETTINGS, _HEADERS, _DATA, _RESET, _GOODBYE = 4, 1, 0, 3, 7
"""Kinds of frames of HTTP/2."""
_LAST = 1
"""The flag of a stream's last frame."""
_UNKNOWN = b"12"
"""The status by which gRPC says that it has no such service."""


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
            ray = _is_ray(line)
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise HeadwiseError(
            f"no cluster answers at {cluster.address!r} ({why}): start one with `ray start --head --port=6379`, or "
            "leave the address out to work on this machine"
        ) from None
    if not ray:
        raise HeadwiseError(
            f"what answers at {cluster.address!r} is not Ray: give the address that `ray start --head` printed"
        )


# --- is it Ray that answers? ---------------------------------------------------------------------------------------
# Ray itself asks for most of a minute, and complains on the way. One question in the bytes of gRPC tells at once.


def _is_ray(line: socket.socket) -> bool:
    """Whether what answers knows Ray's question for the cluster's id; one that wants a token first does know it."""
    until = time.monotonic() + ANSWERS_WITHIN
    line.settimeout(ANSWERS_WITHIN)
    line.sendall(_question())
    heard, begun = b"", False
    while True:
        if len(heard) > 3 and not begun and heard[3] != _SETTINGS:
            return False  # not even HTTP/2
        while len(heard) >= 9 and len(heard) >= (end := 9 + int.from_bytes(heard[:3], "big")):
            begun = True
            kind, flags, body, heard = heard[3], heard[4], heard[9:end], heard[end:]
            # Ray's gRPC spells its fields out, name and value each behind its length.
            _, found, status = body.partition(b"\x0bgrpc-status") if kind == _HEADERS else (b"", b"", b"")
            if found:
                return status[1 : 1 + status[0]] != _UNKNOWN
            if kind in (_RESET, _GOODBYE) or (kind in (_HEADERS, _DATA) and flags & _LAST):
                return False
        line.settimeout(max(0.001, until - time.monotonic()))
        if not (more := line.recv(4096)):
            return False
        heard += more


def _question() -> bytes:
    """The first bytes of a client of gRPC that asks for the cluster's id."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/ray.rpc.NodeInfoGcsService/GetClusterId",
        ":authority": "ray",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    spelled = "".join(f"\0{chr(len(name))}{name}{chr(len(value))}{value}" for name, value in fields.items())
    nothing = bytes(5)  # a message without content, behind its length
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0)
        + _frame(_HEADERS, 4, 1, spelled.encode())
        + _frame(_DATA, _LAST, 1, nothing)
    )


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
