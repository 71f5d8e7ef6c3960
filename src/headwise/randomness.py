"""Random numbers that depend on a name and not on what was drawn before.

Every draw has its own generator, keyed by seed and labels such as ("train", step). So a run that was
interrupted continues with the very numbers it would have had, and a cell of a grid sees the same data as
when trained alone.
"""

from __future__ import annotations

import hashlib

import torch

from headwise.errors import HeadwiseError
from headwise.strings import in_short, whole


def seeded(seed: int) -> torch.Generator:
    """A generator of this seed.

    >>> seeded(2**64)
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: seed 18446744073709551616 is out of range: give one from 0 to 18446744073709551615
    """
    number = whole(seed)
    if number is None or not -(2**63) <= number < 2**64:
        problem = "not a whole number" if number is None else "out of range"
        raise HeadwiseError(f"seed {in_short(seed)} is {problem}: give one from 0 to {2**64 - 1}")
    return torch.Generator().manual_seed(number)


def keyed(seed: int, *labels: object) -> torch.Generator:
    """A generator for these labels.

    >>> a, b = keyed(0, "train", 7), keyed(0, "train", 7)
    >>> bool((torch.rand(3, generator=a) == torch.rand(3, generator=b)).all())
    True
    """
    digest = hashlib.sha256(repr((seed, *labels)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
