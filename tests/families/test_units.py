"""Wordings are what is counted: where families are held against labels and random groups, and heads are compared."""

from __future__ import annotations

import math
from itertools import permutations, product
from math import sqrt

import numpy as np
import pytest
from scipy import sparse

from headwise.families import agreement as agreement_module
from headwise.families import averaging as averaging_module
from headwise.families.agreement import agreement
from headwise.families.averaging import averaging
from headwise.families.compare import Incoming, compare
from headwise.families.distance import jaccard
from headwise.intervals import wilson


def near(p: float, exact: float, draws: int) -> None:
    """p counts the observed among the draws; four standard deviations of a binomial are one case in 16,000."""
    share = (p * (1 + draws) - 1) / draws
    assert abs(share - exact) <= 4 * sqrt(exact * (1 - exact) / draws) + 1e-9, (p, exact)


def information(values: list[int], families: list[int]) -> float:
    """Mutual information in nats, as it is written in books."""
    n, pairs = len(values), list(zip(values, families, strict=True))
    return sum(
        pairs.count((a, b)) / n * math.log(pairs.count((a, b)) * n / (values.count(a) * families.count(b)))
        for a, b in set(pairs)
    )


def test_agreement_is_counted_over_all_deals_of_whole_wordings() -> None:
    """Three wordings of one value, of two, one and two prompts, and one that holds both values: 3! · 3 deals."""
    wording = np.array([0, 0, 1, 2, 2, 3, 3, 3])
    label, families = [0, 0, 1, 1, 1, 0, 0, 1], [0, 0, 1, 1, 0, 0, 1, 1]
    reached = []
    for whole, mixed in product(permutations((0, 1, 1)), permutations((0, 0, 1))):
        given = [whole[0]] * 2 + [whole[1]] + [whole[2]] * 2 + list(mixed)
        reached.append(information(given, families) >= information(label, families) - 1e-12)
    exact = sum(reached) / len(reached)
    distances = np.zeros((8, 8), dtype=np.float32)
    (found,) = agreement(
        {"kind": np.array(label)}, np.array(families), distances, clusters=wording, unit="wording"
    )
    assert 0 < exact < 1 and found.claim is not None
    near(found.p_value, exact, 999)
    assert found.unit == "wording"
    assert found.claim.null == "values dealt anew within each wording, and between those of one value"


