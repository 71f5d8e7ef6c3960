"""Prose of reports: a little Markdown, in files beside the reports.

Paragraphs, lists, ``code`` and **weight** are markup; nothing else is. A file has named sections (``## name``)
with places for data in braces, and data is always text: its own stars and backticks stay what they are.
"""

from __future__ import annotations

import re
import string
from functools import cache
from typing import Any

from headwise.show.kit.escape import text
from headwise.show.kit.page import part

_MARK = re.compile(r"\\([\\`*])|``?((?:\\.|[^`\\])+)``?|\*\*((?:\\.|[^*\\])+)\*\*", re.DOTALL)
_SECTION = re.compile(r"^## (.+)\n", re.MULTILINE)
_ITEM = re.compile(r"^[-*] ", re.MULTILINE)


def html(body: str) -> str:
    """Paragraphs and lists.

    >>> html("One < two,\\nin `code`.\\n\\n- a\\n- b")
    '<p>One &lt; two,\\nin <code>code</code>.</p><ul><li>a</li><li>b</li></ul>'
    """
    return "".join(_block(block.strip()) for block in re.split(r"\n\s*\n", body.strip()) if block.strip())


def _block(block: str) -> str:
    if not _ITEM.match(block):
        return f"<p>{inline(block)}</p>"
    items = [item.strip() for item in _ITEM.split(block)[1:]]
    return f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"


def inline(body: str) -> str:
    """Escape, and mark code and weight.

    >>> inline("a < b, `x & y`, **now**")
    'a &lt; b, <code>x &amp; y</code>, <strong>now</strong>'
    """
    parts, at = [], 0
    for found in _MARK.finditer(body):
        escaped, code, strong = found.groups()
        parts.append(text(body[at : found.start()]))
        if escaped:
            parts.append(text(escaped))
        elif code:
            parts.append(f"<code>{text(unmarked(code))}</code>")
        else:
            parts.append(f"<strong>{text(unmarked(strong))}</strong>")
        at = found.end()
    return "".join(parts) + text(body[at:])


def unmarked(body: str) -> str:
    """The words without their marks, for places that can show none.

    >>> unmarked("**now** in `code`")
    'now in code'
    """
    return _MARK.sub(lambda found: found[1] or unmarked(found[2] or found[3]), body)


def literal(data: object) -> str:
    """Data inside Markdown: its own backticks and stars stay what they are.

    >>> inline(f"the prompt `{literal('2**3**')}`")
    'the prompt <code>2**3**</code>'
    """
    # Braces need no care: sections are filled once, and what was filled in is not looked at again.
    return re.sub(r"([\\`*])", r"\\\1", str(data))


class _Filled(string.Formatter):
    """Like ``str.format``, with every piece of text taken literally and white space in front of % kept."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.endswith("%") and isinstance(value, float | int):
            # A per cent sign stands apart from its number, and never at the start of a line.
            return super().format_field(value, format_spec).replace("%", "\u00a0%")
        return literal(value) if isinstance(value, str) else super().format_field(value, format_spec)


class Prose:
    """The sections of a Markdown file of the ``show`` package, by name.

    >>> prose = Prose("## how many\\n\\n{n} circuits of `{model}`, {share:.0%} of all.\\n\\n## empty\\n\\nNone.\\n")
    >>> prose("how many", n=3, model="a*b", share=0.5)
    '3 circuits of `a\\\\*b`, 50\\xa0% of all.'
    """

    def __init__(self, source: str) -> None:
        _, *parts = _SECTION.split(source)
        self.sections = {
            name.strip(): body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)
        }

    @classmethod
    @cache
    def read(cls, name: str) -> Prose:
        """A file of the package, such as ``families/report.md``."""
        return cls(part(name))

    def __call__(self, section: str, /, **data: Any) -> str:
        """A section with its places filled. Text becomes literal; numbers take the format that the file gives."""
        return _Filled().format(self.sections[section], **data)
