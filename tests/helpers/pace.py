"""Which tests of a kind ``make check`` runs, which has two minutes (``make test`` runs all), and which come first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tiny import VARIANTS

FEW = ("gpt2", "llama", "qwen3", "gemma2")
"""Tiny variants that differ most: in positions, norms, biases, groups, windows and caps."""
_ALL = {
    Path(__file__).parent.parent / "model" / f"test_{name}.py"
    for name in ("capture", "check", "edits", "half_precision", "stream")
}

LONG = ("cluster", "hostile", "calibration")
"""Marks of tests that may take minutes, the longest first."""


def first_is_quick(*values: Any) -> list[Any]:
    """Values of a parameter, of which the quick check tries the first one."""
    first, *others = values
    return [first, *(_slow(value) for value in others)]


def _slow(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)


def few_variants_of_most_tests(items: Iterable[pytest.Item]) -> None:
    """The quick check tries all variants where the model's room meets them: capture, edit, split and check.

    Everything else knows architectures only through that.
    """
    tests: dict[Any, list[tuple[str, pytest.Item]]] = defaultdict(list)
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        variant = parameters.get("variant", parameters.get("name"))
        if isinstance(variant, str) and variant in VARIANTS and item.path not in _ALL:
            tests[item.path, getattr(item, "originalname", None)].append((variant, item))
    for variants in tests.values():
        if any(variant in FEW for variant, _ in variants):
            for variant, item in variants:
                if variant not in FEW:
                    item.add_marker(pytest.mark.slow)


def long_ones_first(items: list[pytest.Item]) -> None:
    """A test of minutes that begins last keeps one core busy and leaves the others idle."""

    def place(item: pytest.Item) -> int:
        marks = {mark.name for mark in item.iter_markers()}
        return next((at for at, name in enumerate(LONG) if name in marks), len(LONG))

    items.sort(key=place)
