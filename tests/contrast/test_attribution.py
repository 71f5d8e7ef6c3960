"""Attribution: parts sum to the logits, both methods, any leading axes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.contrast import attribute, query_split, random_subspaces
from headwise.errors import HeadwiseError
from headwise.types import Subspace


def subspaces(seed, ranks, d_head=8):
    g = torch.Generator().manual_seed(seed)
    return {f"f{i}": Subspace(random_subspaces(d_head, r, 1, generator=g)[0]) for i, r in enumerate(ranks)}


@given(
    seed=st.integers(0, 1000),
    ranks=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    method=st.sampled_from(["sequential", "shapley"]),
)
@settings(max_examples=30, deadline=None)
def test_parts_sum_to_the_logits(seed, ranks, method):
    g = torch.Generator().manual_seed(seed)
    q, keys = torch.randn(2, 3, 8, generator=g), torch.randn(2, 3, 5, 8, generator=g)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[:, 4] = False
    found = attribute(q, keys, subspaces(seed, ranks), scale=0.4, mask=mask, method=method)
    logits = (0.4 * torch.einsum("abd,abtd->abt", q.double(), keys.double())).masked_fill(~mask, 0)
    torch.testing.assert_close(found.total, logits)
    torch.testing.assert_close(found.parts.sum(-2) + found.residual, logits, atol=1e-10, rtol=0)
    torch.testing.assert_close(sum(found.shares().values()), torch.ones(2, 3, dtype=torch.float64))
    parts, residual, total = found.centred()
    torch.testing.assert_close(parts.sum(-2) + residual, total, atol=1e-10, rtol=0)
    assert total[..., :4].sum(-1).abs().max() < 1e-10


def test_orthogonal_features_do_not_care_about_order_or_method():
    axes = torch.eye(8, dtype=torch.float64)
    features = {"a": Subspace(axes[:, :2]), "b": Subspace(axes[:, 2:5])}
    torch.testing.assert_close(query_split(features), query_split(features, "shapley"))
    swapped = query_split(dict(reversed(features.items())))
    torch.testing.assert_close(query_split(features), swapped.flip(0))


def test_sequential_follows_the_paper():
    features = subspaces(0, [2, 3])
    q = torch.randn(8, dtype=torch.float64)
    first, second = (s.basis @ s.basis.T for s in features.values())
    q1 = first @ q
    torch.testing.assert_close(query_split(features) @ q, torch.stack([q1, second @ (q - q1)]))


def test_shapley_is_symmetric_and_leaves_only_what_no_feature_spans():
    features = subspaces(1, [3, 3, 2])
    split = query_split(features, "shapley")
    again = query_split(dict(reversed(features.items())), "shapley")
    torch.testing.assert_close(split, again.flip(0))
    # Three subspaces of total rank 8 in general position span everything.
    torch.testing.assert_close(split.sum(0), torch.eye(8, dtype=torch.float64))
    twin = query_split({"a": features["f0"], "b": features["f0"]}, "shapley")
    torch.testing.assert_close(twin[0], twin[1])


def test_explained_fraction():
    axes = torch.eye(4)
    q, keys = torch.tensor([1.0, 1, 0, 0]), torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [3, 3, 0, 0]])
    assert attribute(q, keys, {"all": Subspace(axes[:, :2])}, scale=1.0).explained().item() == pytest.approx(
        1
    )
    none = attribute(q, keys, {"off": Subspace(axes[:, 2:])}, scale=1.0)
    assert none.explained().item() == pytest.approx(0)
    assert none.shares()["residual"].item() == pytest.approx(1)


@pytest.mark.parametrize(
    ("features", "method", "message"),
    [
        ({}, "sequential", "at least one"),
        ({"a": Subspace(torch.eye(8)), "b": Subspace(torch.eye(4))}, "sequential", "different heads"),
        (subspaces(0, [1]), "magic", "'magic' is not known"),
        (subspaces(0, [1] * 11), "shapley", "at most 10"),
    ],
)
def test_bad_input_is_one_line(features, method, message):
    with pytest.raises(HeadwiseError, match=message):
        query_split(features, method)
