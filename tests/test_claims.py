"""Claims: p-values are exact on cases that can be counted out, corrections hold their level, and words follow."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from headwise.claims import claim, claims, corrected, flipped, p_value, sign_flips
from headwise.errors import HeadwiseError
from headwise.randomness import keyed


def test_a_p_value_counts_the_observed_and_what_ties_with_it() -> None:
    assert p_value(5.0, [1.0, 2.0, 3.0]) == 0.25
    assert p_value(3.0, [3.0, 3.0, 3.0]) == 1.0
    assert p_value(0.1 + 0.2, [0.3]) == 1.0  # rounding is no evidence
    with pytest.raises(HeadwiseError, match="at least one draw"):
        p_value(1.0, [])


def test_sign_flips_are_counted_out_for_few_clusters() -> None:
    values, which = torch.tensor([3.0, 1.0, 2.0, -1.0, 0.5]), torch.tensor([0, 0, 1, 2, 2])
    sums = [4.0, 2.0, -0.5]
    flips = [sum(s * x for s, x in zip(signs, sums, strict=True)) for signs in product((1, -1), repeat=3)]
    expected = sum(one >= sum(sums) for one in flips) / 8
    assert sign_flips(values, which, draws=10, generator=keyed(0)) == (expected, 8)
    one = sign_flips(torch.ones(100), torch.zeros(100), draws=99, generator=keyed(0))
    assert one == (0.5, 2)  # one cluster can never be evidence


def test_flips_of_many_means_are_those_of_each_alone_and_of_the_list() -> None:
    """Few clusters: every turn of signs. Many: draws that come near the list of all 2¹⁷."""
    g = keyed(0, "many means")
    values = 0.4 + torch.randn(6, 3, generator=g).double()
    p, flips = flipped(values, generator=g)
    signs = torch.tensor(list(product((1.0, -1.0), repeat=6)), dtype=torch.float64)
    assert flips == 64
    assert p.tolist() == [
        float((signs @ one >= one.sum() - 1e-9).double().mean()) for one in values.unbind(1)
    ]
    many = 0.2 + torch.randn(17, 1, generator=g).double()
    turns = 1.0 - 2.0 * (torch.arange(2**17)[:, None] >> torch.arange(17) & 1).double()
    exact = float((turns @ many >= many.sum() - 1e-9).double().mean())
    drawn, flips = flipped(many, generator=g)
    assert flips == 9999 and 0.01 < exact < 0.99
    assert float(drawn) == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 9999) ** 0.5 + 1e-4)


@pytest.mark.parametrize("clusters", [8, 30])
def test_sign_flips_hold_their_level_and_have_power(clusters: int) -> None:
    which = torch.arange(clusters).repeat_interleave(5)
    false = found = 0
    for number in range(200):
        generator = keyed(number, "flips", clusters)
        values = torch.randn(clusters, generator=generator)[which]
        false += sign_flips(values, which, draws=199, generator=generator)[0] <= 0.05
        found += sign_flips(values + 1.2, which, draws=199, generator=generator)[0] <= 0.05
    assert false <= 20 and found >= 160


def test_claims_are_corrected_together_and_say_so() -> None:
    found = claims([0.001, 0.04, 0.5], null="signs", draws=999, group="the heads", fit=[False, True, True])
    assert [one.supported for one in found] == [False, False, False]  # 0.04 becomes 0.06
    assert [one.q for one in found] == pytest.approx([0.003, 0.06, 0.5])
    assert found[0].to_json() == {
        "null": "signs",
        "draws": 999,
        "p": 0.001,
        "q": 0.003,
        "group": "the heads",
        "supported": False,
    }
    assert claim(0.04, null="signs", draws=99).supported


def test_corrections_are_monotone_and_at_least_p() -> None:
    p = torch.rand(200, generator=keyed(1)).tolist()
    q = corrected(p)
    assert all(b >= a - 1e-12 for a, b in zip(p, q, strict=True))
    ordered = [q for _, q in sorted(zip(p, q, strict=True))]
    assert ordered == sorted(ordered)
