"""Features without labels: self-contrast, its placebo, independent axes and groups, against what was planted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

from headwise.contrast import principal_cosines
from headwise.contrast.unlabelled import AttentionRows, IndependentAxes, SelfContrast, dependence, grouped
from headwise.contrast.unlabelled.features import REST, LabelFree
from headwise.errors import HeadwiseError
from headwise.toy.unlabelled import correlation


def planted(
    n: int, z: torch.Tensor, *, d_head: int = 8, seed: int = 0, strength: float = 3.0
) -> AttentionRows:
    """Rows whose keys carry latents z [n, T, r] along oblique directions; each query asks for its first key."""
    g = torch.Generator().manual_seed(seed)
    r = z.shape[-1]
    write = torch.randn(d_head, r, generator=g, dtype=torch.float64)
    keys = z.double() @ write.mT
    keys = keys + 0.05 * torch.randn(keys.shape, generator=g, dtype=torch.float64)
    read = torch.linalg.pinv(write)  # q·k = strength · z_q·z_k
    q = strength * z[:, 0].double() @ read
    attention = torch.softmax(torch.einsum("nd,ntd->nt", q, keys), -1)
    return AttentionRows(q, keys, attention, torch.ones(attention.shape, dtype=torch.bool), torch.arange(n))


def signs(n: int, t: int, r: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 2, (n, t, r), generator=torch.Generator().manual_seed(seed)) * 2.0 - 1


def test_a_contrast_is_what_was_attended_against_what_could_be() -> None:
    rows = planted(5, signs(5, 6, 3, 0))
    allowed = torch.tensor([[False, True, True, True, False, True]]).expand(5, -1)
    rows = AttentionRows(rows.q, rows.keys, rows.attention, allowed, rows.unit)
    for i in range(5):
        some = allowed[i]
        a, k = rows.attention[i, some], rows.keys[i, some]
        expected = (a[:, None] * k).sum(0) - a.sum() * k.mean(0)
        assert torch.allclose(rows.contrast()[i], expected)


def test_a_placebo_keeps_sizes_and_never_touches_what_does_not_count() -> None:
    rows = planted(200, signs(200, 7, 3, 1))
    allowed = torch.rand(200, 7, generator=torch.Generator().manual_seed(2)) < 0.6
    rows = AttentionRows(rows.q, rows.keys, rows.attention, allowed, rows.unit)
    dealt = rows.shuffled(torch.Generator().manual_seed(3))
    for a, b, some in zip(rows.attention, dealt, allowed, strict=True):
        assert torch.equal(a[some].sort().values, b[some].sort().values)
    moved = (dealt != rows.attention) & allowed
    assert moved.any()
    # Every allowed place is equally likely: the largest attention lands on the first allowed key as often as elsewhere.
    assert torch.allclose(rows.contrast(dealt), rows.contrast(dealt * allowed))


def test_the_rank_is_the_number_of_latents_and_the_span_is_theirs() -> None:
    rows = planted(3000, signs(3000, 12, 4, 4))
    fitted = SelfContrast().fit(rows)
    assert (fitted.rank_, fitted.rank_energy_) == (4, 4)
    truth = torch.linalg.svd(rows.keys.flatten(0, 1).mT @ rows.keys.flatten(0, 1))[0][:, :4]
    assert principal_cosines(fitted.key_, truth)[-1] > 0.999


def test_parts_fitted_one_after_the_other_are_the_whole() -> None:
    rows = planted(600, signs(600, 8, 3, 5))
    whole = SelfContrast().fit(rows)
    parts = SelfContrast().reset()
    for at in (slice(0, 250), slice(250, 600)):
        parts.partial_fit(rows.chosen(torch.arange(600)[at]))
    parts.finish()
    assert torch.allclose(whole.delta_c_, parts.delta_c_)
    assert torch.equal(whole.cells_.row, parts.cells_.row)
    assert whole.rank_ == parts.rank_


def test_attention_that_goes_anywhere_has_no_rank() -> None:
    """False alarms of the placebo: attention that was dealt at random is its own placebo."""
    found = []
    for seed in range(20):
        rows = planted(200, signs(200, 8, 3, 100 + seed))
        dealt = rows.shuffled(torch.Generator().manual_seed(seed))
        rows = AttentionRows(rows.q, rows.keys, dealt, rows.allowed, rows.unit)
        found.append(SelfContrast(seed=seed).fit(rows).rank_null_ > 0)
    assert sum(found) <= 4  # of 20 at level 0.05: five or more have probability 0.003


def test_directions_that_attention_does_not_follow_are_not_counted() -> None:
    """Queries vary along five more directions, and so do keys, but nothing is chosen by them."""
    extra = []
    for seed in range(30):
        g = torch.Generator().manual_seed(300 + seed)
        rows = planted(400, signs(400, 8, 3, 200 + seed))
        q, keys = (x + torch.randn(x.shape, generator=g, dtype=torch.float64) for x in (rows.q, rows.keys))
        fitted = SelfContrast(seed=seed).fit(AttentionRows(q, keys, rows.attention, rows.allowed, rows.unit))
        assert fitted.rank_ >= 3
        extra.append(fitted.rank_ > 3)
    assert sum(extra) <= 3  # of 30 at level 0.01: four or more have probability 0.0002


def weakly_read(n: int, seed: int) -> tuple[AttentionRows, torch.Tensor]:
    """Rows of four signs that share four directions, one of them with a thousandth of the energy of ΔC."""
    g = torch.Generator().manual_seed(0)
    left, turn = (torch.linalg.qr(torch.randn(8, 8, generator=g, dtype=torch.float64)).Q for _ in range(2))
    write = left[:, :4] * torch.tensor([1.0, 1.0, 1.0, 0.2]) @ torch.linalg.qr(turn[:4, :4]).Q
    z = signs(n, 12, 4, seed)
    noise = torch.randn(n, 12, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    keys = z.double() @ write.mT + 0.01 * noise
    q = 3 * z[:, 0].double() @ write.mT
    attention = torch.softmax(torch.einsum("nd,ntd->nt", q, keys), -1)
    every = torch.ones(attention.shape, dtype=torch.bool)
    return AttentionRows(q, keys, attention, every, torch.arange(n)), z


def test_a_weak_direction_belongs_to_the_span_and_without_it_latents_mix() -> None:
    rows, _ = weakly_read(3000, 21)
    held, z = weakly_read(1500, 22)
    fitted = SelfContrast().fit(rows)
    assert (fitted.rank_, fitted.rank_energy_) == (4, 3)
    cells = held.cells()
    truth = z[cells.row, cells.key].double()

    def found(contrast: SelfContrast) -> list[float]:
        made = LabelFree.fit(contrast, cells)
        return correlation(made.coordinates(cells.k), truth).amax(0).tolist()

    assert min(found(fitted)) > 0.98
    assert min(found(SelfContrast(max_rank=3).fit(rows))) < 0.9


def test_every_sign_is_an_axis_of_its_own_and_singular_vectors_are_not() -> None:
    z = signs(3000, 12, 4, 6)
    rows, held = planted(3000, z), planted(1000, other := signs(1000, 12, 4, 7))
    found = LabelFree.fit(SelfContrast().fit(rows), held.cells())
    cells = held.cells()
    truth = other[cells.row, cells.key].double()

    def best(coordinates: torch.Tensor) -> float:
        both = torch.corrcoef(torch.cat([coordinates, truth], 1).mT)[:4, 4:].abs()
        return float(both.amax(0).min())

    assert best(found.coordinates(cells.k)) > 0.98
    assert best(found.contrast.transform(cells.k)) < 0.95
    assert found.groups == ((0,), (1,), (2,), (3,))
    assert found.names == ["f1", "f2", "f3", "f4"]


def test_gaussian_latents_have_a_span_but_no_axes_and_that_is_said() -> None:
    g = torch.Generator().manual_seed(8)
    rows, held = (planted(n, torch.randn(n, 12, 3, generator=g)) for n in (3000, 1000))
    found = LabelFree.fit(SelfContrast().fit(rows), held.cells())
    assert found.contrast.rank_ == 3
    assert not found.axes.identified_.any()
    assert found.groups == ((0, 1, 2),)
    assert found.names == [REST]


def test_the_parts_of_all_axes_are_the_logit_inside_the_span() -> None:
    rows, held = planted(1500, signs(1500, 10, 3, 9)), planted(300, signs(300, 10, 3, 10))
    found = LabelFree.fit(SelfContrast().fit(rows), held.cells())
    parts = found.parts(held.q, held.keys, 0.5).sum(0)
    span = found.contrast.key_ @ found.contrast.key_.mT
    inside = 0.5 * torch.einsum("nd,ntd->nt", held.q @ span, held.keys)
    assert torch.allclose(
        parts - parts.mean(1, keepdim=True), inside - inside.mean(1, keepdim=True), atol=1e-9
    )


def test_a_feature_pairs_the_queries_with_the_keys_they_ask_for() -> None:
    """The query of a feature is found through ΔC: it must be the direction along which queries ask for that latent."""
    z = signs(4000, 12, 3, 11)
    rows = planted(4000, z)
    found = LabelFree.fit(SelfContrast().fit(rows), planted(800, signs(800, 12, 3, 12)).cells())
    asked = torch.linalg.lstsq(z[:, 0].double(), rows.q).solution.mT  # [d_head, latents]: q = asked · z
    carried = torch.linalg.lstsq(z.flatten(0, 1).double(), rows.keys.flatten(0, 1)).solution.mT
    for feature in found.features:
        cosines = [
            (side.basis.mT @ torch.nn.functional.normalize(true, dim=0)).abs()[0]
            for side, true in ((feature.query, asked), (feature.key, carried))
        ]
        assert cosines[0].argmax() == cosines[1].argmax()
        assert min(c.max() for c in cosines) > 0.99


def test_axes_that_are_active_together_are_one_feature() -> None:
    g = np.random.default_rng(0)
    on = (g.random((4000, 2)) < 0.15).repeat(2, axis=1)
    found = g.normal(size=(4000, 4)) * on
    found = found / found.std(0)
    assert grouped(found) == [(0, 1), (2, 3)]


def test_a_ring_is_one_feature_of_two_dimensions() -> None:
    """No axes inside it are better than others, so single ones are not found again; their span is."""
    g = torch.Generator().manual_seed(14)

    def world(n: int) -> AttentionRows:
        angle = 2 * torch.pi * torch.rand(n, 12, generator=g)
        ring = 1.4 * torch.stack([angle.cos(), angle.sin()], -1)
        return planted(n, torch.cat([ring, signs(n, 12, 2, n)], -1))

    found = LabelFree.fit(SelfContrast().fit(world(3000)), world(1500).cells())
    assert sorted(map(len, found.groups)) == [1, 1, 2]
    assert all(found.known)
    ring = next(group for group in found.groups if len(group) == 2)
    assert not found.axes.identified_[list(ring)].any()


def test_signs_with_a_trace_of_one_another_do_not_depend() -> None:
    """Their squares are constant but for that trace, so a plain correlation of squares would be 1."""
    z = np.random.default_rng(1).choice([-1.0, 1.0], size=(4000, 2))
    mixed = z + 0.02 * z[:, ::-1]
    assert abs(np.corrcoef(mixed[:, 0] ** 2, mixed[:, 1] ** 2)[0, 1]) > 0.99
    assert dependence(mixed / mixed.std(0))[0, 1] < 0.01


def test_estimators_are_cloned_with_their_parameters() -> None:
    for one in (SelfContrast(alpha=0.02, placebos=60), IndependentAxes(seeds=1, surrogates=5)):
        copy = clone(one)
        assert isinstance(copy, type(one)) and copy.get_params() == one.get_params()


def test_too_little_is_refused_in_one_line() -> None:
    rows = planted(30, signs(30, 8, 4, 13))
    cells = rows.cells()
    with pytest.raises(HeadwiseError, match="keys are too few for 4 independent axes"):
        IndependentAxes().fit((cells.k @ torch.randn(8, 4, dtype=torch.float64)).numpy())
    with pytest.raises(HeadwiseError, match="all keys are of one text"):
        IndependentAxes().fit(np.random.default_rng(0).normal(size=(200, 2)), units=np.zeros(200))
    with pytest.raises(HeadwiseError, match="too few for level"):
        SelfContrast(placebos=5).fit(rows)
    alone = AttentionRows(rows.q, rows.keys, rows.attention, torch.zeros_like(rows.allowed), rows.unit)
    with pytest.raises(HeadwiseError, match="no rows with two keys"):
        SelfContrast().fit(alone)
