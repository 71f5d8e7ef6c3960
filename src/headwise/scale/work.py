"""Work in chunks: cut at fixed places, each kept whole or not at all, and never taken for another run's.

Whoever makes a chunk, and whenever, its content depends on its items alone; so an interrupted run goes on with the
very chunks of one that was not.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from headwise.files import replacing

Item = TypeVar("Item")
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Chunk(Generic[Item]):
    """Consecutive items of a stage, from number ``start``."""

    start: int
    items: tuple[Item, ...]

    def __len__(self) -> int:
        return len(self.items)


def cut(items: Sequence[Item], size: int) -> list[Chunk[Item]]:
    """Chunks at fixed places.

    >>> cut("abcde", 2)[-1]
    Chunk(start=4, items=('e',))
    """
    return [Chunk(start, tuple(items[start : start + size])) for start in range(0, len(items), size)]


@dataclass(frozen=True)
class Keeper:
    """Keeps the chunks of one stage in a work folder; a worker process can be handed one.

    ``stamp`` stands for all that a chunk's content depends on besides its items. A file is the SHA-256 of the rest,
    a line that says which chunk of which stage and stamp it is, and the content.
    """

    work: Path
    stage: int
    stamp: str

    def place(self, chunk: Chunk[Item]) -> Path:
        return self.work / f"{self.stage:03d}-{chunk.start:09d}.chunk"

    def _head(self, chunk: Chunk[Item]) -> bytes:
        about = {"stamp": self.stamp, "stage": self.stage, "start": chunk.start, "items": len(chunk)}
        return json.dumps(about).encode() + b"\n"

    def keep(self, chunk: Chunk[Item], content: bytes) -> None:
        body = self._head(chunk) + content
        with replacing(cleared(self.place(chunk))) as part, part.open("wb") as file:
            file.write(hashlib.sha256(body).digest())
            file.write(body)

    def read(self, chunk: Chunk[Item]) -> bytes | None:
        """A chunk's content; None where there is none, or one that is damaged or was made for something else."""
        place = self.place(chunk)
        try:
            whole = place.read_bytes() if stat.S_ISREG(place.lstat().st_mode) else b""
        except OSError:
            return None
        digest, body, head = whole[:_DIGEST], whole[_DIGEST:], self._head(chunk)
        if not body.startswith(head) or hashlib.sha256(body).digest() != digest:
            return None
        return body[len(head) :]

    def has(self, chunk: Chunk[Item]) -> bool:
        return self.read(chunk) is not None


def cleared(place: Path) -> Path:
    """A place for a file of ours: what is no plain file there gives way.

    A link above all: written through, it would change a file that is not ours.
    """
    with suppress(FileNotFoundError):
        mode = place.lstat().st_mode
        if stat.S_ISDIR(mode):
            place.rmdir()
        elif not stat.S_ISREG(mode):
            place.unlink()
    return place


CHUNKS = "[0-9][0-9][0-9]-*.chunk"
"""What kept chunks match."""


def remove_chunks(work: Path) -> None:
    """Remove what keepers made in a work folder, and nothing else."""
    for file in work.glob(CHUNKS):
        with suppress(OSError):
            file.unlink()
