"""Placebos dealt many at a time are those that are dealt one by one."""

from __future__ import annotations

import pytest
import torch

from headwise.contrast.unlabelled import AttentionRows, SelfContrast, placebos
from headwise.contrast.unlabelled.placebos import orders, placebo_sums
from headwise.randomness import keyed


def some_rows(n: int, keys: int, d_head: int, dtype: torch.dtype, seed: int = 0) -> AttentionRows:
    """Rows as a text gives them: each sees the keys before it, some of which do not count."""
    g = torch.Generator().manual_seed(seed)
    seen = torch.arange(keys) <= torch.arange(n)[:, None] * keys // n
    attention = (torch.rand(n, keys, generator=g) ** 4 * seen).to(dtype)
    allowed = seen & (torch.rand(n, keys, generator=g) < 0.8)
    allowed[:, 0] = False
    vectors = torch.randn(n, keys, d_head, generator=g).to(dtype)
    return AttentionRows(torch.randn(n, d_head, generator=g), vectors, attention, allowed, torch.zeros(n))


def one_by_one(rows: AttentionRows, generators: list[torch.Generator]) -> torch.Tensor:
    """The slow and obvious form: each row's attention is put on its allowed keys in a drawn order; Σ q d."""
    made = []
    for generator in generators:
        drawn = torch.rand(rows.allowed.shape, generator=generator)
        total = torch.zeros(rows.q.shape[1], rows.q.shape[1]).double()
        for row in range(len(rows)):
            allowed = rows.allowed[row].nonzero()[:, 0]
            if not len(allowed):
                continue
            order = allowed[drawn[row, allowed].argsort(stable=True)]
            dealt, keys = rows.attention[row, order].double(), rows.keys[row, allowed].double()
            contrast = dealt @ keys - dealt.sum() * keys.mean(0)
            total += torch.outer(rows.q[row].double(), contrast)
        made.append(total)
    return torch.stack(made)


def draws(count: int) -> list[torch.Generator]:
    return [keyed(0, "placebo", i, 0) for i in range(count)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_at_a_time_are_those_dealt_one_by_one(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = some_rows(23, 17, 6, dtype)
    assert 0 in rows.allowed.sum(1) and 1 in rows.allowed.sum(1)  # rows without a choice add nothing
    expected = one_by_one(rows, draws(9))
    near = 1e-12 if dtype == torch.float64 else 1e-5
    assert torch.allclose(placebo_sums(rows, draws(9)), expected, rtol=near, atol=near)
    # However little memory there is for a batch.
    monkeypatch.setattr(placebos, "MEMORY", 1)
    assert torch.allclose(placebo_sums(rows, draws(9)), expected, rtol=near, atol=near)


def test_the_orders_are_those_of_a_single_placebo() -> None:
    rows = some_rows(40, 70, 4, torch.float32)
    place = (~rows.allowed).to(torch.int8).argsort(dim=1, stable=True)
    for order, generator in zip(orders(rows.allowed, draws(5)), draws(5), strict=True):
        assert torch.equal(order.sort(1).values, torch.arange(70).expand(40, -1))
        dealt = torch.zeros_like(rows.attention).scatter(1, place, rows.attention.gather(1, order))
        assert torch.equal(dealt * rows.allowed, rows.shuffled(generator) * rows.allowed)


def test_every_order_of_the_allowed_keys_is_as_likely() -> None:
    """The null: of three keys that count, the largest attention is on each in a third of the draws."""
    allowed = torch.tensor([[True, False, True, True]]).expand(3000, -1)
    drawn = orders(allowed, [keyed(1, "orders")])[0]
    assert torch.equal(drawn[:, 3], torch.ones(3000).long())
    which = drawn[:, 0] * 16 + drawn[:, 1] * 4 + drawn[:, 2]
    _, counts = which.unique(return_counts=True)
    assert len(counts) == 6
    # χ² of five degrees of freedom: above 20.5 with probability 0.001.
    assert ((counts - 500.0).square() / 500).sum() < 20.5


def test_a_fit_has_its_placebos_from_keyed_draws() -> None:
    """A placebo depends on the seed, its number and the rows before, not on how many there are."""
    rows = some_rows(30, 12, 5, torch.float32)
    usable = rows.chosen(rows.allowed.sum(1) > 1)
    fitted = SelfContrast(placebos=100, seed=3).fit(rows)
    expected = one_by_one(usable, [keyed(3, "placebo", i, 0) for i in range(100)]) / len(usable)
    assert torch.allclose(fitted.placebos_, expected, atol=1e-5)
    assert torch.allclose(SelfContrast(placebos=200, seed=3).fit(rows).placebos_[:100], fitted.placebos_)
