"""What ordered classes lie on: lines, curves, circles and none of these, planted, and the level of each test."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headwise.contrast.bank import BankFeature
from headwise.contrast.geometry import ClassMeans, judged_shapes, shape_rows, shapes
from headwise.contrast.labelled_vectors import LabelledVectors
from headwise.randomness import keyed
from headwise.types import Head, Subspace

COUNT, CLUSTERS, EACH = 9, 16, 4
TURN = torch.arange(COUNT) * 2 * math.pi / COUNT
ALONG = torch.linspace(-1, 1, COUNT)
PLANTED = {
    "line": torch.stack([ALONG, 0 * ALONG, 0 * ALONG], 1),
    # Unequal steps do not leave the line.
    "line, uneven": torch.stack([ALONG**3, 2 * ALONG**3, 0 * ALONG], 1),
    "curve": torch.stack([ALONG, 0.8 * ALONG**2, 0 * ALONG], 1),
    "circle": torch.stack([TURN.cos(), TURN.sin(), 0 * ALONG], 1),
    # The first class is set apart from eight on a line: a mixture.
    "mixture": torch.stack([ALONG, (torch.arange(COUNT) == 0).float(), 0 * ALONG], 1),
    # A line, and odd against even: two features, each of one dimension.
    "separable": torch.stack([ALONG, 0.5 * (torch.arange(COUNT) % 2), 0 * ALONG], 1),
    "none": torch.stack([ALONG, 0.8 * ALONG**2, 0 * ALONG], 1)[[3, 0, 7, 5, 1, 8, 2, 6, 4]],
}
SHAPES = {
    "line": "line",
    "line, uneven": "line",
    "curve": "curve",
    "circle": "circle",
    "mixture": "beyond a line",
    "separable": "beyond a line",
    "none": "none",
}


def planted(means: Tensor, noise: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Values [n, 3], classes and clusters: every cluster moves each class by an amount of its own."""
    generator = keyed(seed, "planted shapes")
    prompts = CLUSTERS * EACH
    cluster = torch.arange(prompts) // EACH
    shared = torch.randn(CLUSTERS, COUNT, 3, generator=generator)[cluster]
    own = torch.randn(prompts, COUNT, 3, generator=generator)
    values = (means + noise * (shared + own)).double()
    classes = torch.arange(COUNT).expand(prompts, COUNT)
    return values, classes, cluster


def vectors_of(means: Tensor, noise: float = 0.15) -> LabelledVectors:
    values, classes, cluster = planted(means, noise)
    asked = torch.arange(len(values)) % COUNT
    q = values[torch.arange(len(values)), asked]
    return LabelledVectors(
        by="order",
        names=tuple(str(i + 1) for i in range(COUNT)),
        q=torch.nn.functional.pad(q, (0, 2)),
        k=torch.nn.functional.pad(values, (0, 2)),
        query_class=asked,
        key_class=classes,
        clusters=cluster,
        scene=torch.arange(len(values)),
    )


def feature() -> BankFeature:
    basis = Subspace(torch.eye(5)[:, :3])
    return BankFeature(
        name="order",
        head=Head(0, 0),
        query=basis,
        key=basis,
        sigma=torch.ones(3),
        rank_energy=3,
        rank_null=3,
    )


@pytest.mark.parametrize("name", PLANTED)
def test_planted_shapes_are_told(name: str) -> None:
    rows = judged_shapes(list(shape_rows(feature(), vectors_of(PLANTED[name]), seed=0)))
    keys, queries = shapes(rows)
    assert (keys.side, queries.side) == ("key", "query")
    assert keys.shape == SHAPES[name]
    assert keys.sentence.startswith("L0H0 order: the 9 classes of keys by order ")
    assert keys.to_json()["claims"]["ordered"]["supported"] == (name != "none")
    assert all(row.q_value >= row.p_value for row in rows)


def test_a_claim_asks_for_those_before_it() -> None:
    """A closed path that follows no order is no circle."""
    rows = list(shape_rows(feature(), vectors_of(PLANTED["circle"]), seed=0))
    unordered = [replace(row, p_value=1.0) if row.measure == "ordered" else row for row in rows]
    assert not any(row.supported for row in judged_shapes(unordered))


def test_no_shape_without_an_order_or_clusters() -> None:
    named = replace(vectors_of(PLANTED["line"]), names=tuple("abcdefghi"))
    assert not list(shape_rows(feature(), named, seed=0))
    one = replace(vectors_of(PLANTED["line"]), clusters=torch.zeros(CLUSTERS * EACH, dtype=torch.long))
    assert not list(shape_rows(feature(), one, seed=0))
    few = vectors_of(PLANTED["line"])
    few = replace(
        few, key_class=few.key_class.masked_fill(few.key_class > 3, -1), query_class=few.query_class % 4
    )
    assert not list(shape_rows(feature(), few, seed=0))


def _rate(name: str, test: str, noise: float, seeds: int) -> float:
    found = 0
    for seed in range(seeds):
        values, classes, cluster = planted(PLANTED[name], noise, seed)
        made = ClassMeans.of(
            values.flatten(0, 1),
            classes.flatten(),
            cluster[:, None].expand(-1, COUNT).flatten(),
            keyed(seed, "noise"),
        )
        p = {
            "ordered": lambda made=made, seed=seed: made.ordered(keyed(seed, "order")),
            "beyond": lambda made=made: made.beyond_line(),
            "irreducible": lambda made=made, seed=seed: made.irreducible(keyed(seed, "second")),
            "closed": lambda made=made: made.closed(),
        }[test]()
        found += p <= 0.05
    return found / seeds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("line", "beyond"),
        ("line", "irreducible"),
        ("mixture", "irreducible"),
        ("separable", "irreducible"),
        ("curve", "closed"),
        ("line", "closed"),
    ],
)
def test_levels_where_nothing_is_there(name: str, test: str) -> None:
    """Whatever the noise, at most 5 % (and what 60 runs let by chance)."""
    assert _rate(name, test, 0.4, 60) <= 0.12


@pytest.mark.slow
def test_an_order_is_not_seen_in_means_without_one() -> None:
    found = 0
    for seed in range(200):
        means = torch.randn(COUNT, 3, generator=keyed(seed, "means")).double()
        found += ClassMeans(means, means[None]).ordered(keyed(seed, "order")) <= 0.05
    assert found <= 19  # 5 % of 200, and what a binomial lets by chance (99 %)


def test_a_path_is_compared_with_all_orders() -> None:
    """Three points on a line in order: two of the six orders are as short."""
    made = ClassMeans(torch.tensor([[-1.0], [0.0], [1.0]]).double(), torch.zeros(1, 3, 1).double())
    assert made.ordered(keyed(0, "exact")) == pytest.approx(1 / 3, abs=0.05)
    assert made.beyond_line() == 1.0
