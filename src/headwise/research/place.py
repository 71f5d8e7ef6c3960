"""The folder of a work that is made again: new, empty, or one that was begun for the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.files import refuse_unwritable, write_json

ASKED = "asked.json"
"""What the folder was begun for."""


def refuse_other_folder(path: Path) -> None:
    """Refuse a place that cannot be written, or that holds what was not made for this."""
    refuse_unwritable(path / ASKED)
    if path.is_dir() and any(path.iterdir()) and not (path / ASKED).is_file():
        raise HeadwiseError(f"{str(path)!r} holds other files: choose a new or empty out= folder")


def begin_folder(path: Path, asked: Mapping[str, Any]) -> None:
    """Make the folder, or go on in one that was begun for the same."""
    refuse_other_folder(path)
    path.mkdir(parents=True, exist_ok=True)
    file = path / ASKED
    if not file.is_file():
        write_json(file, dict(asked))
        return
    before = jsons.read(file, "what was asked", "choose another out= folder")
    if before != dict(asked):
        raise HeadwiseError(
            f"{str(path)!r} was begun for {before} instead of {dict(asked)}: choose another out= folder"
        )
