"""The one way to read and to write JSON.

What is read comes from outside, so it is held to the letter: no key twice, no NaN or infinity, no number of
thousands of digits, no nesting that ends the interpreter, no half characters. What is written is always JSON:
a number that is not finite becomes null, and no character in it acts on a terminal.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError

DIGITS = 40
"""No count, position, seed or hash in any of our files has more."""
_LONE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
# Legal inside JSON strings, but a terminal or a script acts on them.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MARKUP = re.compile("[<>&]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


class NotJson(ValueError):
    """The text is not JSON as we take it; the message is the reason, short."""


def parse(text: str | bytes) -> Any:
    """The value of one JSON document.

    >>> parse('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    >>> parse('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    headwise.jsons.NotJson: key 'a' occurs twice
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        value = json.loads(
            text,
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_int=_bounded_int,
            parse_float=_finite_float,
        )
        if _LONE.search(text):
            _refuse_halves(value)
    except NotJson:
        raise
    except UnicodeDecodeError as error:
        raise NotJson(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    return value


def read(path: str | Path, what: str, hint: str) -> Any:
    """The value of a JSON file that is to be ``what``; ``hint`` says how one gets a right one."""
    try:
        return parse(Path(path).read_bytes())
    except OSError as error:
        raise HeadwiseError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except NotJson as error:
        raise HeadwiseError(f"{str(path)!r} is not {what} ({error}): {hint}") from None
    except ValueError as error:  # a path with a NUL in it
        raise HeadwiseError(f"cannot read {str(path)!r}: {error}") from None


def dumps(value: Any, *, indent: int | None = 1) -> str:
    """A value as JSON that is valid everywhere.

    >>> dumps({"p": float("nan"), "token": "é\\x9b"}, indent=None)
    '{"p": null, "token": "é\\\\u009b"}'
    """
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, indent=indent)
    return _UNSAFE.sub(_escaped, text)


def for_html(value: Any) -> str:
    """JSON for a script element: no character in it can end the element or open a comment.

    >>> for_html("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _MARKUP.sub(_escaped, _UNSAFE.sub(_escaped, text))


def ascii_only(text: str) -> str:
    """The same JSON document for where only ASCII can be written.

    >>> ascii_only('["é 🍎"]')
    '["\\\\u00e9 \\\\ud83c\\\\udf4e"]'
    """
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def finite(value: Any) -> Any:
    """The value with None for every number that is not finite, as JSON has no other word for them.

    >>> finite({"p": [0.5, float("inf")], "n": (1,)})
    {'p': [0.5, None], 'n': [1]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise NotJson(f"key {key[:60]!r} occurs twice")
        made[key] = value
    return made


def _no_constant(name: str) -> Any:
    raise NotJson(f"{name} is not a number in JSON")


def _bounded_int(digits: str) -> int:
    if len(digits) > DIGITS:
        raise NotJson(f"a number has {len(digits)} digits")
    return int(digits)


def _finite_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise NotJson(f"the number {digits[:20]} is too large")
    return value


def _refuse_halves(value: Any) -> None:
    """A pair of escapes is one character by now; what still cannot be encoded was half of one."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                raise NotJson("a text holds half of a surrogate pair") from None
        elif isinstance(item, dict):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            stack += item
