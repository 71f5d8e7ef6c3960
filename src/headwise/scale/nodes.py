"""Ray as the engine finds it: joined or started, its nodes compared with this machine before any work, and left."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.scale.cluster import AUTO, RayCluster, refuse_unreachable
from headwise.scale.folder import package_versions
from headwise.strings import counted, shortened

STORE = 100 * 2**20
"""Bytes of shared memory of a Ray that is started here: what passes through it is chunks, not models."""
COMPARED = ("python", "torch", "transformers", "headwise")
"""Of what a node's versions must be this machine's, so that it makes the same bytes."""

_TOKEN = secrets.token_hex(32)
"""Of every Ray that this process starts, which reads it once."""


@contextmanager
def joined(cluster: RayCluster, workers: int) -> Iterator[None]:
    """Inside, Ray is there: the one that this process uses already, the cluster's, or one of its own."""
    import ray

    refuse_unreachable(cluster)
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    with _started_here(quiet, workers) if cluster.address is None else _joined(str(cluster.address), quiet):
        yield


@contextmanager
def _started_here(quiet: Mapping[str, Any], workers: int) -> Iterator[None]:
    import ray

    # Not the usual temporary folder, whose path may be too long for the sockets in it.
    place = tempfile.mkdtemp(prefix="headwise-", dir="/tmp" if os.access("/tmp", os.W_OK) else None)
    with _set_for_ray():
        try:
            try:
                ray.init(
                    address="local",
                    num_cpus=workers,
                    include_dashboard=False,
                    object_store_memory=STORE,
                    _temp_dir=place,
                    **quiet,
                )
            except Exception as error:  # Ray raises plain ones, too: its parts may be late on a busy machine
                raise _not_started(error, workers) from None
            yield
        finally:
            ray.shutdown()
            shutil.rmtree(place, ignore_errors=True)


def _not_started(error: Exception, workers: int) -> HeadwiseError:
    said = shortened(" ".join(str(error).split()), 200)
    return HeadwiseError(
        f"Ray could not be started on this machine ({said}): try again when it is less busy, or let "
        f"{counted(workers, 'process', 'processes')} share the work without Ray"
    )


@contextmanager
def _set_for_ray() -> Iterator[None]:
    """Inside, what a Ray that is started here reads from the environment, as far as the user has not set it."""
    wanted = {
        # Texts of users are at hand, and nobody was asked whether statistics may be sent.
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's workers are polite to interactive programs by default; these are the command itself.
        "RAY_worker_niceness": "0",
    }
    if "RAY_AUTH_MODE" not in os.environ:
        # Whoever reaches an open Ray can run anything. Ray asks for a token of its own accord, but left to itself it
        # would write one into the home folder. The mode is Ray's to set: it has read it once already, when imported.
        wanted["RAY_AUTH_TOKEN"] = _TOKEN
    before = {name: os.environ.get(name) for name in (*wanted, "RAY_AUTH_MODE")}
    os.environ.update({name: value for name, value in wanted.items() if name not in os.environ})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


@contextmanager
def _joined(address: str, quiet: Mapping[str, Any]) -> Iterator[None]:
    import ray
    from ray.exceptions import RayError

    try:
        ray.init(address=address, **quiet)
    except (RuntimeError, ConnectionError, ValueError, RayError) as error:
        ray.shutdown()
        raise _refused(address, f"{error} {error.__cause__ or ''}") from None
    try:
        yield
    finally:
        ray.shutdown()


