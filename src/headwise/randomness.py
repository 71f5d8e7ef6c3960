"""Random numbers that depend on a name and not on what was drawn before.

Every draw has its own generator, keyed by seed and labels such as ("train", step). So a run that was
interrupted continues with the very numbers it would have had, and a cell of a grid sees the same data as
when trained alone.
"""

from __future__ import annotations

import hashlib

import torch

from headwise.errors import HeadwiseError


def seeded(seed: int) -> torch.Generator:
    """A generator of this seed.

    >>> seeded(2**64)
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: seed 18446744073709551616 is out of range: give one from 0 to 18446744073709551615
    """
    if not -(2**63) <= seed < 2**64:
        raise HeadwiseError(f"seed {seed} is out of range: give one from 0 to {2**64 - 1}")
    return torch.Generator().manual_seed(seed)


def keyed(seed: int, *labels: object) -> torch.Generator:
    """A generator for these labels.

    >>> a, b = keyed(0, "train", 7), keyed(0, "train", 7)
    >>> bool((torch.rand(3, generator=a) == torch.rand(3, generator=b)).all())
    True
    """
    digest = hashlib.sha256(repr((seed, *labels)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
