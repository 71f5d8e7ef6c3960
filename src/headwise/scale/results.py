"""Results in run folders: their document for people and programs, and the whole value for Python to load again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headwise.errors import HeadwiseError
from headwise.scale.folder import RunFolder
from headwise.scale.manifest import Manifest, damaged, read_finished
from headwise.scale.tensors import Damaged
from headwise.scale.values import Misfit, value_bytes, value_from

Value = TypeVar("Value")

VALUES = "result.safetensors"
"""The whole value: what the document holds, and the arrays behind it."""


def write_result(
    folder: RunFolder,
    document: Mapping[str, Any],
    value: Any,
    *,
    more: Sequence[str] = (),
    without: Sequence[str] = (),
) -> None:
    """Write a result into an open folder of its kind, which is finished with that.

    ``more`` files are there already; ``without`` names fields of the value that are not kept.
    """
    name = f"{folder.manifest.kind}.json"
    # The time it took is no result: the same study writes the same bytes.
    folder.write_json(name, {key: item for key, item in document.items() if key != "seconds"})
    folder.write_bytes(VALUES, value_bytes(value, without=without))
    folder.finish(name, VALUES, *more)


def held_manifest(folder: str | Path, kind: str, make: str) -> Manifest:
    """The manifest of a finished folder of that kind, every file held against its digest."""
    path = Path(folder)
    manifest = read_finished(path, kind, make)
    manifest.hold_against(path, {*(manifest.files or {}), VALUES, f"{kind}.json"})
    return manifest


def read_value(kind: type[Value], folder: str | Path, **given: Any) -> Value:
    """The result in a folder that :func:`held_manifest` has seen; ``given`` are the fields that were not kept."""
    path = Path(folder)
    try:
        return value_from(kind, (path / VALUES).read_bytes(), **given)
    except Misfit:
        raise HeadwiseError(
            f"{str(path)!r} holds a result of another version of headwise, with other parts: "
            "read it with that version, or make the run again"
        ) from None
    except (OSError, Damaged):
        raise damaged(path / VALUES) from None


def load_result(result: type[Value], folder: str | Path, kind: str, make: str) -> Value:
    """What :func:`write_result` wrote."""
    held_manifest(folder, kind, make)
    return read_value(result, folder)
