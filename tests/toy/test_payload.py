"""The payload world: a cell in a grid is the cell alone, runs resume exactly, and closed forms hold."""

import itertools

import pytest
import torch

from headwise.errors import HeadwiseError
from headwise.scale.folder import RunFolder
from headwise.toy.payload import (
    PayloadSetup,
    World,
    accuracy_ceiling,
    draw_batch,
    forward,
    init_weights,
    queries_and_keys,
)
from headwise.toy.payload_run import run_payload, summarise
from headwise.toy.payload_study import (
    Effort,
    closed_form,
    interactions,
    latent_cloud,
    latent_covariance,
    study_cell,
    triplets,
)
from headwise.toy.payload_train import Schedule, config, train

SMALL = Schedule(max_steps=60, check_every=20, checks=2, check_batch=64, batch=64)
LITTLE = Effort(triplets=3000, control_triplets=500, swaps=800, random_draws=3)


@pytest.mark.parametrize("latents", ["discrete", "gaussian"])
def test_a_cell_in_a_grid_is_the_cell_alone(latents):
    cells = ((2, 3), (4, 2), (3, 3))
    together = train(PayloadSetup(8, latents, cells), SMALL)
    for i, ranks in enumerate(cells):
        alone = train(PayloadSetup(8, latents, (ranks,)), SMALL)
        for name, value in alone.weights.items():
            torch.testing.assert_close(together.weights[name][i], value[0], atol=1e-4, rtol=0)
        assert together.accuracy[i].item() == pytest.approx(alone.accuracy[0].item(), abs=0.02)


def test_the_batched_forward_is_the_head_written_out():
    setup = PayloadSetup(8, "discrete", ((2, 3), (4, 2)), preset="paper")
    world, weights = World.build(setup), init_weights(setup)
    batch = draw_batch(setup, 40, "x")
    logits, out = forward(world, weights, batch)
    few = forward(world, weights, draw_batch(setup, 5, "y"))[0]
    for c in range(2):
        x, x_q = batch.tokens @ world.key[c].mT, batch.selector @ world.query[c].mT
        q, k, v = x_q @ weights["w_q"][c].mT, x @ weights["w_k"][c].mT, x @ weights["w_v"][c].mT
        expected = torch.einsum("nd,ntd->nt", q, k) / 8**0.5
        torch.testing.assert_close(logits[:, c], expected, atol=1e-3, rtol=1e-4)
        mixed = torch.einsum("nt,ntd->nd", expected.softmax(-1), v)
        torch.testing.assert_close(out[:, c], mixed @ weights["w_o"][c].mT, atol=1e-3, rtol=1e-4)
        q2, k2 = queries_and_keys(world, weights, c, draw_batch(setup, 5, "y"))
        torch.testing.assert_close(
            few[:, c].double(), torch.einsum("nd,ntd->nt", q2, k2) / 8**0.5, atol=1e-3, rtol=1e-4
        )


def test_a_killed_run_continues_to_the_same_end(tmp_path):
    setup = PayloadSetup(8, "discrete", ((2, 2), (3, 3)))
    with RunFolder(tmp_path / "a", "toy payload", config(setup, SMALL)) as folder:
        whole = train(setup, SMALL, folder=folder)
    with RunFolder(tmp_path / "b", "toy payload", config(setup, SMALL)) as folder:
        train(setup, SMALL, folder=folder, stop_after=33)
    with RunFolder(tmp_path / "b", "toy payload", config(setup, SMALL)) as folder:
        resumed = train(setup, SMALL, folder=folder)
    for name, value in whole.weights.items():
        assert torch.equal(resumed.weights[name], value)
    assert resumed.history == whole.history


def test_stopped_cells_leave_and_keep_their_best():
    eager = Schedule(max_steps=400, check_every=10, checks=1, check_batch=64, batch=64, patience=1, lr=3e-2)
    done = train(PayloadSetup(8, "discrete", ((2, 2), (3, 3), (4, 4))), eager)
    assert (done.steps < 400).any()
    assert torch.isfinite(done.loss).all()


@pytest.mark.parametrize("latents", ["discrete", "gaussian"])
@pytest.mark.parametrize("preset", ["paper", "released"])
def test_covariance_matches_its_closed_form(latents, preset):
    setup = PayloadSetup(8, latents, ((2, 3),), preset=preset)
    world, weights = World.build(setup), init_weights(setup)
    for latent in range(2):
        found = latent_covariance(world, weights, latent, 60_000, "t", latent).delta_c_
        exact = closed_form(world, weights, latent)
        assert (found - exact).norm() / exact.norm() < (0.12 if preset == "paper" else 0.05)


def test_triplets_differ_in_one_latent_alone():
    setup = PayloadSetup(8, "discrete", ((2, 3, 1),))
    world = World.build(setup)
    selector, plus, minus = triplets(world, 1, 500, "t")
    one = setup.columns(1)
    torch.testing.assert_close(plus[:, one], selector[:, one])
    assert (minus[:, one] != selector[:, one]).any(1).all()
    rest = [*range(one.start), *range(one.stop, one.stop + 1 + setup.payloads)]
    assert torch.equal(plus[:, rest], minus[:, rest])


def test_other_sign_vectors_are_uniform():
    _, plus, minus = triplets(World.build(PayloadSetup(8, "discrete", ((2, 2),))), 0, 9000, "u")
    same = (plus[:, :2] == minus[:, :2]).float()
    # Three other values: each coordinate agrees in one of them.
    assert same.mean(0).tolist() == pytest.approx([1 / 3, 1 / 3], abs=0.03)


