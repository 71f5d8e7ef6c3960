"""Alignment: the batched loss is the written-out one, variants are independent, one pair aligns, closed
form holds.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from headwise.errors import HeadwiseError
from headwise.scale.folder import RunFolder
from headwise.show.toy.alignment import sweep_figure
from headwise.toy import alignment as world
from headwise.toy.alignment import AlignmentRun, AlignmentSetup, case, pair_cosines, sweep, train_alignment
from headwise.toy.alignment_study import by_value, closed_form_vectors, study_variant, summarise


def test_loss_is_the_definition():
    setup = AlignmentSetup(features=6, dims=4, head=3, sources=5)
    packed = world._pack([setup])
    weights = world._init([setup], packed)
    f = world.draw(packed, [0], 32, 1)
    recon, attention = world.losses(weights, packed, f)
    w, omega = weights["w"][0], weights["w_q"][0].mT @ weights["w_k"][0]
    total_r = total_a = 0.0
    for b in range(32):
        r, s = w @ f[0, b, 0], f[0, b, 1:] @ w.mT
        rebuilt = torch.relu(w.mT @ r + weights["bias"][0])
        total_r += (rebuilt - f[0, b, 0]).square().sum().item() / 32
        target = torch.stack([10.0 * f[0, b, 0, 0] * x[1] for x in f[0, b, 1:]]).softmax(-1)
        found = (s @ (omega.mT @ r)).softmax(-1)
        total_a += (target * (target / found).log()).sum().item() / 32
    assert recon.item() == pytest.approx(total_r, rel=1e-4)
    assert attention.item() == pytest.approx(total_a, rel=1e-3, abs=1e-6)


def test_features_have_the_stated_strengths():
    packed = world._pack([AlignmentSetup(probability=0.25), AlignmentSetup(probability=0.5)])
    f = world.draw(packed, [0, 0], 2000, 1)
    assert (f > 0).float().mean((1, 2, 3)).tolist() == pytest.approx([0.25, 0.5], abs=0.01)
    assert f[f > 0].mean().item() == pytest.approx(0.5, abs=0.01)


def test_a_variant_in_a_sweep_is_the_variant_alone():
    setups = [replace(s, dims=6, head=min(s.head, 6)) for s in sweep("context", 1)[:3]]
    together = train_alignment(setups, steps=40, batch=64)
    # Padding of the sources belongs to the draw, so the widest variant is the one to compare.
    alone = train_alignment(setups[-1:], steps=40, batch=64)
    for name in alone.weights:
        torch.testing.assert_close(together.weights[name][-1], alone.weights[name][0], atol=1e-4, rtol=0)


@pytest.mark.slow
def test_one_pair_aligns_and_nothing_does_without_a_head():
    run = train_alignment(case("pair", 2), steps=600, batch=128, lr=3e-3)
    records = [study_variant(run, v) for v in range(2)]
    summary = summarise(records, 600)
    assert summary["smallest_cosine"] > 0.98
    assert summary["second_to_first_singular_value"] < 0.1
    assert summary["others_inside"] < summary["others_inside_by_chance"]
    assert summary["closed_form_cosine"] > 0.95
    assert pair_cosines(run, 0)[0]["channel"] == 0
    bare = train_alignment(case("none", 2), steps=200, batch=128, lr=2e-3)
    assert (
        summarise([study_variant(bare, v) for v in range(2)], 200)["mean_largest_cosine_any_feature"] < 0.95
    )


def test_closed_form_is_the_least_squares_head():
    """Independent centred features under a known, anisotropic covariance: the best bilinear reader is
    Σ⁻¹ww'ᵀΣ⁻¹.
    """
    g = torch.Generator().manual_seed(0)
    w = torch.randn(4, 7, generator=g, dtype=torch.float64)
    spread = torch.rand(7, generator=g, dtype=torch.float64) + 0.5
    n = 60_000
    f, h = (torch.randn(n, 7, generator=g, dtype=torch.float64) * spread for _ in range(2))
    x, y = f @ w.T, h @ w.T
    design = torch.einsum("ni,nj->nij", x, y).reshape(n, 16)
    omega = torch.linalg.lstsq(design, (f[:, 0] * h[:, 1])[:, None]).solution.reshape(4, 4)
    left, sigma, right = torch.linalg.svd(omega)
    u, v = closed_form_vectors(w, 0, 1, w @ torch.diag(spread**2) @ w.T)
    assert (u @ left[:, 0]).abs() > 0.999
    assert (v @ right[0]).abs() > 0.999
    assert sigma[1] < 0.1 * sigma[0]


def test_a_killed_run_continues_to_the_same_end(tmp_path):
    setups = case("pair", 2)
    short = partial(train_alignment, setups, steps=60, batch=32, check_every=2)
    whole = short()
    with RunFolder(tmp_path, "toy alignment", world.config(setups, 60)) as folder:
        short(folder=folder, stop_after=47)
    with folder:
        resumed = short(folder=folder)
    for name, value in whole.weights.items():
        assert torch.equal(resumed.weights[name], value)
    assert resumed.history == whole.history


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: case("triple"), "case 'triple'"),
        (lambda: case("pair", 0), "seeds=0"),
        (lambda: sweep("colour"), "sweep 'colour'"),
        (lambda: AlignmentSetup(probability=0), "probability 0"),
        (lambda: AlignmentSetup(head=11), "head of 11"),
        (lambda: AlignmentSetup(targets=((0, 20, 1.0),)), r"pair \(0, 20\)"),
        (lambda: train_alignment(case("pair", 1), steps=0), "steps=0"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(HeadwiseError, match=message):
        call()


def test_a_sweep_is_told_value_by_value():
    setups = [replace(s, head=h) for h in (1, 4) for s in case("pair", 2)]
    run = train_alignment(setups, steps=30, batch=32, check_every=10)
    records = [study_variant(run, v) for v in range(4)]
    one, four = by_value(records, "head")
    assert (one["head"], four["head"]) == (1, 4) and one["seeds"] == four["seeds"] == 2
    assert one["second_to_first_singular_value"] is None
    weaker = [min(p["cos_query"], p["cos_key"]) for r in records[2:] for p in r["pairs"]]
    assert four["smallest_cosine"] == min(weaker)
    assert four["mean_cosine"] == pytest.approx(sum(weaker) / 2)
    assert four["mean_logit"] == pytest.approx(sum(r["logits"][0] for r in records[2:]) / 2)
    assert four["second_to_first_singular_value"] == max(
        r["spectrum"][1] / r["spectrum"][0] for r in records[2:]
    )
    # A head of one dimension first or last must not hide the others' second singular value.
    assert summarise(records, 30)["second_to_first_singular_value"] == pytest.approx(
        four["second_to_first_singular_value"]
    )


def test_a_sweep_figure_holds_every_seed_and_their_means():
    setups = [replace(s, sources=m) for m in (2, 4) for s in case("pair", 2)]
    run = train_alignment(setups, steps=10, batch=16, check_every=10)
    records = [study_variant(run, v) for v in range(4)]
    drawn: Any = sweep_figure(records, "context").data
    traces = {t.name: t for t in drawn}
    assert list(traces["logit, each seed"].x) == [2, 2, 4, 4]
    assert list(traces["logit, each seed"].y) == [r["logits"][0] for r in records]
    assert list(traces["key side, each seed"].y) == [r["pairs"][0]["cos_key"] for r in records]
    assert traces["logit"].y[1] == pytest.approx(sum(r["logits"][0] for r in records[2:]) / 2)
    assert set(traces["target logit"].y) == {10.0}


def test_pairs_of_equal_singular_value_are_related_though_no_channel_is_theirs():
    """Two pairs with σ equal: the decomposition may mix them, the singular relation does not."""
    setup = AlignmentSetup(features=4, dims=4, head=4, targets=((0, 2, 5.0), (1, 3, 5.0)))
    w = torch.eye(4, dtype=torch.float64)
    omega = torch.zeros(4, 4, dtype=torch.float64)
    omega[0, 2], omega[1, 3] = 1.0, 1.0
    turn = torch.linalg.qr(
        torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ).Q
    # Ω = w_qᵀ w_k for any rotation of the head's own space.
    weights = {"w": w[None], "bias": torch.zeros(1, 4), "w_q": turn[None], "w_k": (turn @ omega)[None]}
    equal = pair_cosines(AlignmentRun([setup], weights, []), 0)
    assert [p["relation"] for p in equal] == pytest.approx([1.0, 1.0], abs=1e-9)
    # A pair whose key is read together with another feature is not a singular pair.
    omega[0, 3] = 1.0
    weights["w_k"] = (turn @ omega)[None]
    mixed = pair_cosines(AlignmentRun([setup], weights, []), 0)
    assert mixed[0]["relation"] == pytest.approx(2**-0.5, abs=1e-9)
