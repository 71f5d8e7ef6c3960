"""Files with one JSON object per line: each line held against its shape, and all bad lines reported at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from headwise import jsons
from headwise.errors import HeadwiseError
from headwise.strings import read_lines, shortened
from headwise.validation import Shaped, check, quoted, unfit

Made = TypeVar("Made")

SAID = 330
"""Characters of reasons that one message holds; further bad lines are named by their numbers."""
_NUMBERS = 8
_REASON = 140


def _no_nul(text: str) -> str:
    if "\x00" in text:
        raise unfit(f"it holds a NUL character (at {text.index(chr(0))}): remove it")
    return text


def _as_label(value: Any) -> Any:
    """A label is text; a number or a truth value is taken as it would be written."""
    if isinstance(value, bool | int | float):
        return str(value)
    if not isinstance(value, str):
        raise unfit(f"{quoted(value)} is not a label: give text or a number")
    return value


Text = Annotated[str, AfterValidator(_no_nul)]
PromptText = Annotated[str, StringConstraints(min_length=1), AfterValidator(_no_nul)]
Label = Annotated[Text, BeforeValidator(_as_label)]
Title = Annotated[
    str,
    StringConstraints(min_length=1, max_length=1000),
    AfterValidator(_no_nul),
    BeforeValidator(_as_label),
]
"""A label that things are called by."""
Labels = dict[Text, Label]


def read_objects(path: Path, shape: type[Shaped], make: Callable[[Shaped], Made]) -> list[Made]:
    """Every line that is not blank, in its shape and made into what it stands for."""
    found: list[Made] = []
    wrong: list[tuple[int, str]] = []
    for number, line in enumerate(read_lines(path, "give a file with one JSON object per line"), 1):
        if not line.strip(" \t\r"):
            continue
        try:
            found.append(make(_object(line, shape)))
        except HeadwiseError as error:
            wrong.append((number, str(error)))
    if wrong:
        raise HeadwiseError(f"{str(path)!r} has {_bad_lines(wrong)}")
    return found


def _object(line: str, shape: type[Shaped]) -> Shaped:
    try:
        record = jsons.parse(line)
    except jsons.NotJson as error:
        raise HeadwiseError(f"not JSON ({error})") from None
    if not isinstance(record, dict):
        raise HeadwiseError("not a JSON object")
    return check(shape, record, "")


def _bad_lines(wrong: Sequence[tuple[int, str]]) -> str:
    """What is wrong, as far as a message can hold it; the count is of all.

    >>> _bad_lines([(3, "not JSON"), (4, "prompt is empty")])
    '2 bad lines: line 3: not JSON; line 4: prompt is empty'
    >>> _bad_lines([(number, "not JSON") for number in range(1, 20_001)])[-80:]
    '; line 17: not JSON; also lines 18, 19, 20, 21, 22, 23, 24, 25 and 19,975 others'
    """
    said: list[str] = []
    for number, reason in wrong:
        one = f"line {number}: {shortened(reason, _REASON)}"
        if said and len("; ".join([*said, one])) > SAID:
            break
        said.append(one)
    rest = [number for number, _ in wrong[len(said) :]]
    if rest:
        shown = rest if len(rest) <= 2 * _NUMBERS else rest[:_NUMBERS]
        named = ", ".join(map(str, shown))
        others = f" and {len(rest) - len(shown):,} others" if len(rest) > len(shown) else ""
        said.append(f"also line{'s' * (len(rest) > 1)} {named}{others}")
    many = f"{len(wrong):,} bad lines" if len(wrong) > 1 else "a bad line"
    return f"{many}: {'; '.join(said)}"
