"""Where a model is: one that is known by name, a folder, a ``.gguf`` file or a hub id."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.model.loading import folder, store
from headwise.model.loading.catalogue import DEFAULT, is_known, known
from headwise.strings import shortened


@dataclass(frozen=True)
class ModelPlace:
    """What transformers is to be given: a folder, or a hub id with its revision."""

    name: str
    where: str
    source: str
    revision: str | None = None

    @property
    def local(self) -> bool:
        return self.revision is None


def place_of(name: str | Path | None, revision: str | None) -> ModelPlace:
    text = DEFAULT if name is None else str(name)
    try:
        path = Path(text).expanduser()
        here = path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, the home of nobody
        reason = getattr(error, "strerror", None) or error
        raise HeadwiseError(f"{shortened(text)!r} cannot name a model: {reason}") from None
    if isinstance(name, Path) or is_known(text) or here or _looks_like_path(text):
        if revision is not None:
            raise HeadwiseError(f"revision={revision!r} is for hub models; {text!r} is not one")
        if is_known(text) and not isinstance(name, Path):
            return ModelPlace(text, str(store.ensure(text)), source=known(text).title)
        return _local(text, path)
    if not re.fullmatch(r"(?:[\w.-]+/)?[\w.-]+", text):
        raise HeadwiseError(
            f"{text!r} is neither a file or folder nor a hub id such as 'gpt2' or 'owner/name'"
        )
    chosen = revision or "main"
    return ModelPlace(text, text, source=f"{text} at {chosen}", revision=chosen)


def refuse_remote(name: object) -> None:
    """Refuse a model that a file names unless it is on this machine: a file may not send its reader to the hub."""
    if isinstance(name, str) and name:
        with suppress(OSError, ValueError, RuntimeError):
            if is_known(name) or Path(name).expanduser().exists():
                return
    given = repr(shortened(name)) if isinstance(name, str) and name else "no model"
    raise HeadwiseError(
        f"the run names {given}, which is neither a known model nor a folder here: give the model that was traced "
        "with model="
    )


def _looks_like_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~", ".\\")) or text.endswith(".gguf") or "\\" in text


def _local(text: str, path: Path) -> ModelPlace:
    if not path.exists():
        raise HeadwiseError(f"there is no file or folder {text!r}")
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise HeadwiseError(f"{text!r} is a file: give a model's folder, a .gguf file or a hub id")
        return ModelPlace(path.stem, str(store.from_gguf(path)), source=str(path.absolute()))
    try:
        lacks = folder.missing_parts(path)
    except OSError as error:
        raise HeadwiseError(f"the folder {text!r} cannot be read: {error.strerror or error}") from None
    if folder.CONFIG in lacks:  # with it, more can be said: which architecture it is comes first
        raise folder.incomplete(text, lacks)
    return ModelPlace(path.absolute().name, str(path), source=str(path.absolute()))


def hub_reachable() -> bool:
    import os
    import socket
    from urllib.parse import urlsplit

    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False  # whoever sets this wants no traffic at all
    if any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True  # a proxy may reach what this machine cannot
    hub = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection(
            (hub.hostname or "", hub.port or (80 if hub.scheme == "http" else 443)), 5
        ).close()
    except OSError:
        return False
    return True


def find_file(place: ModelPlace, file: str, given: dict[str, Any]) -> Path | None:
    """A file of the model on this machine, fetched if the model is on the hub; None if the model has none."""
    if place.local:
        path = Path(place.where, file)
        return path if path.is_file() else None
    from transformers.utils.hub import cached_file

    asked = {key: value for key, value in given.items() if key != "trust_remote_code"}
    found = cached_file(place.where, file, _raise_exceptions_for_missing_entries=False, **asked)
    return None if found is None else Path(found)
