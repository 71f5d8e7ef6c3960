"""The folder of one run: it is refused if it holds anything else, one process works there, and a run that is
refused leaves nothing behind.

    with RunFolder(out, "features", config) as folder:   # locked; the same configuration continues
        …
        folder.finish("heads.parquet", "features.json")  # their digests make the run finished

Looking at a folder changes nothing in it. Only names of our own are ever removed.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.files import PART, replacing, sha256_of, unwritable
from headwise.scale import tensors as sealed
from headwise.scale.disk import Interrupted
from headwise.scale.manifest import FILE, Manifest
from headwise.scale.place import WORK, refuse_taken
from headwise.scale.work import Keeper, cleared, remove_chunks

LOCK = "lock"


PACKAGES = ("headwise", "transformers", "safetensors", "numpy", "pyarrow")
"""What a run's numbers and files may depend on, besides torch."""


def package_versions() -> dict[str, str]:
    """The installed versions: what a manifest says besides the configuration."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def opened(
    path: str | Path | None, kind: str, config: Mapping[str, Any]
) -> AbstractContextManager[RunFolder | None]:
    """A run folder to work in, or none where no place was given."""
    return nullcontext() if path is None else RunFolder(path, kind, config)


class RunFolder:
    """A folder of one run. Opening it again with the same configuration continues; with another one is refused,
    unless older runs of the kind are to give way.
    """

    def __init__(
        self,
        path: str | Path,
        kind: str,
        config: Mapping[str, Any],
        *,
        gives_way: bool = False,
    ) -> None:
        self.path, self.gives_way = Path(path), gives_way
        self.manifest = Manifest.of(kind, config, package_versions())
        self._held = ExitStack()
        self._made: list[Path] = []
        self._before: bytes | None = None
        self._written = False
        self._found = self._look()

    def _look(self) -> Manifest | None:
        asked = self.manifest
        found = refuse_taken(self.path, asked.kind)
        if self.gives_way:
            return None
        if found is None or found.asks(asked.kind, asked.config):
            return found
        if found.schema_ != asked.schema_:
            raise HeadwiseError(
                f"{str(self.path)!r} holds a run of an older version, which can be read but not continued: "
                "choose a fresh out= folder"
            )
        other = [key for key in asked.config if found.config.get(key) != asked.config[key]]
        raise HeadwiseError(
            f"{str(self.path)!r} holds another run ({asked.kind} with other {', '.join(other[:3]) or 'settings'}): "
            "choose a fresh out= folder"
        )

    @property
    def finished(self) -> bool:
        """Whether the run that is asked for is there already."""
        return self._found is not None and self._found.files is not None

    @property
    def work(self) -> Path:
        return self.path / WORK

    def keeper(self, stage: int) -> Keeper:
        """Keeps the chunks of a stage of this run."""
        return Keeper(self.work, stage, self.manifest.stamp)

    # --- one process works here ---

    def __enter__(self) -> RunFolder:
        self._written = False
        try:
            self._made = [place for place in (self.path, *self.path.absolute().parents) if not place.exists()]
            if self.work.is_symlink():
                self.work.unlink()
            self.work.mkdir(parents=True, exist_ok=True)
            self._lock()
            self._found = self._look()
            manifest = self.path / FILE
            self._before = manifest.read_bytes() if manifest.exists() else None
            if not self.finished:
                self._remove_parts()
                # Where versions changed, what other versions left has another stamp and is made again.
                self._write_manifest(self.manifest)
        except OSError as error:
            self._leave_work()
            self._held.close()
            for folder in self._made:
                with suppress(OSError):
                    folder.rmdir()
            raise unwritable(self.path, error) from None
        except BaseException:
            self._held.close()
            raise
        return self

    def _lock(self) -> None:
        """A killed process holds no lock."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.work / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise HeadwiseError(
                f"{str(self.path)!r} is being written by another process: wait for it, or choose another out= folder"
            ) from None
        self._held.callback(lock.release)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        refused = isinstance(error, HeadwiseError) and not isinstance(error, Interrupted)
        try:
            if error is None:
                self.clean()
            elif refused and self._found is None and not self._written:
                self._undo()
        finally:
            self._held.close()

    def clean(self) -> None:
        """Remove what a finished run does not need, also from a process that was killed at its end."""
        self._remove_parts()
        remove_chunks(self.work)
        self._leave_work()

    def _leave_work(self) -> None:
        with suppress(OSError):
            (self.work / LOCK).unlink()
        with suppress(OSError):
            self.work.rmdir()

    def _remove_parts(self) -> None:
        for folder in (self.path, self.work):
            for stray in folder.glob(PART):
                with suppress(OSError):
                    stray.unlink()

    def _undo(self) -> None:
        """What cannot be used leaves nothing behind; what was there before stays."""
        if self._before is not None:
            with suppress(OSError), replacing(self.path / FILE) as part:
                part.write_bytes(self._before)
        else:
            (self.path / FILE).unlink(missing_ok=True)
        self.clean()
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()

    # --- files ---

    def place(self, name: str) -> Path:
        """Where a file of this run is to be written."""
        return cleared(self.path / name)

    def _write_manifest(self, manifest: Manifest) -> None:
        text = jsons.dumps(manifest.to_json()) + "\n"
        with replacing(cleared(self.path / FILE)) as part:
            part.write_text(text, encoding="utf-8")

    def finish(self, *names: str) -> None:
        """Record the digests of the run's files; with that it is finished."""
        asked = self.manifest
        files = {name: sha256_of(self.path / name) for name in names}
        self._found = Manifest.of(asked.kind, asked.config, asked.versions, files)
        self._write_manifest(self._found)

    def write_bytes(self, name: str, content: bytes) -> Path:
        """A whole file; an ``OSError`` stays one, for callers with words of their own."""
        with replacing(self.place(name)) as part:
            part.write_bytes(content)
        self._written = True
        return self.path / name

    def write_json(self, name: str, value: Any) -> Path:
        return self.write_bytes(name, (jsons.dumps(value) + "\n").encode())

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor], record: Any) -> Path:
        """Tensors with a JSON record in one file, so that the two cannot disagree after an interruption."""
        return self.write_bytes(name, sealed.to_bytes(tensors, record))

    def read_tensors(self, name: str) -> tuple[dict[str, Tensor], Any] | None:
        """What :meth:`write_tensors` wrote; None if it is not there, or damaged and to be made again."""
        try:
            return sealed.from_bytes((self.path / name).read_bytes())
        except (OSError, sealed.Damaged):
            return None
