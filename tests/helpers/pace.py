"""Which tests of a kind ``make check`` runs: it has two minutes; ``make test`` runs all of them."""

from __future__ import annotations

from typing import Any

import pytest


def first_is_quick(*values: Any) -> list[Any]:
    """Values of a parameter, of which the quick check tries the first one."""
    first, *others = values
    return [first, *(_slow(value) for value in others)]


def _slow(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
