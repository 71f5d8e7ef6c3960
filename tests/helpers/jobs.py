"""Jobs that worker processes of tests can import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headwise.scale.work import Chunk


@dataclass(frozen=True, eq=False)
class SumJob:
    """Adds up its tensors and a chunk's items."""

    tensors: tuple[Tensor, ...]

    def make(self, model: Any, chunk: Chunk[int], tick: Any, /) -> int:
        return sum(chunk.items) + sum(int(one) for one in self.tensors)

    def to_bytes(self, made: int, /) -> bytes:
        return str(made).encode()

    def from_bytes(self, content: bytes, /) -> int:
        return int(content)
