"""Prompts that were read, kept while there is room: another cell of the same prompt needs no new pass."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from headwise.app.patterns import Glance
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.planning.plan import held_bytes
from headwise.scale.disk import size_text
from headwise.scale.machine import memory_left
from headwise.why.question import PromptReading

_ASKED = re.compile(r"allocate ([\d.]+ \w+)")
ROOM = 1 << 30
"""Bytes of prompts that are kept; the one in use is, however large it is."""


@dataclass(eq=False)
class KeptPrompt:
    """One prompt, and what was made of it."""

    read: PromptReading
    glance: Glance | None = None
    looking: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Held while the glance is made."""

    @property
    def size(self) -> int:
        """Bytes: what is looked up later grows with use, so it is measured anew each time."""
        stream = self.read.up.stream
        parts = [self.read.up, stream, *stream.layers, *(record.call for record in stream.layers)]
        held = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for part in parts
            for tensor in _tensors(vars(part))
        }
        return sum(held.values()) + (self.glance.size if self.glance else 0)


class TooLarge(HeadwiseError):
    """There was not enough memory."""


@dataclass(frozen=True)
class _ModelSize:
    layers: int
    heads: int
    d_model: int
    vocabulary: int


def said_of_memory(
    error: BaseException, longest: int = 0, tokens: int = 0, model: Model | None = None
) -> BaseException:
    """In one line what memory did not suffice for, what it would have needed and what fits; any other error as it is.

    ``tokens`` is the length of what was asked about, ``longest`` that of the longest prompt that was read.
    """
    lacking = isinstance(error, RuntimeError) and re.search("(not enough|out of) memory", str(error))
    if not (lacking or isinstance(error, MemoryError)):
        return error
    asked = _ASKED.search(str(error))
    said = "there is not enough memory for this" + (f" ({asked[1]} more were wanted)" if asked else "")
    fits = [f"one of {longest} tokens was read before"] if longest else []
    if model is not None and tokens:
        widths = _ModelSize(model.n_layers, model.n_heads, model.d_model, model.vocabulary)
        need, left = held_bytes(widths, tokens), _left(model.device)
        said += f": {tokens} tokens need about {size_text(need)} beside the weights"
        if left < need:
            said += f", and {size_text(left)} are free"
            fits.insert(0, f"about {left * tokens // need} tokens would fit")
    return TooLarge(f"{said}; give a shorter prompt" + (f": {', '.join(fits)}" if fits else ""))


def _left(device: torch.device) -> int:
    """Bytes that are free where the model is."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else memory_left()


class Memory:
    """Prompts by their id, the one that was used last at the end."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self._kept: OrderedDict[str, KeptPrompt] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> KeptPrompt | None:
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
            return self._kept.get(name)

    def put(self, name: str, kept: KeptPrompt) -> None:
        """Keep a prompt, and let go of those that were not used for longest until the rest has room."""
        with self._lock:
            self._kept[name] = kept
            self._kept.move_to_end(name)
        self.tidy()

    def tidy(self) -> None:
        """After work on a prompt, which may have made it larger."""
        with self._lock:
            sizes = {name: kept.size for name, kept in self._kept.items()}
            total = sum(sizes.values())
            for name in list(self._kept)[:-1]:
                if total <= self.room:
                    return
                total -= sizes[name]
                del self._kept[name]

    def clear(self) -> None:
        """Of a model that is no longer there."""
        with self._lock:
            self._kept.clear()

    def __len__(self) -> int:
        return len(self._kept)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