def _refused(address: str, said: str) -> HeadwiseError:
    if "uthentication token" in said:
        return HeadwiseError(
            f"the cluster at {address!r} wants its token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as on its nodes"
        )
    if "ersion mismatch" in said:
        return HeadwiseError(
            f"the cluster at {address!r} runs another version of Ray or Python ({' '.join(said.split())[:200]}): "
            "install the same on every node"
        )
    if address == AUTO:
        return HeadwiseError(
            "this machine is not a node of a running cluster: give the head's address as HOST:PORT, or start one "
            "with `ray start --head`"
        )
    said = said.partition("Traceback")[0]  # Ray quotes whole ones
    return HeadwiseError(
        f"the cluster at {address!r} does not take this machine in ({' '.join(said.split())[:200]}): run the command "
        f"on one of its nodes; `ray start --address={address}` makes this machine one"
    )


# --- are all nodes alike? ------------------------------------------------------------------------------------------


def refuse_unlike(origin: Mapping[str, Any]) -> list[int]:
    """Refuse nodes with other versions or without the model's folder: what they made would not be the same bytes.

    Gives the bytes of memory that each of them has left.
    """
    here, left = versions(), list[int]()
    for node, found in _asked_of_nodes(str(origin["name"] or "")):
        left.append(found["memory"])
        for package in COMPARED:
            there = found["versions"].get(package, "not installed")
            if there != here[package]:
                raise HeadwiseError(
                    f"the node {node} has {package} {there}, and this machine {here[package]}: install the same "
                    "versions on every node"
                )
        if found["code"] not in (None, code_digest(_package_folder())):
            raise HeadwiseError(
                f"the node {node} has other files of headwise {here['headwise']} than this machine: install the same "
                "on every node"
            )
        if os.path.isabs(str(origin["name"])) and not found["sees"]:
            raise HeadwiseError(
                f"the node {node} does not see the model's folder {str(origin['name'])!r}: put it on a path that "
                "every node shares, or name a model of the hub"
            )
    return left


def versions() -> dict[str, str]:
    """What is compared, of this machine."""
    return {name: version for name, version in package_versions().items() if name in COMPARED}


def code_digest(folder: Path) -> str:
    """SHA-256 of the package's source: versions alone do not tell two checkouts apart."""
    return _looker()("", str(folder))["code"]


def _package_folder() -> Path:
    return Path(__file__).parent.parent


def _asked_of_nodes(model: str) -> list[tuple[str, dict[str, Any]]]:
    """Of every living node, with its address: its versions, its code, and whether it sees the model's folder."""
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(_looker())
    found: list[tuple[str, Any]] = []
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked = look.options(num_cpus=0, scheduling_strategy=there, max_retries=0).remote(model, None)
            found.append((node["NodeManagerAddress"], asked))
    try:
        return [(address, ray.get(answer, timeout=120)) for address, answer in found]
    except RayError as error:
        last = str(error).strip().splitlines()[-1:]
        raise HeadwiseError(
            f"a node of the cluster does not say which versions it has ({' '.join(last)[:200]})"
        ) from None


def _looker() -> Callable[[str, str | None], dict[str, Any]]:
    """A function that looks around on its machine. Made in here, it travels whole: a node may lack headwise."""

    def look(model: str, folder: str | None) -> dict[str, Any]:
        import contextlib
        import hashlib
        import os
        import platform
        from importlib import metadata, util
        from pathlib import Path

        found = {"python": platform.python_version()}
        for package in ("torch", "transformers", "headwise"):
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                found[package] = "not installed"
        try:
            import torch

            found["torch"] = torch.__version__  # with its build, such as 2.13.0+cpu
        except ImportError:
            pass
        spec = None if folder else util.find_spec("headwise")
        place = folder or (str(Path(spec.origin).parent) if spec and spec.origin else None)
        code = None
        if place:
            digest = hashlib.sha256()
            for file in sorted(Path(place).rglob("*.py")):
                digest.update(str(file.relative_to(place)).encode() + file.read_bytes())
            code = digest.hexdigest()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        with contextlib.suppress(OSError, StopIteration):  # not Linux
            lines = Path("/proc/meminfo").read_text().splitlines()
            memory = int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
        return {"versions": found, "code": code, "sees": Path(model).exists(), "memory": memory}

    return look
