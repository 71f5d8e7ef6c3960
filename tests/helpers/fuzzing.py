"""Inputs made to break things, and what every one of them has to end in: a result, or one clear line."""

from __future__ import annotations

import copy
import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from headwise.errors import HeadwiseError

INPUTS = int(os.environ.get("HEADWISE_FUZZ", "2000"))
"""How many inputs a whole run tries, over all targets."""
LONGEST = 500
"""Characters that a refusal may have."""
COUNTS: Counter[tuple[str, str]] = Counter()
"""(target, how it ended) of every input tried, for the summary at the end."""

_TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def tried(share: float) -> Any:
    """Settings of a target that gets this share of all inputs."""
    return settings(
        max_examples=max(10, round(share * INPUTS)),
        deadline=None,
        derandomize="HEADWISE_FUZZ" not in os.environ,  # a run of the suite must not fail by luck; a hunt may
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


def ends_well(target: str, call: Callable[[], Any]) -> Any:
    """Run the call: its result, or None where it was refused in one line that can be shown to a person."""
    try:
        result = call()
    except HeadwiseError as error:
        line_is_fit(str(error))
        COUNTS[target, "refused"] += 1
        return None
    COUNTS[target, "taken"] += 1
    return result


def line_is_fit(line: str) -> None:
    """A refusal is one short line without anything in it that acts on a terminal or cannot be written."""
    assert line.strip(), "an empty refusal"
    assert len(line) <= LONGEST, f"a refusal of {len(line)} characters: {line[:200]!r}"
    assert "\n" not in line and "Traceback" not in line, line


def screen_is_fit(text: str) -> None:
    """What reached a terminal leaves it as it was."""
    found = _TERMINAL.search(text)
    assert not found, f"{found[0]!r} in {text[max(0, found.start() - 40) : found.end() + 40]!r}"


NO_FILES = (
    b"",
    b"{",
    b"null",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"1" * 5000,
    b'"\\ud800"',
    b'{"a": NaN}',
    b'{"a": 1, "a": 2}',
    b'{"a": 1e999}',
    b"\x00",
    "{}\u2028{}".encode(),
)
"""Contents that are no file of ours, and that a careless reader dies of."""


def texts() -> st.SearchStrategy[str]:
    """Texts that people or files may hold: ordinary, empty, of every script, with controls, halves and markup."""
    nasty = st.sampled_from(
        [
            "",
            " ",
            "\x00",
            "a\x00b",
            "\x1b[31mred",
            "\x9b1m",
            "\ud800",
            "caf\udce9",
            "\u2028",
            "\u202e",
            "🍎" * 3,
            "9" * 5000,
            "²",
            "١٢",
            "-1",
            "1e999",
            "NaN",
            "<img src=x onerror=alert(1)>",
            "</script>",
            "a" * 300,
            "../../x",
            "/dev/full",
            "/proc/self/mem",
            "%s%n",
            "{{policy}}",
            "$(touch x)",
            "'; rm",
            "--json",
            "-",
            "--",
            "L0H0",
            "L9999999999H1",
            "0.0",
            "a1.h1",
            "L1H99",
            "L-1H0",
            "\ufeff",
            "\r\n",
            "\t",
            " Mary",
            "Ġ",
        ]
    )
    return st.one_of(nasty, st.text(max_size=40), st.text(st.characters(codec="ascii"), max_size=12))


def values() -> st.SearchStrategy[Any]:
    """Any JSON value, and numbers at the edges of what numbers can be."""
    numbers = st.sampled_from(
        [0, 1, -1, 2, 7, 99, 2**31, 2**63, 2**64, -(2**63), 10**40, 0.5, -0.0, 1e308, 1e-320, True, False]
    )
    leaves = st.one_of(st.none(), numbers, texts())
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=8,
    )


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    found = [at]
    if isinstance(value, dict):
        found += [place for key, item in value.items() for place in places(item, (*at, key))]
    elif isinstance(value, list):
        found += [place for key, item in enumerate(value) for place in places(item, (*at, key))]
    return found


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The value with one to three places replaced, removed, repeated or exchanged."""
    made = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        spots = places(made)
        place = spots[draw(st.integers(0, len(spots) - 1))]
        if not place:
            if draw(st.integers(0, 9)) == 0:
                return draw(values())
            continue
        holder = made
        for step in place[:-1]:
            holder = holder[step]
        last, kind = place[-1], draw(st.integers(0, 4))
        if kind == 0:
            del holder[last]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(last, copy.deepcopy(holder[last]))
        elif kind == 2 and isinstance(holder, dict):
            holder[draw(texts())] = copy.deepcopy(holder[last])
        elif kind == 3 and isinstance(holder[last], int | float) and not isinstance(holder[last], bool):
            holder[last] = draw(
                st.sampled_from([-holder[last], holder[last] + 1, holder[last] + 0.5, -1, 10**6])
            )
        else:
            holder[last] = draw(values())
    return made


@st.composite
def damaged(draw: st.DrawFn, data: bytes, head: int | None = None) -> bytes:
    """The bytes cut short, or with some of them changed (among the first ``head`` ones where that is given)."""
    if draw(st.integers(0, 3)) == 0:
        return data[: draw(st.integers(0, len(data) - 1))]
    made = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, min(head or len(made), len(made)) - 1))
        made[place] = draw(st.integers(0, 255))
    return bytes(made)
