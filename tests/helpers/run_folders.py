"""What tests of run folders share: what is in them, damaged bits, and damage that a digest does not show."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.files import sha256_of
from headwise.scale.manifest import FILE, Manifest, read_manifest


def one_line(attempt: Callable[[], Any]) -> str:
    """The line with which something is refused."""
    with pytest.raises(HeadwiseError) as caught:
        attempt()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def flips(content: bytes, count: int, seed: str) -> Iterator[bytes]:
    """The content with one bit turned over, at ``count`` places."""
    draw = random.Random(seed)
    for place in sorted(draw.sample(range(8 * len(content)), min(count, 8 * len(content)))):
        other = bytearray(content)
        other[place // 8] ^= 1 << place % 8
        yield bytes(other)


@contextmanager
def holding(file: Path, content: bytes) -> Iterator[None]:
    """A file with other content for a while."""
    before = file.read_bytes()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(before)


def signed_again(folder: Path, names: Iterable[str] = (), **config: Any) -> None:
    """State the digests of files as they are now, as somebody would who changes a run on purpose."""
    found = read_manifest(folder)
    assert found.files is not None
    files = {name: sha256_of(folder / name) for name in (names or found.files)}
    made = Manifest.of(found.kind, {**found.config, **config}, found.versions, files)
    (folder / FILE).write_text(jsons.dumps(made.to_json()) + "\n")
