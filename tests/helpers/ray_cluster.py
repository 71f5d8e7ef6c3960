"""A cluster of Ray on loopback: small nodes that a test starts, kills, and always ends."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import alive, children_of

import headwise

HEAD, SECOND = "127.0.0.2", "127.0.0.3"
"""Addresses of loopback; Ray takes 127.0.0.1 itself for the machine's outward address."""
RAY = [sys.executable, "-m", "ray.scripts.scripts"]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(Path(headwise.__file__).parent.parent),
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}


def free_port(host: str = HEAD) -> int:
    with socket.socket() as taken:
        taken.bind((host, 0))
        return int(taken.getsockname()[1])


def below(pid: int) -> list[int]:
    """A process and all that descend from it."""
    return [pid, *(one for child in children_of(pid) for one in below(child))]


class Node:
    """One node: the process that started it, which stays, and everything below that."""

    def __init__(self, *arguments: str, **more: str) -> None:
        small = ["--num-cpus=1", f"--object-store-memory={80 * 2**20}", "--disable-usage-stats", "--block"]
        self.process = subprocess.Popen(
            [*RAY, "start", *arguments, *small],
            env=ENVIRONMENT | more,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.seen = {self.process.pid}

    def look(self) -> None:
        """Remember what runs now: once its parent is gone, a process no longer shows where it came from."""
        self.seen.update(below(self.process.pid))

    def kill(self) -> None:
        """kill -9 for the whole node at once."""
        self.look()
        for pid in self.seen:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + 30
        while any(map(alive, self.seen)) and time.monotonic() < deadline:
            time.sleep(0.05)


class Loopback:
    """A head and a second node, each with one CPU."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def start(self, folder: str, **second: str) -> None:
        port = free_port()
        self.address = f"{HEAD}:{port}"
        head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
        self.nodes.append(Node(*head, f"--node-ip-address={HEAD}"))
        self._wait(port)
        self.nodes.append(Node(f"--address={self.address}", f"--node-ip-address={SECOND}", **second))

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert self.nodes[0].process.poll() is None, "the head did not start"
            try:
                socket.create_connection((HEAD, port), 1).close()
                return
            except OSError:
                time.sleep(0.2)
        raise AssertionError("the head does not answer")

    def wait_for(self, nodes: int) -> None:
        """Until so many nodes are there."""
        script = f"""
import ray, time
ray.init(address={self.address!r}, log_to_driver=False, logging_level="CRITICAL")
until = time.monotonic() + 90
while sum(n["Alive"] for n in ray.nodes()) != {nodes} and time.monotonic() < until:
    time.sleep(0.2)
print(sum(n["Alive"] for n in ray.nodes()))
"""
        done = subprocess.run(
            [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=150
        )
        assert done.stdout.strip() == str(nodes), done.stderr[-500:]
        for node in self.nodes:
            node.look()

    def end(self) -> None:
        for node in reversed(self.nodes):
            node.kill()


@contextmanager
def loopback(**second: str) -> Iterator[Loopback]:
    """Inside, a cluster of two nodes runs; ``second`` are environment variables of the second one alone."""
    # A short path: the sockets of Ray lie in it.
    folder = tempfile.mkdtemp(prefix="hw-ray-", dir="/tmp")
    cluster = Loopback()
    try:
        cluster.start(folder, **second)
        cluster.wait_for(2)
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)
