"""``headwise …`` commands in processes of their own, which end when the process that began them does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any

# Its input is a pipe that ends when its parent does, however that ends.
_CHILD = """\
import os, sys, threading
def watch():
    sys.stdin.buffer.read()
    os._exit(130)
threading.Thread(target=watch, daemon=True).start()
from headwise.cli.main import run
run()
"""


def begin_command(
    arguments: Sequence[str], *, said: IO[bytes], printed: IO[bytes] | int = subprocess.DEVNULL
) -> subprocess.Popen[Any]:
    """Begin ``headwise ARGUMENTS``; its progress and complaints go to ``said``, its result to ``printed``."""
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, *arguments],
        stdin=subprocess.PIPE,
        stdout=printed,
        stderr=said,
        env={**os.environ, "HEADWISE_PROGRESS": "1", "NO_COLOR": "1"},
        # Ctrl-C in the terminal is for the parent, which then ends its children.
        start_new_session=True,
    )


def end_command(process: subprocess.Popen[Any], patience: float = 10) -> None:
    """End a command: it may finish the file that it is writing; what is done stays."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
