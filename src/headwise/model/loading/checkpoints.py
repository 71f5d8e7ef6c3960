"""Checkpoints of a training as a user names them: known without any model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headwise.errors import HeadwiseError


def require_series(checkpoints: Sequence[str | Path]) -> None:
    """Refuse fewer checkpoints than a trajectory has.

    >>> require_series(["org/model@step-1000"])
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: a trajectory over training needs at least two checkpoints, and only
    'org/model@step-1000' was given: give more
    """
    if len(checkpoints) < 2:
        given = f"only {str(checkpoints[0])!r} was given" if checkpoints else "none was given"
        raise HeadwiseError(
            f"a trajectory over training needs at least two checkpoints, and {given}: give more"
        )


def name_and_revision(checkpoint: str) -> tuple[str, str]:
    """A checkpoint's name and revision; a folder's name may hold an @.

    >>> name_and_revision("org/model@step-1000")
    ('org/model', 'step-1000')
    """
    if os.path.exists(checkpoint):
        return checkpoint, ""
    name, _, revision = checkpoint.partition("@")
    return name, revision
