"""What tests of run folders share: what is in them, damaged bits, and damage that a digest does not show."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save
from torch import Tensor

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.files import sha256_of
from headwise.scale.manifest import FILE, Manifest, read_manifest
from headwise.scale.tensors import seal


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


def sealed_again(tensors: Mapping[str, Tensor], record: Any) -> bytes:
    """A sealed file of any record whatever, as somebody makes it who knows how files are sealed."""
    about = {"names": list(tensors), "record": record}
    about["sha256"] = seal(tensors, about)
    return save(dict(tensors), {"headwise": json.dumps(about)})


def signed_again(folder: Path, names: Iterable[str] = (), **config: Any) -> None:
    """State the digests of files as they are now, as somebody would who changes a run on purpose."""
    found = read_manifest(folder)
    assert found.files is not None
    files = {name: sha256_of(folder / name) for name in (names or found.files)}
    made = Manifest.of(found.kind, {**found.config, **config}, found.versions, files)
    (folder / FILE).write_text(jsons.dumps(made.to_json()) + "\n")
