"""Values through files: everything comes back to the bit, and what does not fit is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from headwise.scale.tensors import Damaged, to_bytes
from headwise.scale.values import Misfit, value_bytes, value_from
from headwise.types import Cell, Estimate, Head


@dataclass(frozen=True, eq=False, kw_only=True)
class Whole:
    cell: Cell
    side: Literal["query", "key"]
    estimates: dict[tuple[Head, str], Estimate]
    numbers: tuple[float, ...]
    pair: tuple[int, str]
    maybe: float | None
    vectors: list[Tensor]
    flags: np.ndarray
    names: np.ndarray
    matrix: sparse.csr_matrix
    settings: dict[str, Any]
    kept_apart: list[int] = field(default_factory=list)


WHOLE = Whole(
    cell=Cell(Head(3, 1), 4, 2),
    side="key",
    estimates={(Head(0, 1), "a|b"): Estimate(0.1, float("-inf"), 0.3, n=7, clusters=3)},
    numbers=(0.1 + 0.2, float("nan"), 1e-300),
    pair=(1, "é\n"),
    maybe=None,
    vectors=[torch.randn(3, 2, dtype=torch.float64), torch.arange(4)],
    flags=np.array([True, False]),
    names=np.array(["x", "longer"]),
    matrix=sparse.csr_matrix(np.array([[0, 1, 1], [1, 0, 0]], dtype=bool)),
    settings={"heads": ["L0H1"], "seed": 3, "by": None},
    kept_apart=[5],
)


def test_everything_comes_back() -> None:
    content = value_bytes(WHOLE, without=("kept_apart",))
    again = value_from(Whole, content, kept_apart=[6])
    assert value_bytes(again, without=("kept_apart",)) == content
    assert again.cell == WHOLE.cell
    assert type(again.cell.head) is Head
    assert again.estimates == WHOLE.estimates
    assert (again.numbers[0], again.numbers[2]) == (0.1 + 0.2, 1e-300)
    assert np.isnan(again.numbers[1])
    assert (again.side, again.pair, again.maybe, again.settings) == ("key", (1, "é\n"), None, WHOLE.settings)
    assert all(torch.equal(a, b) for a, b in zip(again.vectors, WHOLE.vectors, strict=True))
    assert again.flags.tolist() == [True, False]
    assert again.names.tolist() == ["x", "longer"]
    assert np.array_equal(again.matrix.toarray(), WHOLE.matrix.toarray())
    assert again.kept_apart == [6]


@pytest.mark.parametrize(
    "record",
    [
        {},
        [],
        None,
        {"mean": 0.1, "low": 0.0, "high": 0.2, "n": 1.5, "clusters": 1},
        {"mean": 0.1, "low": 0.0, "high": 0.2, "n": True, "clusters": 1},
        {"mean": "half", "low": 0.0, "high": 0.2, "n": 1, "clusters": 1},
        {"mean": 0.1, "low": 0.0, "high": 0.2, "n": 1, "clusters": 1, "more": 1},
    ],
)
def test_what_does_not_fit_is_refused(record: Any) -> None:
    with pytest.raises(Damaged):
        value_from(Estimate, to_bytes({}, record))


def test_a_field_that_an_earlier_version_did_not_have_takes_its_default() -> None:
    @dataclass(frozen=True)
    class Earlier:
        size: int

    @dataclass(frozen=True)
    class Later:
        size: int
        names: tuple[str, ...] = ()
        notes: list[str] = field(default_factory=list)

    assert value_from(Later, value_bytes(Earlier(3))) == Later(3, (), [])
    with pytest.raises(Misfit):
        value_from(Earlier, value_bytes(Later(3)))


def test_what_cannot_be_saved_says_so() -> None:
    @dataclass(frozen=True)
    class Odd:
        what: object

    with pytest.raises(TypeError, match="a set cannot be saved"):
        value_bytes(Odd({1}))
