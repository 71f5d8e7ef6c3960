"""What every number is: one home for the documentation's table and for what a page says of a number.

The entries are in ``numbers.toml``. A page has those that it shows, by the name it gives them (their *label*); a number
that is pointed at is then explained in the same words as in the documentation.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headwise.show.kit.page import part

FILE = "kit/numbers.toml"


@dataclass(frozen=True)
class KnownNumber:
    """One number, in Markdown."""

    name: str
    what: str
    read: str
    labels: tuple[str, ...] = ()
    """What pages call it."""
    formula: str = ""
    source: str = ""
    """Where it comes from: captured, computed, an edited pass, controls."""


@lru_cache(maxsize=1)
def _file() -> dict[str, Any]:
    return tomllib.loads(part(FILE))


def numbers() -> list[KnownNumber]:
    """Every number, in the order of the documentation's table."""
    return [KnownNumber(**{**one, "labels": tuple(one.get("labels", ()))}) for one in _file()["number"]]


@lru_cache(maxsize=1)
def glossary() -> dict[str, Any]:
    """For a page: the numbers by label, how to read an explanation, and what is said about whole figures."""
    found = {
        label: {
            "says": plain(_sentence(one.what) + (f"\nHow to read it: {one.read}." if one.read else "")),
            "formula": one.formula,
            "source": one.source,
        }
        for one in numbers()
        for label in one.labels
    }
    return {"numbers": found, "terms": _file()["term"], "captions": _file()["captions"]}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def table() -> str:
    """The documentation's table."""
    rows = [f"| {one.name} | {one.what} | {one.read} |" for one in numbers()]
    return "\n".join(["| number | what it is | how to read it |", "|---|---|---|", *rows])


def plain(markdown: str) -> str:
    r"""Markdown as text.

    >>> plain(r"the **mean** \|v\| ([Eq. W1](method/why.md#x)), *diffuse*")
    'the mean |v| (Eq. W1), diffuse'
    """
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return re.sub(r"[*`]|\\(?=\|)", "", text)
