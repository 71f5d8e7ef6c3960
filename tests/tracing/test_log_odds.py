"""The log-odds of a cell and its gradient: complete for any logits, exact where attention is 0 or 1."""

from __future__ import annotations

import math

import pytest
import torch

from headwise.tracing.causes import attention, log_odds, log_odds_gradient


def _row(spread: float, keys: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(3, keys, generator=generator, dtype=torch.float64)
    visible = torch.rand(3, keys, generator=generator) < 0.7
    key = torch.randint(keys, (3,), generator=generator)
    visible[torch.arange(3), key] = True
    visible[torch.arange(3), (key + 1) % keys] = True
    return logits, visible, key


@pytest.mark.parametrize("cap", [None, 2.0, 50.0])
@pytest.mark.parametrize("spread", [0.1, 1.0, 8.0, 60.0, 400.0])
@pytest.mark.parametrize("keys", [2, 9, 700])
def test_the_gradient_is_complete(spread: float, keys: int, cap: float | None) -> None:
    logits, visible, key = _row(spread, keys)
    total = log_odds(logits, visible, key, cap=cap)
    g = log_odds_gradient(logits, visible, key, cap=cap)
    assert float(((g * logits).sum(1) - total).abs().max()) < 1e-9 * max(1.0, float(total.abs().max()))
    assert not g[~visible].any()
    if cap is None:
        assert float(g.sum(1).abs().max()) < 1e-12  # a common shift of all logits changes nothing


@pytest.mark.parametrize("cap", [None, 3.0])
def test_it_is_the_log_odds_of_the_attention_counted_from_an_even_row(cap: float | None) -> None:
    logits, visible, key = _row(1.5, 12)
    p = attention(logits, visible, cap).gather(1, key[:, None])[:, 0]
    rivals = visible.sum(1) - 1
    expected = torch.log(p / (1 - p)) + torch.log(rivals.double())
    assert torch.allclose(log_odds(logits, visible, key, cap=cap), expected, atol=1e-12)
    even = torch.full_like(logits, 4.2)
    assert float(log_odds(even, visible, key, cap=cap).abs().max()) < 1e-12


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_attention_of_one_or_nought_has_finite_log_odds(sign: float) -> None:
    logits = torch.zeros(1, 5, dtype=torch.float64)
    logits[0, 2] = sign * 900.0
    visible, key = torch.ones(1, 5, dtype=torch.bool), torch.tensor([2])
    assert float(attention(logits, visible)[0, 2]) in (0.0, 1.0)
    assert float(log_odds(logits, visible, key)) == pytest.approx(sign * 900.0)
    g = log_odds_gradient(logits, visible, key)
    assert float((g * logits).sum()) == pytest.approx(sign * 900.0)


def test_of_one_visible_key_there_is_nothing_to_explain() -> None:
    logits = torch.tensor([[3.0, 7.0]], dtype=torch.float64)
    visible, key = torch.tensor([[True, False]]), torch.tensor([0])
    assert float(log_odds(logits, visible, key)) == 0.0
    assert not log_odds_gradient(logits, visible, key).any()


def test_one_rival_leaves_the_plain_difference() -> None:
    logits = torch.tensor([[3.0, 7.5]], dtype=torch.float64)
    both, key = torch.ones(1, 2, dtype=torch.bool), torch.tensor([0])
    assert float(log_odds(logits, both, key)) == pytest.approx(-4.5)
    assert log_odds_gradient(logits, both, key)[0].tolist() == pytest.approx([1.0, -1.0])
    p = 1 / (1 + math.exp(4.5))
    assert math.log(p / (1 - p)) == pytest.approx(float(log_odds(logits, both, key)))
