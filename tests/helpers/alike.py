"""Two documents, or what two models gave, compared number by number."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def assert_alike(one: Any, other: Any, within: float, where: str = "") -> None:
    """The same but for rounding; ``seconds`` may differ."""
    if isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for key in other.keys() - {"seconds"}:
            assert_alike(one[key], other[key], within, f"{where}, {key}")
    elif isinstance(other, list | tuple):
        assert len(one) == len(other), where
        for place, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_alike(a, b, within, f"{where}, {place}")
    elif isinstance(other, float):
        assert one == pytest.approx(other, abs=within, rel=within), where
    elif isinstance(other, torch.Tensor):
        torch.testing.assert_close(one, other, atol=within, rtol=within)
    else:
        assert one == other, where
