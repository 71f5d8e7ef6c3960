"""A small picture of numbers: a mask of dots through which a page's own ink is seen, so that it is right in the light
and in the dark."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

from headwise.show.kit.escape import attribute


def picture(rows: Sequence[str], label: str) -> str:
    """Rows of two hexadecimal digits per dot, 00 for paper and ff for ink, as markup.

    >>> picture(["00ff"], "two dots")[:62]
    '<span class=picture role=img aria-label="two dots" style="mask'
    """
    place = f"mask-image:url(data:image/png;base64,{base64.b64encode(png(rows)).decode()})"
    return f"<span class=picture role=img aria-label={attribute(label)} style={attribute(place)}></span>"


def png(rows: Sequence[str]) -> bytes:
    """The dots as a PNG file of one grey, each as opaque as it is strong.

    >>> png(["00ff", "8000"])[:4]
    b'\\x89PNG'
    """
    lines = [bytes.fromhex(row) for row in rows]
    width = len(lines[0]) if lines else 0
    # Each line begins with its filter (none); each dot is a grey and an opacity.
    data = b"".join(b"\0" + bytes(value for dot in line for value in (0, dot)) for line in lines)
    head = struct.pack(">IIBBBBB", width, len(lines), 8, 4, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*parts, strict=True)))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
