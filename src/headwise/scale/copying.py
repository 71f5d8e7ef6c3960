"""Finished runs taken to where others find them: any place that fsspec reaches, each file read back and compared."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.scale.manifest import FILE, Manifest, read_manifest
from headwise.strings import shortened


def copy_run(folder: str | Path, url: str) -> int:
    """Copy a finished run, which stays where it is, to a new place such as ``s3://bucket/runs/ioi``; bytes copied.

    The manifest goes last, so that a copy that was cut off is not taken for a run. A report that lies beside the run's
    own files goes along.
    """
    path, manifest = Path(folder), finished_run(folder)
    files = manifest.files or {}
    manifest.hold_against(path, files)
    beside = [name for name in ("report.html",) if (path / name).is_file() and name not in files]
    return _sent(path, [*files, *beside, FILE], url)


def finished_run(folder: str | Path) -> Manifest:
    """The manifest of a run of any kind, which must be finished."""
    path = Path(folder)
    if not (path / FILE).is_file():
        raise HeadwiseError(f"{str(path)!r} holds no run: give the folder that a study was asked to keep")
    manifest = read_manifest(path)
    if manifest.files is None:
        raise HeadwiseError(
            f"the run in {str(path)!r} is not finished: run the same command again to continue it, then copy it"
        )
    return manifest


def _sent(path: Path, names: list[str], url: str) -> int:
    shown, count = shortened(url), 0
    try:
        place, root = _place(url)
        if place.exists(root) and place.find(root):
            raise HeadwiseError(f"{shown!r} holds files already: choose a new place")
        place.makedirs(root, exist_ok=True)
        for name in names:
            content, target = (path / name).read_bytes(), f"{root.rstrip('/')}/{name}"
            place.pipe_file(target, content)
            if hashlib.sha256(place.cat_file(target)).digest() != hashlib.sha256(content).digest():
                raise HeadwiseError(
                    f"{name!r} does not come back from {shown!r} as it was sent: copy it again"
                )
            count += len(content)
    except HeadwiseError:
        raise
    except Exception as error:  # every kind of place has exceptions of its own
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise HeadwiseError(
            f"cannot copy to {shown!r} ({said}): look at the address, and who may write there"
        ) from None
    return count


def _place(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    try:
        return url_to_fs(url)
    except ImportError as error:
        raise HeadwiseError(
            f"{shortened(url)!r} needs one more package: {' '.join(str(error).split())}"
        ) from None
    except ValueError as error:
        raise HeadwiseError(f"{shortened(url)!r} is no place that fsspec reaches ({error})") from None
