"""A language model on this machine: a GGUF file, served on loopback for as long as it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.naming.llm.chat import Endpoint

CONTEXT = 8192
"""Tokens of a question and its answer: forty examples of up to a hundred tokens fit in."""


@contextmanager
def served(file: str | Path, *, context: int = CONTEXT) -> Iterator[Endpoint]:
    """Serve a GGUF file at a free port of 127.0.0.1; nothing leaves the machine."""
    path = Path(file)
    if path.suffix != ".gguf" or not path.is_file():
        raise HeadwiseError(f"{str(file)!r} is not a .gguf file: give one")
    try:
        xllamacpp: Any = import_module("xllamacpp")
    except ImportError:
        raise HeadwiseError(
            "a local language model needs the package xllamacpp: pip install 'headwise[local]'"
        ) from None
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # any free one
    params.n_parallel = 1
    params.verbosity = -1
    # Its threads wait for one another by spinning: one too many on a busy machine and all of them crawl.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 2) // 2)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise HeadwiseError(f"{str(file)!r} cannot be served ({str(error).splitlines()[0]})") from None
    try:
        yield Endpoint(f"{server.listening_address}/v1", path.stem)
    finally:
        del server
