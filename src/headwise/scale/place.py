"""Whether a folder may become the folder of a run: known before any work, and without loading anything heavy."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatch
from pathlib import Path

from headwise.errors import HeadwiseError
from headwise.files import PART, refuse_unwritable, unwritable
from headwise.scale.manifest import FILE, Manifest, quoted_kind, read_manifest

WORK = ".headwise-work"


def refuse_taken(path: str | Path, kind: str) -> Manifest | None:
    """Refuse a folder in which no run of this kind can begin or continue; the manifest, if there is one already.

    >>> refuse_taken("/usr", "features")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: '/usr' holds other files (...): choose an out= folder that is empty or new
    """
    found = None
    if _has_manifest(path):
        found = read_manifest(Path(path))
        if found.kind != kind:
            raise HeadwiseError(
                f"{str(path)!r} holds another run ({quoted_kind(found)}, not {kind}): choose a fresh out= folder"
            )
    if found is None or found.files is None:
        _try(path)
    return found


def refuse_foreign(path: str | Path) -> None:
    """Refuse a folder that no run of any kind may use: it cannot be written, or holds what no run has made."""
    if not _has_manifest(path):
        _try(path)


_URL = re.compile(r"[a-z][a-z0-9+.-]+:/")
"""How a URL begins, also as a path, which joins its two slashes; a drive of one letter does not."""


def _has_manifest(path: str | Path) -> bool:
    if _URL.match(str(path)):
        raise HeadwiseError(
            f"{str(path)!r} is a URL, and a study works in a folder: choose an out= folder on a disk, and copy the "
            "finished run with `headwise copy RUN URL`"
        )
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        if os.path.islink(path):
            raise HeadwiseError(f"{str(path)!r} is a link to nothing: choose another out= folder") from None
        return False
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None
    if FILE in names:
        return True
    strange = sorted(name for name in names if name != WORK and not fnmatch(name, PART))
    if strange:
        raise HeadwiseError(
            f"{str(path)!r} holds other files ({strange[0]!r}{' …' if len(strange) > 1 else ''}): "
            "choose an out= folder that is empty or new"
        )
    return False


def _try(path: str | Path) -> None:
    try:
        refuse_unwritable(Path(path) / FILE)
    except HeadwiseError as error:
        raise HeadwiseError(str(error).replace(str(Path(path) / FILE), str(path), 1)) from None
