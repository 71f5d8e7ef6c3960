"""One meaning for every noun, one layout for every line: no class is defined twice, no formatting overruled."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import headwise

SOURCE = Path(headwise.__file__).parent
OPTIONS = "cli/options.py"
"""Its aliases are read as ``options.Head``: the option that asks for the noun of that name."""


def nouns(source: str) -> set[str]:
    """Classes and aliases of types that a module defines, without a leading underscore.

    A type variable is none: it means what its function says.

    >>> sorted(nouns('class _Line: ...\\nPair = tuple[int, str]\\nItem = TypeVar("Item")\\nLIMIT = 3'))
    ['Line', 'Pair']
    """
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            variable = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar"
            found |= {t.id for t in node.targets if isinstance(t, ast.Name) and not variable}
    return {name.lstrip("_") for name in found if not name.isupper() and name.lstrip("_")[:1].isupper()}


def defined_twice() -> dict[str, list[str]]:
    """Each noun that more than one module defines, and these modules."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        if module != OPTIONS:
            for name in nouns(path.read_text(encoding="utf-8")):
                modules[name].append(module)
    return {name: where for name, where in modules.items() if len(where) > 1}


def test_every_noun_has_one_home() -> None:
    assert defined_twice() == {}


def test_both_definitions_of_a_noun_are_seen() -> None:
    assert nouns("class _Design: ...") & nouns("class Design: ...") == {"Design"}
    assert nouns("Cell = str | None") & nouns("class Cell: ...") == {"Cell"}


def test_the_formatter_is_never_overruled() -> None:
    root = Path(__file__).parent.parent
    sources = [p for room in ("src", "tests", "benchmarks", "tools") for p in (root / room).rglob("*.py")]
    marks = [f"# fmt: {word}" for word in ("skip", "off")]
    found = [str(p.relative_to(root)) for p in sources if any(m in p.read_text("utf-8") for m in marks)]
    assert len(sources) > 300 and found == []
