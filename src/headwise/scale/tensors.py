"""Tensors with a JSON record in one file that is sealed: a flipped bit is noticed, and their order comes back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headwise import jsons


class Damaged(ValueError):
    """The bytes are not those that were written."""


def to_bytes(tensors: Mapping[str, Tensor], record: Any = None) -> bytes:
    """A safetensors file whose one line of metadata holds the record, the tensors' order and a digest of all."""
    from safetensors.torch import save

    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    about = {"names": list(plain), "record": jsons.parse(jsons.dumps(record))}
    about["sha256"] = seal(plain, about)
    return save(plain, {"headwise": json.dumps(about)})


def from_bytes(content: bytes) -> tuple[dict[str, Tensor], Any]:
    """The tensors in the order in which they were given, and the record.

    >>> from_bytes(to_bytes({"b": torch.ones(2), "a": torch.zeros(1)}, {"step": 3}))
    ({'b': tensor([1., 1.]), 'a': tensor([0.])}, {'step': 3})
    >>> from_bytes(to_bytes({"b": torch.ones(2)}).replace(b"?", b">"))
    Traceback (most recent call last):
    ...
    headwise.scale.tensors.Damaged: the digest is another one
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        size = int.from_bytes(content[:8], "little")
        header = jsons.parse(content[8 : 8 + size])
        about = jsons.parse(header["__metadata__"]["headwise"])
        found = load(content)
        tensors = {name: found[name] for name in about["names"]}
        stated = about.pop("sha256")
        sound = len(found) == len(tensors) and stated == seal(tensors, about)
        record = about["record"]
    except (
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RuntimeError,
    ):
        raise Damaged("not tensors as they were written") from None
    if not sound:
        raise Damaged("the digest is another one")
    return tensors, record


def seal(tensors: Mapping[str, Tensor], about: Any) -> str:
    """SHA-256 of names, types, shapes and bytes, and of what is said about them."""
    shapes = [[name, str(value.dtype), list(value.shape)] for name, value in tensors.items()]
    digest = hashlib.sha256(json.dumps([about, shapes], sort_keys=True).encode())
    for value in tensors.values():
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
