"""Run folders: those that were named on the command line, and nothing else of the disk."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from headwise.errors import HeadwiseError
from headwise.scale.manifest import FILE as MANIFEST
from headwise.scale.manifest import read_manifest

_HEAD_PAGE = re.compile(r"L\d+H\d+\.html")


@dataclass(frozen=True)
class Run:
    """One folder."""

    path: Path

    @classmethod
    def named(cls, given: str | Path) -> Run:
        """A folder that a user names; what is none is refused."""
        try:
            path = Path(given).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise HeadwiseError(
                f"the run folder {str(given)!r} cannot be opened ({reason}): name another one"
            ) from None
        if not path.is_dir():
            raise HeadwiseError(f"{str(given)!r} is not a folder: name a run folder")
        return cls(path)

    @property
    def kind(self) -> str | None:
        """What was studied in it; None where it does not say."""
        try:
            return read_manifest(self.path).kind
        except HeadwiseError:
            return None

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """What its manifest is told apart by, and how many saved pages there are; None where there is no manifest."""
        try:
            told = (self.path / MANIFEST).stat()
            return (
                told.st_mtime_ns,
                told.st_size,
                sum(name.endswith(".html") for name in os.listdir(self.path)),
            )
        except OSError:
            return None

    @property
    def finished(self) -> bool:
        """Whether it says that all of its files are there."""
        try:
            return read_manifest(self.path).files is not None
        except HeadwiseError:
            return False

    @property
    def model(self) -> str | None:
        """The model that it is of, by name."""
        try:
            named = read_manifest(self.path).config.get("model")
        except HeadwiseError:
            return None
        return named if isinstance(named, str) else None

    @property
    def weight_hash(self) -> str | None:
        """The digest of that model's weights."""
        try:
            stated = read_manifest(self.path).config.get("weight_hash")
        except HeadwiseError:
            return None
        return stated if isinstance(stated, str) else None

    @property
    def pages(self) -> tuple[str, ...]:
        """Its saved pages, by name; not those of an atlas's heads, to which its index leads."""
        found = sorted(file.name for file in self.path.glob("*.html") if self.page(file.name) is not None)
        return tuple(name for name in found if not _HEAD_PAGE.fullmatch(name))

    def page(self, name: str) -> Path | None:
        """A saved page of this folder."""
        return self.file(name) if name.endswith(".html") else None

    def file(self, name: str) -> Path | None:
        """A plain file that is really in this folder."""
        if Path(name).name != name:
            return None
        try:
            found = (self.path / name).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            return None
        return found if found.parent == self.path.resolve() and found.is_file() else None
