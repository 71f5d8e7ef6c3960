"""The one place where text becomes part of a page or of a figure.

Prompts, tokens, labels, names and files may hold anything. On a page they are text: never an element, an
attribute, a script, a link, or a mark that turns the words around it. Characters without a shape are written
out, as they are on the terminal.
"""

from __future__ import annotations

import html
import re
from typing import Any

from headwise import jsons
from headwise.strings import printable

_TAGS = re.compile("&lt;(/?(?:br|b|extra))&gt;")


def text(value: object) -> str:
    """Text between tags.

    >>> text("<b> & \\x00")
    '&lt;b&gt; &amp; \\\\x00'
    """
    return html.escape(printable(str(value)), quote=False)


def attribute(value: object) -> str:
    """An attribute's value with its quotes, so that it cannot be written without them.

    >>> attribute('" onclick="alert(1)')
    '"&quot; onclick=&quot;alert(1)"'
    """
    return f'"{html.escape(printable(str(value)), quote=True)}"'


def script_json(value: Any) -> str:
    """Data for a script element of the type ``application/json``."""
    return jsons.for_html(value)


def label(value: str) -> str:
    """Text in a Plotly figure: Plotly reads tags and entities in every string that it draws. A line feed is a
    line break; nothing else is markup.

    >>> label("<a href='https://x'>1 & 2</a>\\n3")
    "&lt;a href='https://x'&gt;1 &amp; 2&lt;/a&gt;<br>3"
    """
    return text(value).replace("\n", "<br>")


def template(value: str) -> str:
    """A hover text of our own, in which Plotly puts data that :func:`label` made: a few tags are ours, no other is.

    >>> template("%{x}<br>%{text}<extra></extra><a href='x'>")
    "%{x}<br>%{text}<extra></extra>&lt;a href='x'&gt;"
    """
    return _TAGS.sub(r"<\1>", text(value))
