"""Ranks: planted ones are found, absent ones are not, and the design's own bound is named."""

import pytest
import torch
from pace import first_is_quick

from headwise.contrast import ContrastiveCovariance, energy_rank, rank_report, rank_reports
from headwise.errors import HeadwiseError


def planted(rank, seeds=60, n=400, d_head=12, noise=1.0, seed=0):
    """``seeds`` independent heads, each with its own feature of ``rank`` dimensions buried in noise."""
    g = torch.Generator().manual_seed(1000 * rank + seed)

    def normal(*shape):
        return torch.randn(*shape, generator=g)

    z = normal(n, seeds, rank)
    q, k = (
        torch.einsum("nsr,srd->nsd", z, torch.linalg.qr(normal(seeds, d_head, rank)).Q.mT) for _ in range(2)
    )
    q, k = q + noise * normal(*q.shape), k + noise * normal(*k.shape)
    return ContrastiveCovariance().fit(q, k, noise * normal(*k.shape)), g


@pytest.mark.parametrize("rank", first_is_quick(2, 1, 4))
def test_planted_ranks_are_recovered(rank):
    cov, g = planted(rank, noise=0.5)
    reports = rank_reports(cov, generator=g)
    assert sum(r.rank_null == rank for r in reports) >= 0.95 * len(reports)


def test_no_signal_is_rank_zero():
    cov, g = planted(0, seeds=80)
    reports = rank_reports(cov, generator=g)
    assert sum(r.rank_null == 0 for r in reports) >= 0.95 * len(reports)
    assert "no direction exceeds" in reports[0].warnings[0] or reports[0].rank_null
    # The energy rule has no word for "nothing here".
    assert min(r.rank_energy for r in reports) > 5


def test_null_finds_what_the_energy_rule_hides():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(4000, 3, generator=g)
    strength = torch.tensor([1.0, 0.8, 0.2])
    q, k = z @ torch.eye(8)[:3], (z * strength) @ torch.eye(8)[3:6]
    noise = 0.05 * torch.randn(2, 4000, 8, generator=g)
    report = rank_report(ContrastiveCovariance().fit(q, k + noise[0], noise[1]), generator=g, energy=0.95)
    assert (report.rank_energy, report.rank_null) == (2, 3)
    assert any(
        "more directions exceed the sign-flip null" in w and "(3 against " in w for w in report.warnings
    )


def test_fixed_queries_saturate():
    g = torch.Generator().manual_seed(0)
    values = torch.randn(3, 8, generator=g)
    which = torch.randint(0, 3, (300,), generator=g)
    keys = torch.randn(3, 8, generator=g)[which]
    report = rank_report(ContrastiveCovariance().fit(values[which], keys, torch.zeros(300, 8)), generator=g)
    assert report.bound == report.values == 3
    assert report.saturated
    assert "query values 3" in report.warnings[0]


def test_report_is_consistent_and_reproducible():
    cov, _ = planted(2, seeds=3)
    first, second = (rank_reports(cov, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert a.to_json() == b.to_json()
        low, high = a.sigma_interval[:2].unbind(-1)
        assert (low < high).all()
        assert a.rank_interval[0] <= a.rank_energy <= a.rank_interval[1] + 1
        assert 0.9 < a.split_half_key[0] <= 1
        assert a.split_half_query.shape == (a.rank_energy,)
        assert a.salience_energy < a.interaction_energy


def test_groups_flip_together():
    """Copies of a prompt are no new evidence: with groups, the null is as wide as that of the single
    prompts.
    """
    cov, g = planted(0, seeds=1, n=60)
    q, d = cov.q_rows_[0, :, 0], cov.d_rows_[0, :, 0]
    copies = ContrastiveCovariance().fit(q.repeat(8, 1), d.repeat(8, 1), torch.zeros(480, 12))
    alone = rank_report(copies, generator=g)
    grouped = rank_report(copies, generator=g, groups=torch.arange(60).repeat(8))
    assert grouped.null_sigma[0] > 2 * alone.null_sigma[0]
    assert grouped.rank_null == 0 < alone.rank_null


@pytest.mark.parametrize("templates", [3, 6, 20])
def test_templates_without_any_relation_have_no_rank(templates):
    """Queries and key differences that depend on the wording alone: by prompt nearly every wording is a direction."""
    g = torch.Generator().manual_seed(templates)
    wording = torch.arange(240) % templates
    q, d = (torch.randn(templates, 24, generator=g)[wording] for _ in range(2))
    noise = 0.1 * torch.randn(2, 240, 24, generator=g)
    cov = ContrastiveCovariance().fit(q + noise[0], d + noise[1], torch.zeros(240, 24))
    report = rank_report(cov, generator=g, wordings=wording, interaction=True)
    assert report.rank_prompts >= min(templates, 12)
    assert report.rank_null == 0 and report.rank_interaction == 0
    assert report.flip_groups == templates
    said = f"needs 8 wordings or more, flipped as one each ({templates}; flipped by prompt {report.rank_prompts})"
    assert any(said in one for one in report.warnings) == (templates < 8)


def test_a_relation_is_found_across_wordings():
    g = torch.Generator().manual_seed(0)
    z = torch.randn(300, 2, generator=g)
    q, k = z @ torch.eye(8)[:2], z @ torch.eye(8)[3:5] + 0.3 * torch.randn(300, 8, generator=g)
    cov = ContrastiveCovariance().fit(q, k, torch.zeros(300, 8))
    assert rank_report(cov, generator=g, wordings=torch.arange(300) % 30).rank_null == 2


def test_counterfactual_rows_have_a_rank_too():
    g = torch.Generator().manual_seed(0)
    z, w = torch.randn(2, 500, 2, generator=g).unbind()
    up, down = torch.randn(2, 2, 8, generator=g).unbind()
    cov = ContrastiveCovariance().fit(z @ up, z @ down, w @ down, negative_q=-w @ up)
    assert rank_report(cov, generator=g).rank_null == 2


def test_edges():
    assert energy_rank(torch.tensor([1.0, 1.0]), 1.0).item() == 2
    with pytest.raises(HeadwiseError, match="not a fraction"):
        energy_rank(torch.ones(2), 1.5)
    cov, g = planted(1, seeds=2, n=3)
    with pytest.raises(HeadwiseError, match="too few for a rank"):
        rank_reports(cov, generator=g)
    with pytest.raises(HeadwiseError, match="use rank_reports"):
        rank_report(cov, generator=g)
    with pytest.raises(HeadwiseError, match="draws=50 are too few"):
        rank_reports(cov, generator=g, draws=50)
    zero = ContrastiveCovariance().fit(torch.ones(10, 4), torch.ones(10, 4), torch.ones(10, 4))
    report = rank_report(zero, generator=g)
    assert (report.rank_energy, report.rank_null) == (0, 0)


def test_matching_is_found_beneath_a_large_common_query():
    """Queries share a mean ten times their variation; the whole ΔC drowns in it, its interaction does not."""
    g = torch.Generator().manual_seed(3)
    z = torch.randn(300, 2, generator=g)
    q = z @ torch.eye(2, 8) + 30.0 * torch.eye(8)[7]
    k = z @ torch.eye(2, 8) + torch.randn(300, 8, generator=g)
    cov = ContrastiveCovariance().fit(q, k, torch.randn(300, 8, generator=g))
    report = rank_report(cov, generator=g, interaction=True)
    assert report.rank_interaction == 2
    assert report.rank_null < 2
    centred = cov.delta_c_ - cov.salience_
    assert (cov.centred().delta_c_ - centred).abs().max() < 1e-10
