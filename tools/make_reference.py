"""Write docs/reference/cli.md, docs/reference/python.md and the table of docs/numbers.md from the program itself:
``python tools/make_reference.py``.

The command line's page is what ``--help`` prints; the Python page is made of signatures, docstrings and the sentences
below attributes; the table of numbers is what pages say of them. A test compares all with the pages in the docs, so
none can fall behind.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import io
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from wrap_docs import wrapped

ROOT = Path(__file__).parent.parent
CLI = ROOT / "docs" / "reference" / "cli.md"
PYTHON = ROOT / "docs" / "reference" / "python.md"
NUMBERS = ROOT / "docs" / "numbers.md"
CLI_INTRODUCTION = """\
What `headwise --help` and `headwise COMMAND --help` print. `--json` always prints one document on standard output,
`--html FILE` writes a page, `--out DIR` keeps a run, `--save FILE` keeps a circuit or an explanation.
"""
PYTHON_INTRODUCTION = """\
Every public name, imported from `headwise` when it is first used. Tensors are torch tensors; their shapes are in the
descriptions. A prompt is a text or a list of token ids; positions count from 0, negative ones from the end.
"""


PARTS_INTRODUCTION = """\
What the fields of the studies' results hold. You get these from a result and need not import them.
"""


# The command line


def cli_page() -> str:
    parts = [
        "# The command line\n",
        CLI_INTRODUCTION,
        _fenced(_printed([])),
    ]
    for verb in _verbs():
        parts.append(f"## {verb}\n")
        parts.append(_fenced(_printed([verb, "--help"])))
        for inner in _inner(verb):
            parts.append(f"### {verb} {inner}\n")
            parts.append(_fenced(_printed([verb, inner, "--help"])))
    return wrapped("\n".join(parts).rstrip() + "\n")


def _verbs() -> list[str]:
    from headwise.cli.main import VERBS

    return list(VERBS)


def _inner(verb: str) -> list[str]:
    import typer

    from headwise.cli.main import VERBS

    entry: Any = VERBS[verb]
    module = entry[0] if isinstance(entry, tuple) else entry.module
    return list(getattr(typer.main.get_command(import_module(module).app), "commands", {}))


def _printed(arguments: list[str]) -> str:
    from headwise.cli.main import main

    said = io.StringIO()
    # Help is wrapped to the terminal: the page must not depend on whose it is.
    terminal = patch.dict(os.environ, COLUMNS="100", TERMINAL_WIDTH="100", NO_COLOR="1")
    with terminal, contextlib.redirect_stdout(said):
        code = main(arguments)
    assert code == 0, arguments
    return re.sub(r"[ \t]+$", "", said.getvalue(), flags=re.MULTILINE).strip()


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```\n"


# Python


def python_page() -> str:
    import headwise

    functions, classes = [], []
    for name in sorted(headwise.__all__):
        thing = getattr(headwise, name)
        if inspect.isclass(thing):
            classes.append((name, thing))
        elif callable(thing):
            functions.append((name, thing))
    page = [
        "# Python\n",
        PYTHON_INTRODUCTION,
        "## Functions\n",
        *(line for name, function in functions for line in _function(name, function)),
        "## Types\n",
        *(line for name, kind in classes for line in _class(name, kind)),
        "## Parts of results\n",
        PARTS_INTRODUCTION,
        *(line for kind in parts() for line in _class(kind.__name__, kind)),
    ]
    return wrapped("\n".join(page).rstrip() + "\n")


def parts() -> list[type]:
    """The types that the fields of studies' results are made of, and are not public themselves, by name."""
    import headwise

    public = [getattr(headwise, name) for name in headwise.__all__]
    todo = [kind for kind in public if inspect.isclass(kind) and kind.__name__.endswith(("Result", "Bank"))]
    found: dict[str, type] = {}
    while todo:
        for kind in _kinds_in_fields(todo.pop()):
            if kind not in public and kind.__name__ not in found:
                found[kind.__name__] = kind
                todo.append(kind)
    return [found[name] for name in sorted(found)]


def _kinds_in_fields(kind: type) -> Iterator[type]:
    """Our own types that the fields of a type name, imported only for type checkers or not."""
    module = sys.modules[kind.__module__]
    tree = ast.parse(inspect.getsource(module))
    homes = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headwise.")
        for alias in node.names
    }
    for _, annotation in _fields(kind):
        for name in re.findall(r"\b[A-Z]\w+", str(annotation)):
            named = getattr(import_module(homes.get(name) or module.__name__), name, None)
            if dataclasses.is_dataclass(named) or hasattr(named, "_fields"):
                yield named  # type: ignore[misc]


