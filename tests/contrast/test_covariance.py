"""ΔC: streaming equals brute force, and nothing that should not matter does."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.contrast import ContrastiveCovariance, salience_split
from headwise.errors import HeadwiseError


def draw(seed, n=12, heads=3, d_head=5, keys=4):
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(n, heads, d_head, generator=g)
    plus = torch.randn(n, heads, keys, d_head, generator=g)
    minus = torch.randn(n, heads, keys + 2, d_head, generator=g)
    plus_mask = torch.rand(n, keys, generator=g) < 0.6
    minus_mask = torch.rand(n, keys + 2, generator=g) < 0.6
    plus_mask[:, 0] = minus_mask[:, 0] = True
    return q, plus, minus, {"positive_mask": plus_mask, "negative_mask": minus_mask}


def brute_force(q, plus, minus, positive_mask, negative_mask):
    n, heads, d_head = q.shape
    total = torch.zeros(heads, d_head, d_head, dtype=torch.float64)
    for i in range(n):
        for h in range(heads):
            for keys, mask, sign in ((plus, positive_mask, 1), (minus, negative_mask, -1)):
                chosen = keys[i, h][mask[i]].double()
                for k in chosen:
                    total[h] += sign * torch.outer(q[i, h].double(), k) / len(chosen) / n
    return total


@pytest.mark.parametrize("keep", ["pairs", "sums"])
def test_streaming_equals_brute_force(keep):
    q, plus, minus, masks = draw(0)
    cov = ContrastiveCovariance(keep=keep)
    for part in (slice(0, 5), slice(5, 6), slice(6, 12)):
        cov.partial_fit(q[part], plus[part], minus[part], **{k: m[part] for k, m in masks.items()})
    torch.testing.assert_close(cov.delta_c_, brute_force(q, plus, minus, **masks), atol=1e-10, rtol=0)
    assert cov.n_prompts_ == 12


@given(seed=st.integers(0, 10_000), cut=st.integers(1, 11))
@settings(max_examples=25, deadline=None)
def test_order_batches_merge_and_padding_change_nothing(seed, cut):
    q, plus, minus, masks = draw(seed)
    whole = ContrastiveCovariance().fit(q, plus, minus, **masks)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    # Padding carries garbage on purpose: it must never be read.
    padded = torch.cat([plus, torch.full_like(plus[:, :, :3], float("nan"))], 2)[order]
    mask = torch.cat([masks["positive_mask"], torch.zeros(12, 3, dtype=torch.bool)], 1)[order]
    parts = [
        ContrastiveCovariance(keep="pairs").fit(
            q[order][s],
            padded[s],
            minus[order][s],
            positive_mask=mask[s],
            negative_mask=masks["negative_mask"][order][s],
        )
        for s in (slice(0, cut), slice(cut, 12))
    ]
    merged = ContrastiveCovariance() + parts[1] + parts[0]
    torch.testing.assert_close(merged.delta_c_, whole.delta_c_, atol=1e-10, rtol=0)
    torch.testing.assert_close(merged.salience_, whole.salience_, atol=1e-10, rtol=0)


def test_heads_do_not_mix():
    q, plus, minus, masks = draw(1)
    together = ContrastiveCovariance().fit(q, plus, minus, **masks).delta_c_
    alone = ContrastiveCovariance().fit(q[:, 1], plus[:, 1], minus[:, 1], **masks).delta_c_
    torch.testing.assert_close(together[1], alone)


def test_equal_keys_give_zero():
    q, plus, _, _ = draw(2)
    cov = ContrastiveCovariance().fit(q, plus, plus)
    assert cov.delta_c_.abs().max() < 1e-12


def test_unequal_set_sizes_change_nothing():
    q, plus, minus, _ = draw(3)
    once = ContrastiveCovariance().fit(q, plus, minus).delta_c_
    repeated = ContrastiveCovariance().fit(q, plus, minus.repeat(1, 1, 4, 1)).delta_c_
    torch.testing.assert_close(once, repeated, atol=1e-12, rtol=0)


def test_one_key_needs_no_set_axis():
    q, plus, minus, _ = draw(4)
    short = ContrastiveCovariance().fit(q, plus[:, :, 0], minus[:, :, 0]).delta_c_
    torch.testing.assert_close(
        short, ContrastiveCovariance().fit(q, plus[:, :, :1], minus[:, :, :1]).delta_c_
    )


def test_counterfactual_run_uses_each_arms_own_query():
    q, plus, minus, _ = draw(5)
    other = torch.randn_like(q)
    cov = ContrastiveCovariance().fit(q, plus, minus, negative_q=other)
    expected = torch.einsum("nhd,nhe->hde", q.double(), plus.double().mean(2)) / 12
    expected -= torch.einsum("nhd,nhe->hde", other.double(), minus.double().mean(2)) / 12
    torch.testing.assert_close(cov.delta_c_, expected)
    torch.testing.assert_close(cov.weighted(torch.full((1, 12), 1 / 12))[0], expected)
    same = ContrastiveCovariance().fit(q, plus, minus, negative_q=q)
    torch.testing.assert_close(same.delta_c_, ContrastiveCovariance().fit(q, plus, minus).delta_c_)


def test_salience_and_interaction_sum_to_the_whole():
    q, plus, minus, masks = draw(6)
    cov = ContrastiveCovariance().fit(q, plus, minus, **masks)
    salience, interaction = salience_split(cov)
    torch.testing.assert_close(salience + interaction, cov.delta_c_)
    rows, diff = cov.q_rows_[:, :, 0], cov.d_rows_[:, :, 0]
    centred = rows - rows.mean(1, keepdim=True)
    torch.testing.assert_close(interaction, centred.mT @ diff / 12)


def test_weighted_blocks_agree(monkeypatch):
    q, plus, minus, masks = draw(7)
    cov = ContrastiveCovariance().fit(q, plus, minus, **masks)
    weights = torch.rand(6, 12, dtype=torch.float64)
    whole = cov.weighted(weights)
    monkeypatch.setattr("headwise.contrast.covariance._BLOCK", 1)
    torch.testing.assert_close(cov.weighted(weights), whole)


NOTHING = torch.zeros(12, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update(positive_mask=NOTHING), "prompt 0 has no positive keys"),
        (lambda a: a.update(q=a["q"] * float("nan")), "NaN"),
        (lambda a: a.update(negative=a["negative"][:5]), r"negative keys have shape \[5, 3, 6, 5\]"),
        (lambda a: a.update(q=a["q"][0, 0]), "expected"),
        (lambda a: a.update(negative_q=a["q"][:, :1]), "negative_q"),
    ],
)
def test_bad_input_is_one_line(change, message):
    q, plus, minus, masks = draw(8)
    arguments = {"q": q, "positive": plus, "negative": minus, **masks}
    change(arguments)
    with pytest.raises(HeadwiseError, match=message) as caught:
        ContrastiveCovariance().fit(**arguments)
    assert "\n" not in str(caught.value)


def test_wrong_use_says_what_to_do():
    q, plus, minus, _ = draw(9)
    with pytest.raises(HeadwiseError, match="call fit"):
        _ = ContrastiveCovariance().delta_c_
    with pytest.raises(HeadwiseError, match="keep='pairs'"):
        _ = ContrastiveCovariance(keep="sums").fit(q, plus, minus).q_rows_
    with pytest.raises(HeadwiseError, match="estimator of heads=3"):
        ContrastiveCovariance().fit(q, plus, minus).partial_fit(q[:, 0], plus[:, 0], minus[:, 0])
