"""The house has one direction: a room may use rooms to its left and the value types, never a room to its right.

Read from the source, so imports inside functions and for types alone count too.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "headwise"

# From left to right. Rooms of one line stand side by side: none of them may use another.
ORDER: list[tuple[str, ...]] = [
    ("errors",),
    ("strings",),
    ("arguments", "head_names", "basis_names", "subspace", "positions"),
    ("types", "randomness", "progress", "validation"),
    ("jsons",),
    ("files", "intervals", "claims", "frames"),
    ("tokens", "corpus"),
    ("model",),
    ("tasks", "corpora"),
    ("scale",),
    ("known_names",),
    ("bases",),
    ("contrast",),
    ("tracing",),
    ("circuits",),
    ("why",),
    ("survey",),
    ("families", "sinks", "sparsity"),
    ("naming",),
    ("portraits",),
    ("toy",),
    ("planning",),
    ("show",),
    ("research",),
    ("app",),
    ("cli",),
]
PLACE = {room: place for place, rooms in enumerate(ORDER) for room in rooms}

# A result draws itself in notebooks and on request: the method forwards to the pictures, and only there.
FORWARDS = {"show"}
MAY_FORWARD = {
    "why",
    "circuits",
    "contrast",
    "survey",
    "families",
    "sinks",
    "sparsity",
    "naming",
    "portraits",
    "bases",
    "toy",
}


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports() -> list[tuple[str, str, str, bool]]:
    """(file, room it is in, room it imports, whether inside a function)."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        inside = file.relative_to(SOURCE)
        room = inside.parts[0].removesuffix(".py")
        if room == "__init__":
            continue  # the table of public names
        tree = tree_of(file)
        lazy = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module == "headwise":
                names = [f"headwise.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] == "headwise" and len(parts) > 1 and parts[1] != room:
                    found.append((str(inside), room, parts[1], id(node) in lazy))
    return found


@cache
def libraries() -> set[tuple[str, str]]:
    """(room, package that it imports), those for types alone left out."""
    found = set()
    for file in SOURCE.rglob("*.py"):
        room = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        tree = tree_of(file)
        for_types = {
            id(node)
            for block in ast.walk(tree)
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
            for node in ast.walk(block)
        }
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if id(node) not in for_types:
                found.update((room, name.split(".")[0]) for name in names)
    return found


def test_every_room_has_its_place() -> None:
    rooms = {file.relative_to(SOURCE).parts[0].removesuffix(".py") for file in SOURCE.rglob("*.py")} - {
        "__init__"
    }
    assert rooms == set(PLACE)


def test_imports_go_one_way() -> None:
    wrong = [
        f"{file}: {room} imports {other}"
        for file, room, other, lazy in imports()
        if PLACE[other] >= PLACE[room] and not (lazy and other in FORWARDS and room in MAY_FORWARD)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("library", "rooms"),
    [
        ("transformers", {"model", "toy"}),
        ("plotly", {"show"}),
        ("typer", {"cli"}),
        ("starlette", {"app"}),
        ("uvicorn", {"app"}),
        ("concurrent", {"model", "scale"}),
        ("multiprocessing", {"scale"}),
        ("ray", {"scale"}),
    ],
)
def test_one_room_knows_each_of_these(library: str, rooms: set[str]) -> None:
    known = {room for room, name in libraries() if name == library}
    assert known
    assert known <= rooms
