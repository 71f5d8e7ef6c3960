"""A prompt as the command line takes it: as an argument, from standard input or a file, plain or as a chat's turn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headwise.errors import HeadwiseError
from headwise.strings import well_formed

if TYPE_CHECKING:
    from headwise.model.model import Model

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


def as_chat(model: Model, text: str) -> str | list[int]:
    """The text as the user's turn of the model's chat template, up to where the model's own turn begins.

    The template writes the special tokens itself. A tokenizer that would add them once more gets token ids.
    """
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        raise HeadwiseError(f"{model.name} has no chat template: leave out chat=")
    turn = [{"role": "user", "content": text}]
    try:
        whole = str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is a program of the model's author: it may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise HeadwiseError(
            f"the chat template of {model.name} refuses this prompt ({reason}): leave out chat="
        ) from None
    ids = list(tokenizer(whole, add_special_tokens=False).input_ids)
    return whole if list(tokenizer(whole).input_ids) == ids else ids
