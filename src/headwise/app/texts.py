"""Prompts that are too long for an address: kept in the cache folder, where a link names them by their digest.

Such a link opens on this machine only. What was kept is compared with its digest before it is given back, so a file
that was changed is as good as none.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from headwise.files import write_text
from headwise.model.loading.store import cache_folder


def kept_texts() -> Path:
    """The folder that they are kept in."""
    return cache_folder() / "prompts"


def digest_of(text: str) -> str:
    """The name of a text: the SHA-256 of its UTF-8."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def keep_text(text: str) -> str:
    """Keep a text; its digest."""
    digest = digest_of(text)
    file = kept_texts() / f"{digest}.txt"
    if kept_text(digest) is None:
        write_text(file, text)
    return digest


def kept_text(digest: str) -> str | None:
    """A text by its digest; None where it is not here."""
    try:
        # As it was written: a line may end in any way.
        text = (kept_texts() / f"{digest}.txt").read_bytes().decode()
    except (OSError, ValueError):
        return None
    return text if digest_of(text) == digest else None
