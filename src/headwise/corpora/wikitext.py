"""Plain prose out of a dump of a wiki: templates, tables, references, links and formatting are taken off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from xml.etree import ElementTree

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_REFERENCE = re.compile(r"<ref[^>/]*/>|<ref[^>]*>.*?</ref>", re.DOTALL | re.IGNORECASE)
_BLOCK = re.compile(
    r"<(math|gallery|table|timeline|imagemap|code|pre|syntaxhighlight|nowiki)\b[^>]*>.*?</\1>",
    re.DOTALL | re.IGNORECASE,
)
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}|\{\|[^{}]*\|\}")
_PICTURE = re.compile(r"\[\[(?:File|Image|Category):[^\[\]]*(?:\[\[[^\[\]]*\]\][^\[\]]*)*\]\]", re.IGNORECASE)
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_OUTSIDE = re.compile(r"\[(?:https?:)?//\S+\s*([^\]]*)\]")
_TAG = re.compile(r"<[^<>]*>")
_LINE = re.compile(r"^\s*(?:[=*#:;|!]|\{\|)")
_NESTED = 20
"""Templates inside templates that are taken off, from the innermost outwards."""


def articles(dump: bytes) -> Iterator[tuple[str, str]]:
    """Title and plain text of every article of a MediaWiki export; redirects and other pages are left out."""
    root = ElementTree.fromstring(dump)
    space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    for page in root.iter(f"{space}page"):
        said = page.findtext(f"{space}revision/{space}text") or ""
        if page.findtext(f"{space}ns") != "0" or page.find(f"{space}redirect") is not None:
            continue
        yield page.findtext(f"{space}title") or "", plain(said)


def plain(text: str) -> str:
    """A wiki text as paragraphs of prose, separated by empty lines.

    >>> plain("{{Infobox|a={{b}}}}\\n'''Ada''' met [[Charles Babbage|Babbage]].<ref>x</ref>\\n\\n== Work ==\\n* one")
    'Ada met Babbage.'
    """
    text = _BLOCK.sub("", _REFERENCE.sub("", _COMMENT.sub("", text)))
    for _ in range(_NESTED):
        text, taken = _TEMPLATE.subn("", text)
        if not taken:
            break
    text = _PICTURE.sub("", text)
    text = _OUTSIDE.sub(r"\1", _LINK.sub(r"\1", text))
    text = unescape(_TAG.sub("", text)).replace("'''", "").replace("''", "").replace("\xa0", " ")
    lines = [" ".join(line.split()) for line in text.splitlines() if not _LINE.match(line)]
    return "\n\n".join(line for line in lines if line and not set(line) & set("{}[]|"))
