"""The payload world without labels: a head that solves it by construction, and what superposition hides."""

from __future__ import annotations

import pytest
import torch

from headwise.toy.payload import PayloadSetup, World
from headwise.toy.payload_train import Trained
from headwise.toy.unlabelled import recover_cell

pytestmark = pytest.mark.slow


def solved(ranks: tuple[int, ...], latents: str = "discrete", d_head: int = 8) -> Trained:
    """A head that reads every latent into a direction of its own (as many as fit), along random ones."""
    setup = PayloadSetup(d_head, latents, (ranks,))  # pyright: ignore[reportArgumentType]
    world = World.build(setup)
    maps = [world.latent_maps(0, j) for j in range(len(ranks))]
    a, b = (torch.cat(side, 1) for side in zip(*maps, strict=True))
    total = min(a.shape[1], d_head)
    turn = torch.linalg.qr(torch.randn(d_head, d_head, generator=torch.Generator().manual_seed(1))).Q
    read = 4.0 * turn[:, :total]
    weights = {
        "w_q": (read @ torch.linalg.pinv(b)[:total])[None],
        "w_k": (read @ torch.linalg.pinv(a)[:total])[None],
    }
    one = torch.ones(1)
    return Trained(world, weights, one, one, one, [])


def test_every_latent_is_found_without_labels_where_they_fit() -> None:
    record = recover_cell(solved((3, 4)), 0, samples=3000).record
    assert record["rank"] == 7
    assert min(record["span_key"], record["span_query"]) > 0.999
    assert record["smallest"] >= 0.95
    assert record["identified"] == 7
    assert record["swap"]["swapped_target"] > 0.98 * record["swap"]["original"]


def test_three_latents_are_found_as_two_are() -> None:
    record = recover_cell(solved((2, 2, 2)), 0, samples=3000).record
    assert (record["rank"], record["found"], record["identified"]) == (6, 6, 6)


def test_gaussian_latents_give_the_span_alone() -> None:
    record = recover_cell(solved((3, 3), "gaussian"), 0, samples=3000).record
    assert record["rank"] == 6
    assert record["span_key"] > 0.999
    assert record["identified"] == 0
    assert record["groups"] == [[0, 1, 2, 3, 4, 5]]


def test_a_full_head_finds_as_many_latents_as_it_has_dimensions() -> None:
    record = recover_cell(solved((5, 5)), 0, samples=3000).record
    assert record["superposed"]
    assert record["rank"] == 8
    assert record["found"] == 8
    assert record["smallest"] < 0.2
