"""Every field of an explanation and of a circuit, and of all values they are made of, says in a sentence what it is.

A reader meets these values at a prompt or in an editor, where nothing but the sentence tells them.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import sys
import textwrap
import typing
from dataclasses import is_dataclass

import pytest

from headwise.circuits.circuit import Circuit
from headwise.why.explanation import Explanation
from headwise.why.many.result import ExplanationsResult
from headwise.why.pair.result import PromptDifference
from headwise.why.row import RowExplanation


def _parts(start: type) -> list[type]:
    """The project's dataclasses that a class is made of, itself first."""
    found: dict[type, None] = {}

    def visit(hint: object) -> None:
        if isinstance(hint, type) and is_dataclass(hint) and hint.__module__.startswith("headwise."):
            if hint in found:
                return
            found[hint] = None
            scope = {**vars(builtins), **vars(typing), **vars(sys.modules[hint.__module__])}
            for one in inspect.get_annotations(hint).values():
                visit(eval(one, scope) if isinstance(one, str) else one)
        for argument in typing.get_args(hint):
            visit(argument)

    visit(start)
    return list(found)


def _without_sentence(cls: type) -> list[str]:
    body = typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]).body
    said = {
        before.target.id
        for before, after in itertools.pairwise(body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    }
    fields = [
        one.target.id for one in body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]
    return [name for name in fields if name not in said and not name.startswith("_")]


@pytest.mark.parametrize(
    "start", [Explanation, PromptDifference, ExplanationsResult, RowExplanation, Circuit]
)
def test_every_field_says_what_it_is(start: type) -> None:
    parts = _parts(start)
    assert len(parts) >= 5
    silent = {f"{cls.__module__}.{cls.__name__}": _without_sentence(cls) for cls in parts}
    assert {name: fields for name, fields in silent.items() if fields} == {}
