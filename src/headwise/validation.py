"""One way to hold what comes from a file against its shape: a pydantic model, and one line where it does not fit.

The shapes themselves belong to the rooms that read the files; they derive from :class:`Shape`, which takes no
value for another (no ``"3"`` or ``3.0`` for 3, no 1 for true, no number that is not finite) and no unknown field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from headwise.errors import HeadwiseError
from headwise.strings import printable, shortened

QUOTED = 60
"""Characters of a wrong value that a message quotes."""


class Shape(BaseModel):
    """What one object of a file must be."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )


Shaped = TypeVar("Shaped", bound=BaseModel)
Item = TypeVar("Item")

Row = Annotated[tuple[Item, ...], Field(strict=False), BeforeValidator(lambda value: _a_list(value))]
"""A JSON list, kept as a tuple: ``Row[int]``."""
Index = Annotated[int, Field(ge=0, lt=2**31)]
"""A layer, head, channel, position or token id."""
Sha256 = Annotated[str, StringConstraints(pattern=r"\A[0-9a-f]{64}\z")]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""A name that a person gave: it is shown, never used as a path."""


def check(shape: type[Shaped], data: Any, where: str, hint: str = "") -> Shaped:
    """``data`` in the given shape, or one line that begins with ``where``, names the field and ends with ``hint``.

    Without ``where`` the line begins with the field, for a caller that says itself where it is.

    >>> class Point(Shape):
    ...     x: Index
    ...     labels: Row[str] = ()
    >>> check(Point, {"x": 3, "labels": ["a"]}, "p.json")
    Point(x=3, labels=('a',))
    >>> check(Point, {"x": -1, "labels": ["a", 5]}, "p.json", "write it again")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: p.json: x is -1, which is less than 0 (and 1 more): write it again
    """
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        start, end = f"{where}: " if where else "", f": {hint}" if hint else ""
        raise HeadwiseError(f"{start}{_sentence(found[0], shape)}{more}{end}") from None


def require_schema(found: Any, read: Sequence[int], where: str, again: str) -> None:
    """Refuse a file whose schema number is none of those that are ``read``; a newer one asks for a newer headwise.

    >>> require_schema(2, (1, 2), "run.json", "make it again")
    >>> require_schema(3, (1, 2), "run.json", "make it again")
    Traceback (most recent call last):
    ...
    headwise.errors.HeadwiseError: run.json has schema 3, this headwise reads up to 2: upgrade headwise to open it
    """
    if type(found) is int and found in read:
        return
    newer = type(found) is int and found > max(read)
    what = "upgrade headwise to open it" if newer else again
    raise HeadwiseError(f"{where} has schema {quoted(found)}, this headwise reads up to {max(read)}: {what}")


def unfit(reason: str) -> PydanticCustomError:
    """What a shape's own validator raises: the reason goes into the line as it is."""
    return PydanticCustomError("unfit", "{reason}", {"reason": reason})


def quoted(value: Any) -> str:
    """A wrong value as a message shows it: short, on one line, with nothing in it that acts on a terminal.

    >>> quoted({"a": [1]}), quoted("x" * 100), quoted(10**50)
    ('an object', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxxxxxxxxxxxxxxxxxxxx'", 'a number of 51 digits')
    """
    if isinstance(value, dict):
        return "an object"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 10**40:
        # Python refuses to write out a number of thousands of digits.
        digits = int(value.bit_length() * 0.30103) + 1
        return f"a number of {digits - (abs(value) < 10 ** (digits - 1))} digits"
    if isinstance(value, str):
        return printable(repr(shortened(value, QUOTED)))
    if isinstance(value, list | tuple):
        short = len(value) <= 4 and not any(isinstance(item, dict | list | tuple) for item in value)
        return f"[{', '.join(map(quoted, value))}]" if short else f"a list of {len(value)}"
    return shortened(printable(repr(value)), QUOTED)


def place_of(path: Sequence[int | str]) -> str:
    """A field's place as one would write it; a key that somebody made up is quoted.

    >>> place_of(("edges", 3, "channels", 0)), place_of(("groups", "a\\nb"))
    ('edges[3].channels[0]', "groups['a\\\\nb']")
    """
    made = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier() and len(step) <= QUOTED:
            made += f".{step}" if made else step
        else:
            made += f"[{quoted(step)}]" if made else shortened(str(step), QUOTED)
    return made


_KINDS = {
    "int_type": "not a whole number",
    "int_from_float": "not a whole number",
    "float_type": "not a number",
    "string_type": "not text",
    "bool_type": "neither true nor false",
    "tuple_type": "not a list",
    "list_type": "not a list",
    "dict_type": "not an object",
    "model_type": "not an object",
    "finite_number": "not a finite number",
    "none_required": "not null",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "less than"),
    "greater_than": ("gt", "not more than"),
    "less_than_equal": ("le", "more than"),
    "less_than": ("lt", "not less than"),
}


def _sentence(error: ErrorDetails, shape: type[BaseModel]) -> str:
    kind, path, given, ctx = error["type"], error["loc"], error["input"], error.get("ctx", {})
    place = place_of(path)
    if kind == "missing":
        return f"the field {place!r} is missing"
    if kind == "extra_forbidden":
        known = _fields_at(shape, path[:-1])
        return f"unknown field {place!r}" + (f" (known: {', '.join(known)})" if known else "")
    if kind == "unfit":
        return f"{place}: {ctx['reason']}" if place else str(ctx["reason"])
    what = f"{place} is {quoted(given)}" if place else f"it is {quoted(given)}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{what}, which is {words} {ctx[name]}"
    if kind == "literal_error":
        return f"{what}, not {ctx['expected']}"
    if kind == "string_too_long":
        return f"{place} has {len(given)} characters: at most {ctx['max_length']} are read"
    if kind == "string_too_short":
        return f"{place} is empty"
    if kind == "string_pattern_mismatch":
        digits = "64 hexadecimal digits" if "{64}" in ctx["pattern"] else ctx["pattern"]
        return f"{what}, not {digits}"
    return f"{what}, {_KINDS[kind]}" if kind in _KINDS else f"{what} ({_one_line(error['msg'])})"


def _fields_at(shape: Any, path: Sequence[int | str]) -> list[str]:
    """The fields that an object at ``path`` may have."""
    for step in path:
        if isinstance(step, str) and isinstance(shape, type) and issubclass(shape, BaseModel):
            by_name = {field.alias or name: field for name, field in shape.model_fields.items()}
            shape = by_name[step].annotation if step in by_name else None
        while get_origin(shape) is not None:
            inner = [one for one in get_args(shape) if one is not Ellipsis and one is not type(None)]
            shape = inner[-1] if get_origin(shape) is dict else inner[0] if inner else None
    fields = getattr(shape, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].lower() + text[1:]


def _a_list(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise PydanticCustomError("list_type", "not a list")
    return value
