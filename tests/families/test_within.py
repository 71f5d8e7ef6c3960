"""What is more than the wording, and circuits that have nothing to compare."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from family_runs import edge, prompt_row, write_run
from scipy import sparse

from headwise.errors import HeadwiseError
from headwise.families.cluster import average_linkage, cuts
from headwise.families.dealing import Dealing
from headwise.families.distance import jaccard
from headwise.families.null import NullTest
from headwise.families.study import find_families
from headwise.families.within import (
    OneFamilyEach,
    apart_by,
    apart_within,
    within_claims,
    wording_of,
    wording_test,
)
from headwise.intervals import wilson
from headwise.randomness import keyed
from headwise.show.families.terminal import set_aside, verdict


def exact(distances: np.ndarray, code: np.ndarray, blocks: np.ndarray) -> float:
    """p by going through every arrangement of the values within blocks."""

    def same(values: np.ndarray) -> float:
        pairs = (values[:, None] == values) & (blocks[:, None] == blocks)
        return float(distances[pairs].sum())

    parts = [np.flatnonzero(blocks == b) for b in np.unique(blocks)]
    done = []
    for orders in product(*(permutations(part) for part in parts)):
        given = code.copy()
        for part, order in zip(parts, orders, strict=True):
            given[part] = code[list(order)]
        done.append(same(given))
    return float(np.mean(np.array(done) <= same(code) + 1e-12))


def test_permutations_within_blocks_give_the_exact_p() -> None:
    g = np.random.default_rng(0)
    blocks, code = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 1, 0, 0, 1, 1])
    for effect in (0.0, 0.3, 1.0):
        places = g.normal(size=8) + effect * 4 * code
        distances = np.abs(places[:, None] - places)
        found = apart_within(distances, code, blocks, torch.Generator().manual_seed(0), 3999)
        assert found == pytest.approx(exact(distances, code, blocks), abs=0.03)


def labelled(effect: float, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Twelve wordings far apart; a label that goes along with them, and one that varies within them."""
    g = np.random.default_rng(seed)
    wording = np.repeat(np.arange(12), 4)
    order = np.tile([0, 0, 1, 1], 12)
    places = g.normal(size=(12, 6))[wording] * 5 + g.normal(size=(48, 6)) + effect * order[:, None]
    distances = np.sqrt(((places[:, None] - places) ** 2).sum(-1))
    names = {"wording": wording, "tense": wording % 2, "order": order}
    return {name: values.astype(str) for name, values in names.items()}, distances


def test_the_wording_alone_supports_nothing_and_more_than_it_does() -> None:
    tried, false = 60, 0
    for seed in range(tried):
        found = within_claims(*labelled(0.0, seed), seed=seed)
        assert set(found) == {"order"}, "a label that never varies within a wording cannot be told from it"
        false += found["order"].supported
    assert wilson(false, tried)[0] <= 0.05
    strong = within_claims(*labelled(1.5, 0))["order"]
    assert strong.supported and strong.null == "values permuted within each wording"


def test_without_wordings_whole_entities_are_dealt_and_all_deals_give_the_exact_p() -> None:
    """Three entities of one value, of two, one and two prompts, and one that holds both values: 3! · 3 deals."""
    g = np.random.default_rng(3)
    entity, kind = np.array([0, 0, 1, 2, 2, 3, 3, 3]), np.array([0, 0, 1, 1, 1, 0, 0, 1])
    places = g.normal(size=8) + 0.5 * kind
    distances = np.abs(places[:, None] - places)

    def apart(code: np.ndarray) -> float:
        pairs = ~np.eye(8, dtype=bool)
        equal = code[:, None] == code
        return float(distances[pairs & ~equal].mean() - distances[pairs & equal].mean())

    every = [
        apart(np.array([whole[0]] * 2 + [whole[1]] + [whole[2]] * 2 + list(mixed)))
        for whole, mixed in product(permutations((0, 1, 1)), permutations((0, 0, 1)))
    ]
    listed = float(np.mean(np.array(every) >= apart(kind) - 1e-12))
    found = apart_by(distances, Dealing.of(kind, entity), torch.Generator().manual_seed(0), 3999)
    assert 0 < listed < 1 and found == pytest.approx(listed, abs=0.03)


