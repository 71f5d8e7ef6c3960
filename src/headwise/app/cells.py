"""One value of a run's table: what is shown of it, and the number by which it is sorted and tested.

Documents keep estimates and claims whole. A person reads the mean with its interval, and whether a claim holds; sorting
goes by the mean and by q.

>>> shown({"mean": 1.38074, "ci": [0.83417, 1.92731], "n": 6, "clusters": 6})
'1.381 (0.834 to 1.927)'
>>> shown({"null": "placebos", "draws": 99, "p": 0.01, "q": 0.0412, "group": "all", "supported": True})
'supported (q 0.041)'
>>> shown([0.49457787, 0.6])
'0.495, 0.6'
"""

from __future__ import annotations

import math
from typing import Any

from headwise.strings import shortened

LONGEST = 400
_ESTIMATE, _CLAIM = {"mean", "ci", "n", "clusters"}, {"null", "draws", "p", "q", "group", "supported"}
CellText = str | int | float | bool | None


def shown(value: Any) -> CellText:
    """What a page can show of a value."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return shortened(_told(value), LONGEST)


def number(value: Any) -> float | None:
    """The number that a value stands for: itself, an estimate's mean, a claim's q; None where there is none."""
    if isinstance(value, dict):
        value = value["mean"] if value.keys() >= _ESTIMATE else value["q"] if value.keys() >= _CLAIM else None
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)


def order(value: Any) -> tuple[int, float, str]:
    """Where a value stands when a table is sorted: numbers before texts, and what is missing last."""
    found = float(value) if isinstance(value, bool) else number(value)
    if found is not None:
        return (0, found, "")
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


def _told(value: Any) -> str:
    """A value in words, its numbers as far as a person reads them."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.3g}" if abs(value) < 0.001 else f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list | tuple):
        return ", ".join(_told(one) for one in value[:60])
    if isinstance(value, dict):
        return _of(value)
    return "–" if value is None else str(value)


def _of(value: dict[Any, Any]) -> str:
    if value.keys() >= _ESTIMATE:
        ends = value["ci"]
        both = isinstance(ends, list) and len(ends) == 2
        return _told(value["mean"]) + (f" ({_told(ends[0])} to {_told(ends[1])})" if both else "")
    if value.keys() >= _CLAIM:
        return f"{'supported' if value['supported'] is True else 'not supported'} (q {_told(value['q'])})"
    return ", ".join(f"{key}: {_told(one)}" for key, one in list(value.items())[:20])
