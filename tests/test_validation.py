"""What does not fit its shape is one line that names the field and quotes the value."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from headwise.errors import HeadwiseError
from headwise.strings import printable
from headwise.validation import Index, Row, Sha256, Shape, ShortText, check


class Part(Shape):
    side: Literal["query", "key"]
    channels: Row[Index]
    weight: float


class Whole(Shape):
    version: int = Field(alias="schema", ge=1, le=1)
    digest: Sha256
    title: ShortText
    parts: Row[Part]
    best: Part | None = None


PART = {"side": "key", "channels": [0, 3], "weight": 0.5}
WHOLE = {"schema": 1, "digest": "0a" * 32, "title": "a", "parts": [PART]}


def test_what_fits_is_frozen_and_lists_become_tuples() -> None:
    found = check(Whole, WHOLE, "file")
    assert found.parts[0].channels == (0, 3) and found.best is None
    with pytest.raises(ValueError, match="frozen"):
        found.title = "b"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": [{**PART, "side": "junk"}]}, "parts[0].side is 'junk', not 'query' or 'key'"),
        ({"parts": [{**PART, "channels": [1, -1]}]}, "parts[0].channels[1] is -1, which is less than 0"),
        ({"parts": [{**PART, "channels": [0.0]}]}, "parts[0].channels[0] is 0.0, not a whole number"),
        ({"parts": [{**PART, "channels": [True]}]}, "parts[0].channels[0] is true, not a whole number"),
        ({"parts": [{**PART, "channels": {"0": 1}}]}, "parts[0].channels is an object, not a list"),
        ({"parts": [{**PART, "weight": "1"}]}, "parts[0].weight is '1', not a number"),
        ({"parts": [{**PART, "weight": float("nan")}]}, "parts[0].weight is nan, not a finite number"),
        (
            {"parts": [{**PART, "colour": 1}]},
            "unknown field 'parts[0].colour' (known: side, channels, weight)",
        ),
        ({"best": {**PART, "x": 1}}, "unknown field 'best.x' (known: side, channels, weight)"),
        ({"x": 1}, "unknown field 'x' (known: schema, digest, title, parts, best)"),
        ({"parts": None}, "parts is null, not a list"),
        ({"schema": 2}, "schema is 2, which is more than 1"),
        ({"schema": 10**5000}, "schema is a number of 5001 digits, which is more than 1"),
        ({"digest": "0a"}, "digest is '0a', not 64 hexadecimal digits"),
        ({"title": ""}, "title is empty"),
        ({"title": "t" * 201}, "title has 201 characters: at most 200 are read"),
        ({"best": []}, "best is [], not an object"),
    ],
)
def test_the_line_names_the_field_and_quotes_the_value(change: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadwiseError) as error:
        check(Whole, {**WHOLE, **change}, "'a.json'", "write it again")
    assert str(error.value) == f"'a.json': {message}: write it again"


def test_missing_fields_are_counted() -> None:
    with pytest.raises(HeadwiseError, match=r"the field 'schema' is missing \(and 3 more\)"):
        check(Whole, {}, "'a.json'")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
)


@given(field=st.sampled_from([*WHOLE, "best"]), value=ANY)
def test_whatever_is_given_the_line_is_short_and_harmless(field: str, value: Any) -> None:
    try:
        check(Whole, {**WHOLE, field: value}, "'a.json'")
    except HeadwiseError as error:
        line = str(error)
    else:
        line = ""
    assert len(line) < 300
    assert line == printable(line) and "\n" not in line