def _function(name: str, function: Any, level: str = "###") -> Iterator[str]:
    yield f"{level} {name}\n"
    yield _code(f"{name}{_signature(function)}")
    if said := _said(function):
        yield said + "\n"


def _class(name: str, kind: type) -> Iterator[str]:
    yield f"### {name}\n"
    if said := _said(kind):
        yield said + "\n"
    if rows := list(attributes(kind)):
        yield "| attribute | |\n|---|---|"
        # A bar ends a cell of a table, inside code too.
        shown = ((attribute.replace("|", "\\|"), text) for attribute, text in rows)
        yield "\n".join(f"| `{attribute}` | {text} |" for attribute, text in shown) + "\n"
    for method, function in _methods(kind):
        yield _code(f"{name}.{method}{_signature(function)}")
        if said := _said(function):
            yield said + "\n"


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(kind).items():
        inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if name.startswith("_") or not inspect.isfunction(inner):
            continue
        yield name, inner


def attributes(kind: type) -> Iterator[tuple[str, str]]:
    """Every public field and property of a type, and the sentence that describes it ("" where there is none)."""
    below = _sentences_below(kind)
    for name, annotation in _fields(kind):
        if not name.startswith("_"):
            yield f"{name}: {_type(annotation)}", below.get(name, "")
    for name, value in vars(kind).items():
        getter = value.func if isinstance(value, cached_property) else getattr(value, "fget", None)
        if getter is not None and not name.startswith("_"):
            yield name, _plain(" ".join((inspect.getdoc(getter) or "").split("\n\n")[0].split()))


def _fields(kind: type) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(kind):
        return [(field.name, field.type) for field in dataclasses.fields(kind)]
    # A named tuple lists its fields, too.
    return [(name, kind.__annotations__[name]) for name in getattr(kind, "_fields", ())]


def _sentences_below(kind: type) -> dict[str, str]:
    """The string below each annotated field in the source of the class, or of one that it inherits from."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        found |= _own_sentences_below(one)
    return found


def _own_sentences_below(kind: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, after in pairwise(body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[field.target.id] = _plain(" ".join(str(after.value.value).split()))
    return found


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    shown = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            starred = True
            shown.append(("*" if parameter.kind is parameter.VAR_POSITIONAL else "**") + parameter.name)
            continue
        text = parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {_type(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}" if ":" in text else f"={parameter.default!r}"
        shown.append(text)
    result = (
        "" if signature.return_annotation is signature.empty else f" -> {_type(signature.return_annotation)}"
    )
    one = f"({', '.join(shown)}){result}"
    return one if len(one) < 76 else "(\n" + "".join(f"    {text},\n" for text in shown) + f"){result}"


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", repr(annotation))
    return re.sub(r"\b(?:[a-z_]+\.)+([A-Z]\w*)", r"\1", text)


def _said(thing: Any) -> str:
    """A docstring as Markdown: without its doctests, roles and double backticks."""
    text = inspect.getdoc(thing) or ""
    if inspect.isclass(thing) and thing.__doc__ and thing.__doc__.startswith(f"{thing.__name__}("):
        return ""  # what dataclasses write by themselves
    blocks = [block for block in text.split("\n\n") if not block.lstrip().startswith(">>>")]
    return "\n\n".join(_plain(_section(block)) for block in blocks)


def _section(block: str) -> str:
    """``Parameters`` and the like, underlined as numpy does, become a list."""
    title, _, rest = block.partition("\n")
    line, _, rest = rest.partition("\n")
    if not line or set(line) != {"-"}:
        return block
    entries = re.split(r"\n(?=\S)", rest)
    shown = []
    for entry in entries:
        name, _, text = entry.partition("\n")
        shown.append(f"* `{name.rstrip(':')}`: {' '.join(text.split())}")
    return f"**{title}**\n\n" + "\n".join(shown)


def _plain(text: str) -> str:
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", "\\|")


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


# Numbers


def numbers_page() -> str:
    """The page as it is, with the table of now."""
    from headwise.show.kit.glossary import table

    before, _, rest = NUMBERS.read_text(encoding="utf-8").partition("| number |")
    after = rest[rest.index("\n\n") :]
    return wrapped(before + table() + after)


def main() -> None:
    for path, page in ((CLI, cli_page()), (PYTHON, python_page()), (NUMBERS, numbers_page())):
        path.write_text(page, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    main()
