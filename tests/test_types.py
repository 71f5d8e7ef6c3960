"""Heads, components and subspaces."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise import Cell, Component, Estimate, Head, HeadwiseError, Subspace


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


@pytest.mark.parametrize(
    "component",
    [
        Component("head", 9, 6),
        Component("head", 9, 6, source=0),
        Component("mlp", 2),
        Component("bias", 3),
        Component("embedding"),
        Component("offset"),
    ],
)
def test_a_component_is_read_back_from_its_own_name(component: Component) -> None:
    assert Component.parse(str(component)) == component
    assert Component.parse(component.name) == replace(component, source=-1)


@pytest.mark.parametrize(
    "text", ["", "MLP", "MLP-1", "bias 3", "L9", "L9H6<-", "L9H6<-x", "L9H6<--1", "embedding0"]
)
def test_what_is_no_component_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(HeadwiseError, match="is not a component: write L9H6"):
        Component.parse(text)


def test_cells_sort_by_layer_head_query_key() -> None:
    cells = [Cell(Head(1, 0), 3, 2), Cell(Head(0, 5), 9, 9), Cell(Head(1, 0), 3, 1), Cell(Head(0, 5), 2, 0)]
    assert sorted(cells) == sorted(cells, key=lambda c: (c.head.layer, c.head.index, c.query, c.key))


def test_an_estimate_excludes_what_its_interval_does_not_hold() -> None:
    found = Estimate(0.5, 0.2, 0.8, n=5, clusters=5)
    assert found.excludes(0.0) and found.excludes(1.0)
    assert not found.excludes(0.2)
