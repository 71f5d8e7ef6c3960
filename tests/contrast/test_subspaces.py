"""Subspaces: unions without invented directions, angles, superposition, controls."""

import pytest
import torch

from headwise.contrast import (
    ContrastiveCovariance,
    feature,
    mean_difference,
    principal_angles,
    principal_components,
    principal_cosines,
    random_subspaces,
    superposition_index,
    union,
)
from headwise.errors import HeadwiseError
from headwise.types import Subspace


def test_five_planted_categories_span_four_dimensions():
    g = torch.Generator().manual_seed(0)
    means = torch.randn(5, 16, generator=g)
    query = torch.randn(5, 16, generator=g)
    keys = means[:, None] + 0.1 * torch.randn(5, 400, 16, generator=g)
    found = []
    for c in range(5):
        others = keys[[i for i in range(5) if i != c]].reshape(1, -1, 16)
        q = query[c] + 0.1 * torch.randn(50, 16, generator=g)
        cov = ContrastiveCovariance().fit(q, keys[c].expand(50, -1, -1), others.expand(50, -1, -1))
        found.append(feature(cov.delta_c_, 1, str(c)))
    assert union([f.key for f in found]).rank == 4
    assert union([f.query for f in found]).rank == 5
    centred = (means - means.mean(0)).T
    true = Subspace.spanned_by(centred, tolerance=1e-4)
    assert true.rank == 4
    assert principal_cosines(true, union([f.key for f in found])).min() > 0.999


def test_feature_recovers_planted_sides_and_is_canonical():
    g = torch.Generator().manual_seed(1)
    u, v = (torch.linalg.qr(torch.randn(10, 3, generator=g, dtype=torch.float64)).Q for _ in range(2))
    delta = u @ torch.diag(torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)) @ v.T
    found = feature(delta, 3, "x")
    assert principal_cosines(found.query, u).min() > 1 - 1e-12
    assert principal_cosines(found.key, v).min() > 1 - 1e-12
    torch.testing.assert_close(found.query.basis @ torch.diag(found.sigma) @ found.key.basis.T, delta)
    picked = found.query.basis.abs().argmax(0)
    assert (found.query.basis[picked, torch.arange(3)] > 0).all()


def test_overlap_angles_and_superposition():
    axes = torch.eye(6, dtype=torch.float64)
    a, b = Subspace(axes[:, :3]), Subspace(axes[:, 2:5])
    assert principal_cosines(a, b).square().mean().item() == pytest.approx(1 / 3)
    assert principal_angles(a, b).tolist() == pytest.approx([0, 90, 90])
    assert 0 < superposition_index([a, b]) < superposition_index([a, a])


def test_random_subspaces_are_orthonormal_and_reproducible():
    bases = random_subspaces(8, 3, 50, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(bases.mT @ bases, torch.eye(3, dtype=torch.float64).expand(50, 3, 3))
    again = random_subspaces(8, 3, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(bases, again)
    # A random direction keeps rank / d_head of a vector's energy on average.
    energy = (torch.eye(8, dtype=torch.float64)[0] @ bases).square().sum(-1).mean()
    assert energy.item() == pytest.approx(3 / 8, abs=0.07)


def test_controls():
    g = torch.Generator().manual_seed(0)
    keys = torch.randn(300, 6, generator=g) * torch.tensor([5.0, 1, 1, 1, 1, 1]) + 10
    assert principal_components(keys, 1).basis[0].abs().item() > 0.99
    cov = ContrastiveCovariance().fit(
        torch.randn(50, 6, generator=g), torch.eye(6)[:1].expand(50, 6), torch.zeros(50, 6)
    )
    assert mean_difference(cov).basis[:, 0].abs().tolist() == pytest.approx([1, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: feature(torch.eye(3), 0, "x"), "rank 0 of feature 'x'"),
        (lambda: feature(torch.zeros(2, 3, 3), 1), "pick a head"),
        (lambda: union([]), "at least one"),
        (lambda: union([Subspace(torch.eye(2)), Subspace(torch.eye(3))]), "different heads"),
        (lambda: random_subspaces(3, 4, 1, generator=torch.Generator()), "does not fit"),
        (lambda: principal_components(torch.eye(3), 4), "do not exist"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(HeadwiseError, match=message):
        call()