def test_interactions_reproduce_logits_without_noise():
    setup = PayloadSetup(8, "gaussian", ((3, 2),))
    world, weights = World.build(setup), init_weights(setup)
    batch = draw_batch(setup, 20, "g")
    batch.tokens[..., 5:] = 0
    batch.selector[..., 5:] = 0
    logits = forward(world, weights, batch)[0][:, 0].double()
    g = interactions(world, weights)
    z_q, z_k = batch.selector[:, :5].double(), batch.tokens[..., :5].double()
    torch.testing.assert_close(
        logits * 8**0.5, torch.einsum("ni,ij,ntj->nt", z_q, g, z_k), atol=1e-4, rtol=1e-4
    )


def test_ceiling_by_simulation_and_values():
    values = [round(accuracy_ceiling(b), 3) for b in range(4, 13)]
    assert values == pytest.approx(
        [0.689, 0.819, 0.902, 0.949, 0.974, 0.987, 0.993, 0.997, 0.998], abs=1.1e-3
    )
    g = torch.Generator().manual_seed(0)
    code = torch.randint(0, 16, (20_000, 16), generator=g)
    payload = torch.randint(0, 10, (20_000, 16), generator=g)
    same = code == code[:, :1]
    counts = torch.zeros(20_000, 10).scatter_add_(1, payload, same.float())
    assert (counts.max(1).values / same.sum(1)).mean().item() == pytest.approx(0.689, abs=0.01)


@pytest.fixture(scope="module")
def trained():
    setup = PayloadSetup(8, "discrete", ((2, 3), (5, 5)))
    return train(setup, Schedule(max_steps=700, checks=4))


@pytest.mark.slow
def test_a_trained_cell_is_recovered(trained):
    study = study_cell(trained, 0, LITTLE)
    record = study.record
    assert record["rank99"] == record["rank_null"] == [2, 3]
    assert min(record["principal_cosine"]) > 0.99
    assert record["accuracy"] > record["ceiling"] - 0.05
    swap = record["swap"]
    assert swap["both"]["target"] == pytest.approx(swap["none"]["original"], abs=0.01)
    assert swap["both"]["original"] == pytest.approx(swap["none"]["target"], abs=0.01)
    assert swap["z1"]["original"] < swap["random_z1"]["original"]
    assert record["g_energy"]["diagonal"] > 0.9
    cloud = latent_cloud(trained, study, 0, 1, n=50)
    assert cloud.points.shape == (100, 3)


@pytest.mark.slow
def test_the_null_sees_what_the_energy_rule_hides(trained):
    record = study_cell(
        trained, 1, Effort(triplets=20_000, control_triplets=500, swaps=500, random_draws=1)
    ).record
    assert record["superposed"]
    assert sum(record["rank_null"]) > sum(record["rank99"])
    assert all(n <= 5 for n in record["rank_null"])


def test_a_whole_run_is_kept_and_continued(tmp_path):
    setup = PayloadSetup(4, "gaussian", ((1, 2), (2, 2)))
    first = run_payload(setup, SMALL, LITTLE, out=tmp_path)
    seen = []
    again = run_payload(setup, SMALL, LITTLE, out=tmp_path, on_cell=lambda i, n: seen.append((i, n)))
    assert again.records == first.records
    assert again.summary() == summarise(first.records)
    assert seen == [(1, 2), (2, 2)]
    assert not [p for p in tmp_path.iterdir() if p.name.endswith((".part", ".pkl", ".pt"))]


def test_three_latents(tmp_path):
    run = run_payload(PayloadSetup(8, "discrete", ((1, 2, 2),)), SMALL, LITTLE)
    assert len(run.records[0]["rank99"]) == 3
    assert {"z1", "z2", "z3", "both"} <= set(run.records[0]["swap"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cells": ((0, 3),)}, "rank 0 is outside"),
        ({"cells": ((3, 65),)}, "rank 65 is outside"),
        ({"preset": "mine"}, "preset 'mine' is not known"),
        ({"latents": "ternary"}, "latents 'ternary'"),
        ({"d_head": 0}, "d_head 0"),
        ({"cells": ()}, "at least one cell"),
        ({"cells": ((2, 2), (2, 2, 2))}, "same number of latents"),
    ],
)
def test_bad_setups_are_one_line(arguments, message):
    full = {"d_head": 8, "latents": "discrete", "cells": ((3, 3),), **arguments}
    with pytest.raises(HeadwiseError, match=message) as caught:
        PayloadSetup(**full)
    assert "\n" not in str(caught.value)


def test_bad_folders_are_one_line(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(HeadwiseError, match="cannot be written"):
        RunFolder(blocked / "run", "toy payload", {})
    with RunFolder(tmp_path / "run", "toy payload", {"a": 1}) as folder:
        folder.write_json("cells.json", {})
    with pytest.raises(HeadwiseError, match="holds another run"):
        RunFolder(tmp_path / "run", "toy payload", {"a": 2})
    (tmp_path / "run" / "manifest.json").write_text("{")
    with pytest.raises(HeadwiseError, match=r"manifest\.json"):
        RunFolder(tmp_path / "run", "toy payload", {"a": 1})


def test_grids_are_the_papers():
    assert len(PayloadSetup.grid(8, "discrete").cells) == 25
    big = PayloadSetup.grid(16, "gaussian").cells
    assert (len(big), min(itertools.chain(*big)), max(itertools.chain(*big))) == (81, 4, 12)
