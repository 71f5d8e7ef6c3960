"""Swaps: the analytic result equals an honest recomputation with edited keys, and the identities hold."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.contrast import SwapRows, dose_response, edit_rows, random_subspaces, swap_keys, swap_test
from headwise.errors import HeadwiseError


def problem(seed=0, heads=2, n=6, keys=7, d_head=5, cap=None):
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(heads, n, d_head, generator=g, dtype=torch.float64)
    k = torch.randn(heads, n, keys, d_head, generator=g, dtype=torch.float64)
    order = torch.rand(n, keys - 1, generator=g).argsort(1)
    mask = torch.ones(n, keys, dtype=torch.bool)
    mask[:, -1] = False
    rows = SwapRows.from_keys(q, k, order[:, 0], order[:, 1], scale=0.7, cap=cap, mask=mask)
    return rows, random_subspaces(d_head, 2, 4, generator=g), g


def honest(rows, q, keys):
    """Attention on original and target by recomputing the whole row."""
    logits = rows.scale * (keys @ q[..., None])[..., 0]
    if rows.cap:
        logits = rows.cap * torch.tanh(logits / rows.cap)
    p = logits.masked_fill(~rows.mask, float("-inf")).softmax(-1)
    at = torch.arange(len(rows.original))
    return p[..., at, rows.original], p[..., at, rows.target]


def swapped_keys(rows, basis, dose=1.0):
    keys, at = rows.keys.clone(), torch.arange(len(rows.original))
    moved = dose * ((rows.k_target - rows.k_original) @ basis) @ basis.mT
    keys[:, at, rows.original] += moved
    keys[:, at, rows.target] -= moved
    return keys


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("dose", [1.0, 0.3])
def test_key_swap_equals_recomputation(cap, dose):
    rows, bases, _ = problem(cap=cap)
    edited = swap_keys(rows, bases, dose=dose)
    for s in range(4):
        original, target = honest(rows, rows.q, swapped_keys(rows, bases[s], dose))
        torch.testing.assert_close(edited.original[:, s], original)
        torch.testing.assert_close(edited.target[:, s], target)
    clean = rows.clean()
    change = (edited.target / edited.original).log() - (clean.target / clean.original).log()
    torch.testing.assert_close(edited.log_odds, change)


@given(seed=st.integers(0, 1000), cap=st.sampled_from([None, 2.0]))
@settings(max_examples=25, deadline=None)
def test_full_swap_reverses_and_swapping_twice_is_identity(seed, cap):
    rows, bases, _ = problem(seed, cap=cap)
    clean, full = rows.clean(), swap_keys(rows, torch.eye(5, dtype=torch.float64)[None])
    torch.testing.assert_close(full.original, clean.target)
    torch.testing.assert_close(full.target, clean.original)
    torch.testing.assert_close(swap_keys(rows, None).target, full.target)
    again = SwapRows.from_keys(
        rows.q, swapped_keys(rows, bases[0]), rows.original, rows.target, scale=0.7, cap=cap, mask=rows.mask
    )
    twice = swap_keys(again, bases[:1])
    torch.testing.assert_close(twice.original, clean.original)
    torch.testing.assert_close(twice.target, clean.target)


def test_per_head_bases_and_doses():
    rows, bases, g = problem()
    per_head = torch.stack([bases, random_subspaces(5, 2, 4, generator=g)])
    both = swap_keys(rows, per_head)
    torch.testing.assert_close(both.original[0], swap_keys(rows, bases).original[0])
    curve = dose_response(rows, bases, torch.tensor([0.0, 0.5, 1.0]))
    assert curve.original.shape == (3, 2, 4, 6)
    torch.testing.assert_close(curve.original[0], rows.clean().original.expand(2, 4, 6))
    torch.testing.assert_close(curve.log_odds[1] * 2, curve.log_odds[2])


@pytest.mark.parametrize("cap", [None, 1.5])
def test_query_joint_and_ablation_equal_recomputation(cap):
    rows, bases, g = problem(cap=cap)
    new_q = torch.randn(rows.q.shape, generator=g, dtype=torch.float64)
    u, v = bases, random_subspaces(5, 3, 4, generator=g)
    query = edit_rows(rows, query_bases=u, new_q=new_q)
    joint = edit_rows(rows, query_bases=u, key_bases=v, new_q=new_q)
    keys_only = edit_rows(rows, key_bases=v)
    assert rows.keys is not None
    out_q, out_k = edit_rows(rows, query_bases=u, mode="ablate"), edit_rows(rows, key_bases=v, mode="ablate")
    both = edit_rows(rows, query_bases=u, key_bases=v, mode="ablate")
    for s in range(4):
        pu, pv = u[s] @ u[s].T, v[s] @ v[s].T
        moved = rows.q + (new_q - rows.q) @ pu
        gone, keys_gone = rows.q - rows.q @ pu, rows.keys - rows.keys @ pv
        for edited, q, keys in (
            (query, moved, rows.keys),
            (joint, moved, swapped_keys(rows, v[s])),
            (keys_only, rows.q, swapped_keys(rows, v[s])),
            (out_q, gone, rows.keys),
            (out_k, rows.q, keys_gone),
            (both, gone, keys_gone),
        ):
            original, target = honest(rows, q, keys)
            torch.testing.assert_close(edited.original[:, s], original)
            torch.testing.assert_close(edited.target[:, s], target)


def test_only_two_keys_and_a_logit_row_are_enough():
    rows, bases, _ = problem()
    lean = SwapRows(
        rows.q, rows.k_original, rows.k_target, rows.logits, rows.original, rows.target, 0.7, mask=rows.mask
    )
    torch.testing.assert_close(swap_keys(lean, bases).target, swap_keys(rows, bases).target)
    with pytest.raises(HeadwiseError, match="build the rows"):
        edit_rows(lean, key_bases=bases, mode="ablate")


def test_swap_test_separates_a_feature_from_random_directions():
    g = torch.Generator().manual_seed(0)
    n, d = 400, 12
    code = torch.zeros(d, dtype=torch.float64)
    code[0] = 1
    keys = 0.3 * torch.randn(n, 6, d, generator=g, dtype=torch.float64)
    keys[:, 0] += 2 * code
    q = (2 * code).expand(n, d) + 0.3 * torch.randn(n, d, generator=g, dtype=torch.float64)
    rows = SwapRows.from_keys(q, keys, torch.zeros(n, dtype=torch.long), torch.full((n,), 3), scale=1.0)
    draws = swap_keys(rows, random_subspaces(d, 1, 200, generator=g))
    full = swap_keys(rows, None)
    found = swap_test(swap_keys(rows, code[None, :, None]), full, draws, generator=g)
    assert found.share.mean > 0.9
    assert found.share.low < found.share.mean < found.share.high
    assert found.percentile > 99
    assert found.p_value < 0.02
    assert found.target.mean > 0.7 > found.random_target
    null = swap_test(swap_keys(rows, random_subspaces(d, 1, 1, generator=g)), full, draws, generator=g)
    assert null.percentile < 99


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "original"}, "same key"),
        ({"masked": True}, "masked"),
    ],
)
def test_bad_rows_are_refused(change, message):
    rows, _, _ = problem()
    assert rows.keys is not None
    assert rows.mask is not None
    target = rows.original if change.get("target") else rows.target
    mask = torch.zeros_like(rows.mask) if change.get("masked") else rows.mask
    with pytest.raises(HeadwiseError, match=message):
        SwapRows.from_keys(rows.q, rows.keys, rows.original, target, scale=1.0, mask=mask)
