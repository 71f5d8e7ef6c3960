"""The library speaks of parameters (``query=``), the command line of options (``--query``): the one translation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# A parameter as messages write it: `draws=0 leaves no controls`, `choose another out= folder`.
_PARAMETER = re.compile(r"(?<![\w'\"./-])([a-z][a-z_]*)=(?=(\S?))")


def options(command: Any) -> dict[str, str]:
    """Every parameter of a command and of the commands under it, by the option that sets it."""
    found = {}
    for one in _commands(command):
        for parameter in one.params:
            long = [name for name in parameter.opts if name.startswith("--")]
            found[parameter.name] = long[0] if long else parameter.name.upper()
    return found


def _commands(command: Any) -> Iterator[Any]:
    yield command
    for under in getattr(command, "commands", {}).values():
        yield from _commands(under)


def with_flags(message: str, known: Mapping[str, str]) -> str:
    """A message of the library as the command line says it.

    >>> known = {"out": "--out", "max_rank": "--max-rank"}
    >>> with_flags("max_rank=0 is too small: choose another out= folder (see url?out=3)", known)
    '--max-rank 0 is too small: choose another --out folder (see url?out=3)'
    """

    def said(found: re.Match[str]) -> str:
        if found[1] not in known or found.string[found.start() - 1 : found.start()] in ("?", "&"):
            return found[0]
        return known[found[1]] + ("" if found[2] in ("", ":", ",", ";", ".", ")", "`") else " ")

    return _PARAMETER.sub(said, message)