def by_entity(effect: float, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Twelve entities far apart; a label of half of them, at random, and one that varies within them."""
    g = np.random.default_rng(seed)
    entity = np.repeat(np.arange(12), 4)
    kind = (g.permutation(12) % 2)[entity]
    places = g.normal(size=(12, 6))[entity] * 2 + g.normal(size=(48, 6)) + effect * kind[:, None]
    distances = np.sqrt(((places[:, None] - places) ** 2).sum(-1))
    names = {"entity": entity, "kind": kind, "order": np.tile([0, 0, 1, 1], 12)}
    return {name: values.astype(str) for name, values in names.items()}, distances, entity


def test_a_label_of_whole_entities_is_held_against_entities_dealt_anew() -> None:
    tried, false, naive = 60, 0, 0
    for seed in range(tried):
        groups, distances, entity = by_entity(0.0, seed)
        found = within_claims(groups, distances, clusters=entity, unit="entity", seed=seed)
        false += found["kind"].p <= 0.05
        naive += within_claims(groups, distances, seed=seed)["kind"].p <= 0.05
    assert wilson(false, tried)[0] <= 0.05 < wilson(naive, tried)[0]
    groups, distances, entity = by_entity(4.0, 0)
    found = within_claims(groups, distances, clusters=entity, unit="entity")
    assert found["kind"].supported and found["entity"].supported and not found["order"].supported
    dealt = "values dealt anew within each entity, and between those of one value"
    assert {name: one.null for name, one in found.items()} == {
        "entity": "values permuted",
        "kind": dealt,
        "order": dealt,
    }


def test_every_wording_as_one_family_keeps_what_each_of_them_holds() -> None:
    g = np.random.default_rng(0)
    blocks = np.repeat([0, 1, 2], 60)
    chance = g.uniform(0, 0.6, (3, 40)) * (np.arange(40) % 3 != np.arange(3)[:, None])
    held = g.random((180, 40)) < chance[blocks]
    each = OneFamilyEach().fit(sparse.csr_matrix(held), blocks)
    made = np.mean([each.sample(keyed(0, "each", draw)).toarray() for draw in range(20)], 0)
    # What no circuit of a wording holds, none of its cloud does.
    assert not made[blocks == 0][:, ~held[blocks == 0].any(0)].any()
    for block in range(3):
        there = blocks == block
        assert made[there].mean(0) == pytest.approx(held[there].mean(0), abs=0.06)
    assert wording_of({"order": np.array(["a"])}) is None


def by_cause(effect: float, drift: float, seed: int, wordings: int = 5, each: int = 24) -> NullTest:
    """Circuits by wording, and inside each by one of two causes and by a drift that has no gap."""
    g = np.random.default_rng(seed)
    blocks = np.repeat(np.arange(wordings), each)
    order, place = np.tile([0, 1], len(blocks) // 2), g.normal(size=len(blocks))
    tilt = g.normal(size=(wordings, 120)) * 1.2
    moved, swayed = g.normal(size=(2, 120))
    level = tilt[blocks] - 1 + effect * np.outer(order - 0.5, moved) + drift * np.outer(place, swayed)
    matrix = sparse.csr_matrix(g.random(level.shape) < 1 / (1 + np.exp(-level)))
    distances = jaccard(matrix)
    found = {k: one.labels for k, one in cuts(average_linkage(distances), distances).items()}
    return wording_test(matrix, found, blocks.astype(str), seed=seed, draws=39)


@pytest.mark.slow
def test_wordings_that_drift_are_no_families_and_causes_that_cross_them_are() -> None:
    tried = 24
    false = sum(min(by_cause(0, 1.5, seed).p_values.values(), default=1.0) <= 0.05 for seed in range(tried))
    assert wilson(false, tried)[0] <= 0.05
    assert min(by_cause(6, 0, 0).p_values.values()) <= 0.05


def by_wording(path: Path, wordings: int = 2, each: int = 20, label: str = "wording") -> Path:
    """Circuits that hold what their wording holds, now and then more or less."""
    g = np.random.default_rng(0)
    rows, edges = [], []
    for i in range(wordings * each):
        rows.append(prompt_row(i, {label: f"w{i // each}", "lot": str(i % 2)}))
        for channel in range(24):
            if g.random() < (0.85 if channel % wordings == i // each else 0.1):
                edges.append(edge(i, "L0H0", "L1H0", "query", (channel,), at=2 + i % 4))
    write_run(path, rows, edges)
    return path


def test_families_that_are_wordings_are_not_supported(tmp_path: Path) -> None:
    found = find_families(by_wording(tmp_path / "run"))
    assert found.claim is not None and not found.claim.supported and found.n_families == 1
    document = found.to_json()
    # The old null alone says two families; that they are the wordings, only the new one sees.
    assert document["p_value_one_family"] <= 0.05 < document["p_value_within"] <= document["claim"]["p"]
    assert "every wording one such family" in document["claim"]["null"]
    assert "no families found" in verdict(found) and "against each wording as one family" in verdict(found)
    blind = find_families(by_wording(tmp_path / "blind", label="kind"))
    assert blind.claim is not None and blind.claim.supported and blind.n_families == 2


def test_copies_of_one_wording_at_other_offsets_are_one_family(tmp_path: Path) -> None:
    rows = [prompt_row(i, {"wording": "1", "offset": str(i % 5)}) for i in range(30)]
    edges = [edge(i, "L0H0", "L1H0", "query", (c,), at=1 + i % 5) for i in range(30) for c in (1, 2)]
    write_run(tmp_path / "run", rows, edges)
    found = find_families(tmp_path / "run")
    assert found.n_families == 1 and found.distances.max() == 0.0
    assert not any(one.supported for one in found.within_wordings.values())


def test_circuits_without_signals_are_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "run"
    status = ["traced"] * 24 + ["wrong"] * 2 + ["empty"] * 3
    rows = [prompt_row(i, {"kind": str(i % 2)}, status=one) for i, one in enumerate(status)]
    edges = [edge(i, "L0H0", "L1H0", "query", (i % 3, 3 + i % 4)) for i in range(17)]
    edges += [edge(i, "L2H0", "answer", "key", ()) for i in range(17, 24)]
    write_run(path, rows, edges)
    found = find_families(path)
    document = found.to_json()
    assert (document["n_compared"], document["n_silent"], document["n_empty"]) == (17, 7, 3)
    assert len(found.labels) == len(found.distances) == 17 and found.silent == tuple(range(17, 24))
    assert set_aside(found) == (
        "in no family: 2 answered wrong, 3 right without a circuit, 7 right with edges into the answer alone"
    )
    by_kind = {a["value"]: a for a in found.accuracy}
    assert sum(one["silent"] for one in by_kind.values()) == 7
    assert verdict(found).startswith("17 circuits") or "17 circuits" in verdict(found)
    write_run(tmp_path / "none", rows, edges[17:])
    with pytest.raises(
        HeadwiseError, match=r"0 circuits with signals of 29 prompts \(24 have only edges"
    ) as caught:
        find_families(tmp_path / "none")
    assert "\n" not in str(caught.value)
