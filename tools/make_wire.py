"""Write web/src/app/wire.ts, the types of what page and server say to each other: ``python tools/make_wire.py``.

They are made from the shapes in ``headwise/app/wire.py`` and ``wire_runs.py``, which the server holds every body to. A
test compares the file with what this makes, so the page cannot fall behind.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from headwise.app import wire, wire_edits, wire_runs
from headwise.validation import Shape

FILE = Path(__file__).parent.parent / "web" / "src" / "app" / "wire.ts"
HEADER = (
    "// Made by tools/make_wire.py from headwise/app/wire.py and wire_runs.py: change these, and run it.\n"
)
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def text() -> str:
    """The whole file."""
    return HEADER + "".join("\n" + _interface(shape) for shape in shapes())


def shapes() -> list[type[Shape]]:
    """Every shape of the wire, in the order in which they are written."""
    found = [
        [
            one
            for module in modules
            for _, one in inspect.getmembers(module, inspect.isclass)
            if issubclass(one, Shape) and one.__module__ == module.__name__
        ]
        for modules in ((wire, wire_edits), (wire_runs,))
    ]
    return [one for some in found for one in sorted(some, key=lambda shape: shape.__name__)]


def _interface(shape: type[Shape]) -> str:
    schema = shape.model_json_schema(mode="validation", by_alias=True)
    needed = set(schema.get("required", ()))
    about = (inspect.getdoc(shape) or "").split("\n")[0]
    lines = [
        f"  {name}{'' if name in needed else '?'}: {_type(field)};"
        for name, field in schema.get("properties", {}).items()
    ]
    return f"/** {about} */\nexport interface {shape.__name__} {{\n" + "\n".join(lines) + "\n}\n"


def _type(field: dict[str, Any]) -> str:
    """
    >>> _type({"anyOf": [{"type": "integer"}, {"type": "null"}]})
    'number | null'
    >>> _type({"type": "array", "items": {"enum": ["a", "b"]}})
    "readonly ('a' | 'b')[]"
    """
    if "$ref" in field:
        return field["$ref"].rsplit("/", 1)[1]
    if "const" in field:
        return repr(field["const"])
    if "enum" in field:
        return " | ".join(map(repr, field["enum"]))
    if "anyOf" in field or "oneOf" in field:
        return " | ".join(_type(one) for one in field.get("anyOf") or field["oneOf"])
    if field["type"] == "array":
        inner = _type(field["items"])
        return f"readonly ({inner})[]" if " " in inner else f"readonly {inner}[]"
    if field["type"] == "object":
        return f"Record<string, {_type(field['additionalProperties'])}>"
    return PLAIN[field["type"]]


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    print(f"wrote {FILE.relative_to(FILE.parents[3])}")
