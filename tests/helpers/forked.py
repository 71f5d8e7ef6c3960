"""Commands in processes of their own that need not import torch and transformers first: each is a fork of one process
that has. All that such a process lacks is four seconds of start-up, which other tests have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

RUN = "from headwise.cli.main import run; run()"
PRELOADED = (
    "headwise.research.reproduce",
    "headwise.model.loading.load",
    "headwise.survey.collect",
    "headwise.contrast.study",
    "headwise.cli.circuits",
    "headwise.cli.features",
    "headwise.cli.toy",
    "headwise.show.kit.report",
    "plotly.graph_objects",
    "scipy.stats",
    "transformers.models.gpt_neox.modeling_gpt_neox",
)


class Forked:
    """``python -c CODE ARGUMENTS`` as :class:`subprocess.Popen` would run it; what it says is collected."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        code: str = RUN,
        environment: Mapping[str, str] | None = None,
        said: Path | None = None,
        printed: Path | None = None,
    ) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        read, write = os.pipe()
        line = Connection(write, readable=False)
        given = dict(os.environ) if environment is None else dict(environment)
        self._process = context.Process(
            target=_begin, args=(code, list(arguments), given, line, said, printed or Path(os.devnull))
        )
        self._process.start()
        line.close()
        self._said = bytearray()
        self._reader = threading.Thread(target=self._collect, args=(read,), daemon=True)
        self._reader.start()

    def _collect(self, read: int) -> None:
        with os.fdopen(read, "rb", buffering=0) as line:
            while part := line.read(65536):
                self._said += part

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | Any:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("headwise", timeout or 0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[None, bytes]:
        """Nothing, as nobody reads what it prints, and what it said."""
        self.wait(timeout)
        self._reader.join(timeout)
        return None, bytes(self._said)

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def forked_command(words: Sequence[str], *, said: Any, printed: Any) -> Forked:
    """In the place of :func:`headwise.scale.commands.begin_command`."""
    environment = {**os.environ, "HEADWISE_PROGRESS": "1", "NO_COLOR": "1"}
    return Forked(words, environment=environment, said=Path(said.name), printed=Path(printed.name))


def _begin(
    code: str,
    arguments: list[str],
    environment: dict[str, str],
    line: Connection,
    said: Path | None,
    printed: Path,
) -> None:
    """What a fork does first: take its own streams, words and settings, and forget whose fork it is."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    with printed.open("ab") as out:
        os.dup2(out.fileno(), 1)
    if said is None:
        os.dup2(line.fileno(), 2)
    else:
        with said.open("ab") as err:
            os.dup2(err.fileno(), 2)
    line.close()
    sys.argv = ["-c", *arguments]
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(code, {"__name__": "__main__"})
