"""A prompt as the command line takes it: as an argument, from standard input, or from a file."""

from __future__ import annotations

import sys
from pathlib import Path

from headwise.errors import HeadwiseError
from headwise.strings import well_formed

MOST = 10_000_000
"""Bytes of a prompt: far beyond any context, and a wrong file is not read to its end."""


def read_prompt(prompt: str | None, file: Path | None) -> str:
    """The text that is meant, or one line why there is none. The line break that ends a file is not part of it.

    >>> read_prompt(" ", None)
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: the prompt is empty: give the text the model is to read
    """
    if prompt is not None and file is not None:
        raise HeadwiseError(f"PROMPT and --prompt-file {str(file)!r} were both given: leave one of them out")
    if prompt is None and file is None:
        raise HeadwiseError("a prompt is missing: give PROMPT, - for standard input, or --prompt-file FILE")
    if file is not None or prompt == "-":
        prompt = _decoded(_bytes(file), "standard input" if file is None else repr(str(file)))
    assert prompt is not None
    if not prompt.strip():
        raise HeadwiseError("the prompt is empty: give the text the model is to read")
    return well_formed(prompt, "the prompt")


def _bytes(file: Path | None) -> bytes:
    try:
        if file is None:
            return sys.stdin.buffer.read(MOST + 1)
        with file.open("rb") as opened:
            return opened.read(MOST + 1)
    except (OSError, ValueError) as error:
        name = "standard input" if file is None else repr(str(file))
        reason = getattr(error, "strerror", None) or str(error)
        raise HeadwiseError(f"{name} cannot be read ({reason}): give a text file") from None


def _decoded(content: bytes, name: str) -> str:
    if len(content) > MOST:
        raise HeadwiseError(f"{name} holds more than {MOST // 1_000_000} MB: give one prompt")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HeadwiseError(
            f"{name} is not UTF-8 text (byte {error.start}): save it as UTF-8, or give another file"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")
