"""Heads, components and subspaces."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise import Component, Head, HeadwiseError, Subspace


@given(st.integers(0, 200), st.integers(0, 200))
def test_heads_parse_in_every_form_and_print_in_one(layer: int, index: int) -> None:
    head = Head(layer, index)
    forms = [
        f"L{layer}H{index}",
        f"{layer}.{index}",
        f"a{layer}.h{index}",
        f"l{layer}h{index}",
        f" L{layer}H{index} ",
    ]
    assert {Head.parse(form) for form in forms} == {head}
    assert Head.parse(str(head)) == head == Head.parse(head)


@pytest.mark.parametrize("text", ["", "L9", "H6", "9", "9.6.1", "L-1H2", "L9H6x", "١.٢x", "9,6"])
def test_what_is_not_a_head_is_quoted(text: str) -> None:
    with pytest.raises(HeadwiseError, match=r"is not a head: write it as L9H6, 9\.6 or a9\.h6") as error:
        Head.parse(text)
    assert repr(text) in str(error.value)


def test_components_print_and_give_their_head() -> None:
    assert str(Component("head", 3, 1, source=7)) == "L3H1<-7"
    assert Component("head", 3, 1).head == Head(3, 1)
    with pytest.raises(HeadwiseError, match="MLP2 is not a head"):
        _ = Component("mlp", 2).head


def test_subspaces_drop_noise_directions_and_refuse_what_is_not_orthonormal() -> None:
    generator = torch.Generator().manual_seed(0)
    five = torch.randn(16, 5, generator=generator, dtype=torch.float64)
    centred = five - five.mean(1, keepdim=True)  # five vectors that sum to zero span four dimensions
    assert Subspace.spanned_by(centred).rank == 4
    assert Subspace.spanned_by(torch.zeros(4, 2)).rank == 0
    with pytest.raises(HeadwiseError, match="must be orthonormal"):
        Subspace(torch.ones(4, 2))
    with pytest.raises(HeadwiseError, match=r"not \[2, 3\]"):
        Subspace(torch.ones(2, 3))


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 99))
def test_projection_is_idempotent_and_leaves_an_orthogonal_rest(width: int, rank: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(width, min(rank, width), generator=generator, dtype=torch.float64)
    subspace = Subspace.spanned_by(vectors)
    x = torch.randn(3, width, generator=generator, dtype=torch.float64)
    inside = subspace.project(x)
    assert torch.allclose(subspace.project(inside), inside)
    assert torch.allclose(
        (x - inside) @ subspace.basis, torch.zeros(3, subspace.rank, dtype=torch.float64), atol=1e-9
    )
