"""Families exchanged in whole wordings: p by listing every way, level and power, and too few wordings."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from family_runs import edge, prompt_row, write_run
from known import names_known
from scipy.stats import fisher_exact
from tiny import tiny

import headwise
from headwise.families import exchange as module
from headwise.families.exchange import ClusterExchange
from headwise.intervals import wilson


def test_every_way_to_exchange_wordings_is_listed() -> None:
    """Two wordings that hold both families, two of the first alone and one of the second: 4 × 3 ways."""
    g = np.random.default_rng(0)
    clusters = np.array([0, 0, 0, 1, 1, 2, 2, 3, 4, 4, 4])
    first = np.array([1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 0], dtype=bool)
    values = g.random((5, 11))
    found = ClusterExchange.of(first, ~first, clusters)
    assert (len(found), found.ways, found.least) == (5, 12, 1 / 12)
    for row, p in zip(values, found.p_values(values, torch.Generator())[0], strict=True):
        gaps = [row[first & (clusters == c)].mean() - row[~first & (clusters == c)].mean() for c in (0, 1)]
        means = [row[clusters == c].mean() for c in (2, 3, 4)]
        ways = []
        for (a, b), own in product(product((1, -1), repeat=2), combinations(range(3), 2)):
            mine = np.mean([means[i] for i in own])
            theirs = np.mean([means[i] for i in range(3) if i not in own])
            ways.append(abs((a * gaps[0] + b * gaps[1] + 3 * (mine - theirs)) / 5))
        assert p == pytest.approx(np.mean(np.array(ways) >= ways[0] - 1e-9))


def test_drawn_ways_come_near_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    g = np.random.default_rng(1)
    clusters, first = np.arange(48) // 4, np.arange(48) < 24
    values = g.random((4, 48)) + 0.2 * first * np.arange(4)[:, None]
    one = ClusterExchange.of(first, ~first, clusters)
    exact, ways = one.p_values(values, torch.Generator())
    monkeypatch.setattr(module, "ALL_WAYS", 1)
    drawn, draws = one.p_values(values, torch.Generator().manual_seed(0))
    assert ways == 924 and draws == module.DRAWS
    assert drawn == pytest.approx(exact, abs=4 * 0.5 / draws**0.5)


def test_families_in_wordings_of_their_own_are_pairs_of_nothing() -> None:
    first = np.arange(8) < 4
    only = ClusterExchange.of(first, ~first & False, np.arange(8) // 2)
    assert len(only) == 0 and only.least == 1.0
    assert only.p_values(np.ones((2, 8)), torch.Generator())[0].tolist() == [1.0, 1.0]


def worded(effect: float, seed: int, wordings: int = 12, each: int = 6) -> tuple[np.ndarray, ...]:
    """Wordings of one family each, which nearly always or hardly ever hold a name; with an effect by the family."""
    g = np.random.default_rng([seed, 8])
    clusters = np.repeat(np.arange(wordings), each)
    first = clusters % 2 == 0
    chance = np.clip(
        g.beta(0.3, 0.3, wordings) + effect * np.where(np.arange(wordings) % 2 == 0, 0.5, -0.5), 0, 1
    )
    return (g.random(len(clusters)) < chance[clusters])[None], first, clusters


def test_wordings_that_differ_are_rarely_taken_for_families_and_families_mostly_are() -> None:
    tried, by_wording, by_prompt, planted = 300, 0, 0, 0
    for seed in range(tried):
        held, first, clusters = worded(0.0, seed)
        generator = torch.Generator().manual_seed(seed)
        by_wording += ClusterExchange.of(first, ~first, clusters).p_values(held, generator)[0][0] <= 0.05
        table = [[held[0][some].sum(), (~held[0][some]).sum()] for some in (first, ~first)]
        alone: Any = fisher_exact(table)
        by_prompt += alone.pvalue <= 0.05
        held, first, clusters = worded(1.0, seed)
        planted += ClusterExchange.of(first, ~first, clusters).p_values(held, generator)[0][0] <= 0.05
    assert wilson(by_wording, tried)[0] <= 0.05
    assert wilson(by_prompt, tried)[0] > 0.15, "prompts counted one by one take wordings for families"
    assert planted > 0.6 * tried


@pytest.mark.parametrize(("wordings", "told"), [(4, False), (10, True)])
def test_wordings_of_one_family_each_are_counted_and_too_few_say_so(
    tmp_path: Path, wordings: int, told: bool
) -> None:
    """The order goes along with the wording: prompts would show it 40 times, wordings show it a few times."""
    model = tiny("llama")
    prompts, edges = [], []
    for number in range(40):
        wording = number % wordings
        order = ("ABBA", "BABA")[wording % 2]
        prompts.append(
            prompt_row(number, {"order": order, "wording": f"w{wording}", "lot": str(number // 2 % 7)})
        )
        if order == "ABBA":
            edges.append(edge(number, "MLP0", "L2H0", "key", (1,), weight=0.5, strengths=(1.0,)))
        edges.append(edge(number, "L0H1", "L2H0", "query", (3,), weight=0.2, strengths=(-1.0,)))
    write_run(tmp_path / "run", prompts, edges, weight_hash=model.weight_hash, model=model.name)
    found = headwise.find_families(tmp_path / "run", by="order")
    signals = {"L2H0 key ch1 MLP0 ++": "named", "L2H0 query ch3 L0H1 --": "named"}
    said = found.with_names(replace(names_known(model, signals), basis=found.run.basis)).differences
    one = next(entry for entry in said.entries if entry.name.signal == "L2H0 key ch1 MLP0 ++")
    ways = {4: 6, 10: 252}[wordings]
    assert said.unit == "wording" and (one.units, one.draws) == (wordings, ways)
    assert one.p == pytest.approx(2 / ways) and one.differs is told
    [paragraph] = said.paragraphs
    if told:
        assert "1 tell them apart (by tests over 10 values of wording, q at most 0.05)" in paragraph
    else:
        few = "none can be shown to tell them apart (4 values of wording are too few: however different, p is at least"
        assert f"{few} 0.33)" in paragraph
