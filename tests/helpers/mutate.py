"""Valid documents made wrong in one or more places, as hands, other programs and failing disks do it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from headwise.errors import HeadwiseError

HOSTILE_TEXT = (
    "",
    "\x00",
    "\x1b[31m",
    "\u2028",
    "\u202e",
    "a\nb",
    "</script>",
    "L99H99@0<-0",
    "x" * 5000,
    "²",
)
NUMBERS = (-1, 99, 0.5, 2**31, 2**63, -(2**70), 10**45, 1e308, True)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from([*HOSTILE_TEXT, *NUMBERS, [], {}, [[]], {"a": 1}])
)
WRONG_BYTES = (
    b"", b"{", b"null", b"\xff\xfe", b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b'"\\ud800"',
    b'{"a": NaN}', b'{"a": 1, "a": 2}', b'{"a": 1e999}', b"\x00", "{}\u2028{}".encode(),
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in inner for path in ((*at, key), *places(item, (*at, key)))]


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """The document with one to three changes: a value exchanged, left out, doubled, moved or renamed."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        paths = places(changed)
        if not paths:
            break
        *way, last = draw(st.sampled_from(paths))
        holder = changed
        for step in way:
            holder = holder[step]
        match draw(st.sampled_from(["put", "put", "put", "drop", "twice", "take", "rename"])):
            case "put":
                holder[last] = draw(VALUES)
            case "drop":
                del holder[last]
            case "twice" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[last]))
            case "take":
                taken = changed
                for step in draw(st.sampled_from(paths)):
                    taken = taken[step] if _has(taken, step) else taken
                holder[last] = copy.deepcopy(taken)
            case _ if isinstance(holder, dict):
                holder[draw(st.text(max_size=6) | st.sampled_from(HOSTILE_TEXT))] = holder.pop(last)
    return changed


def _has(value: Any, step: Any) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and step < len(value)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """The bytes of a file, cut short, with a bit turned or with something foreign in them."""
    place = st.integers(0, max(len(content) - 1, 0))
    flipped = st.builds(
        lambda at, bit: content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :],
        place,
        st.integers(0, 7),
    )
    cut = place.map(lambda at: content[:at])
    put = st.builds(
        lambda at, new: content[:at] + new + content[at:], place, st.sampled_from(WRONG_BYTES[2:])
    )
    return st.one_of(flipped, cut, put, st.sampled_from(WRONG_BYTES))


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


def is_one_short_line(error: Exception) -> bool:
    """What every refusal must be."""
    line = str(error)
    return 0 < len(line) < 500 and "\n" not in line and line.isprintable()


def tried(read: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """What a reader gives, or how it refuses; anything but a refusal in the project's own words goes on up."""
    try:
        return read(), None
    except HeadwiseError as error:
        return None, error