def leaning(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Twelve wordings, each of which leans to one of two families; a label of half of the wordings, at random."""
    g = np.random.default_rng(seed)
    wording = np.arange(120) // 10
    families = (g.random(120) < g.beta(0.5, 0.5, 12)[wording]).astype(np.int64)
    return wording, families, (g.permutation(12) % 2)[wording], np.zeros((120, 120), dtype=np.float32)


def test_a_label_of_whole_wordings_rarely_seems_to_be_what_families_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement_module, "PERMUTATIONS", 99)
    monkeypatch.setattr(agreement_module, "HALVES", 2)
    said = naive = true = 0
    for seed in range(100):
        wording, families, label, distances = leaning(seed)
        (found,) = agreement(
            {"kind": label}, families, distances, clusters=wording, unit="wording", seed=seed
        )
        said += found.p_value <= 0.05
        (each,) = agreement({"kind": label}, families, distances, seed=seed)
        naive += each.p_value <= 0.05
        follows = np.where(np.arange(120) % 7 == 0, families, label)
        (planted,) = agreement(
            {"kind": label}, follows, distances, clusters=wording, unit="wording", seed=seed
        )
        true += planted.p_value <= 0.05
    assert wilson(said, 100)[0] <= 0.05 < wilson(naive, 100)[0]
    assert true > 90


def test_the_wording_itself_is_dealt_by_prompt_and_labels_are_corrected_together() -> None:
    wording, families, label, distances = leaning(3)
    names = {"wording": wording.astype(str), "kind": label.astype(str)}
    found = {a.label: a for a in agreement(names, families, distances, clusters=wording, unit="wording")}
    assert found["wording"].unit == "prompt" and found["wording"].claim is not None
    assert (
        found["wording"].claim.supported and found["wording"].claim.null == "values dealt anew among prompts"
    )
    assert found["wording"].ami.clusters == 120 and found["kind"].ami.clusters == 12
    assert found["kind"].claim is not None and found["kind"].claim.q >= found["kind"].p_value
    document = found["kind"].to_json()
    assert set(document["claim"]) == {"null", "draws", "p", "q", "group", "supported"}
    assert (document["unit"], document["clusters"], document["n"]) == ("wording", 12, 120)


def test_intervals_of_agreement_are_over_wordings() -> None:
    """Halves of twelve wordings vary more than halves of their 120 prompts."""
    wording, families, label, distances = leaning(3)
    (whole,) = agreement({"kind": label}, families, distances, clusters=wording, unit="wording")
    (naive,) = agreement({"kind": label}, families, distances)
    assert whole.ami.high - whole.ami.low > 1.5 * (naive.ami.high - naive.ami.low)
    few = np.where(wording < 8, wording, 8)  # nine wordings: Student's t
    (student,) = agreement({"kind": label}, families, distances, clusters=few, unit="wording")
    assert student.ami.clusters == 9 and student.ami.low < student.ami.mean < student.ami.high


def test_families_that_are_wordings_are_rarely_called_steadier_than_random_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six wordings with a circuit each, two families of three of them at random."""
    monkeypatch.setattr(averaging_module, "DRAWS", 19)
    monkeypatch.setattr(averaging_module, "RESAMPLES", 20)
    wording, said, naive = np.repeat(np.arange(6), 6), 0, 0
    for seed in range(30):
        g = np.random.default_rng(seed)
        held = sparse.csr_matrix((g.random((6, 40)) < 0.3)[wording] ^ (g.random((36, 40)) < 0.08))
        labels, distances = (g.permutation(6) % 2)[wording], jaccard(held)
        whole = averaging(held, distances, labels, clusters=wording, unit="wording", seed=seed).steadier
        each = averaging(held, distances, labels, seed=seed).steadier
        assert whole is not None and each is not None
        assert "within each wording" in whole.null and each.null.endswith("dealt anew among prompts")
        said, naive = said + whole.supported, naive + each.supported
    assert wilson(said, 30)[0] <= 0.05 and naive > 15


def test_families_that_cross_wordings_can_be_steadier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(averaging_module, "DRAWS", 19)
    wording, labels = np.repeat(np.arange(6), 8), np.tile([0, 1], 24)
    held = sparse.csr_matrix(
        np.concatenate((np.eye(6, dtype=bool)[wording], np.repeat(np.eye(2, dtype=bool)[labels], 6, 1)), 1)
    )
    found = averaging(held, jaccard(held), labels, clusters=wording, unit="wording").steadier
    assert found is not None and found.supported


def test_a_head_that_a_family_uses_in_one_wording_alone_is_not_told() -> None:
    """Two wordings whose signals lie apart by as much as wordings do; 40 prompts of each say nothing of a third."""
    angle, naive = math.acos(0.8), 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        wording = np.repeat([0, 1], 40)
        means = np.repeat([[1, 0, 0, 0], [math.cos(angle), math.sin(angle), 0, 0]], 40, axis=0)
        units = means + 0.25 * random.normal(size=(2, 4))[wording] + 0.1 * random.normal(size=(80, 4))
        one = Incoming("L1H0", "key", np.arange(80), units / np.linalg.norm(units, axis=1, keepdims=True))
        (found,) = compare([one], wording, [0, 40], [(0, 1)], clusters=wording, seed=seed)
        assert (found.verdict, found.claim.supported, found.claim.p, found.claim.draws) == (
            "unclear",
            False,
            1,
            0,
        )
        assert found.claim.null.endswith("untested, as a family has one wording here")
        naive += compare([one], wording, [0, 40], [(0, 1)], seed=seed)[0].claim.supported
    assert naive > 10
