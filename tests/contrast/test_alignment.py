"""Whether query clusters lie where the matching key clusters lie: planted, by hand, and where they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from headwise.claims import claims
from headwise.contrast.alignment import (
    Directions,
    alignment_draws,
    alignment_rows,
    draws_for,
    judged_alignment,
    measured,
)
from headwise.contrast.bank import BankFeature
from headwise.contrast.collect import Pairs
from headwise.contrast.fit import Fitted
from headwise.contrast.labelled_vectors import LabelledVectors, members
from headwise.contrast.placebo import Placebos
from headwise.randomness import keyed
from headwise.types import Head, Subspace

CLASSES, D, RANK = 5, 24, 3


def planted(prompts: int = 80, *, matching: bool = True, seed: int = 0) -> LabelledVectors:
    """Keys of five classes in three dimensions; queries point at the class they ask for, or at nothing."""
    generator = keyed(seed, "planted alignment", matching)
    centres = torch.nn.functional.pad(torch.randn(CLASSES, RANK, generator=generator), (0, D - RANK)).double()
    asked = torch.arange(prompts) % CLASSES
    noise = 0.2 * torch.randn(prompts, CLASSES, D, generator=generator).double()
    wanted = centres[asked] if matching else torch.zeros(prompts, D).double()
    return LabelledVectors(
        by="kind",
        names=tuple("abcde"),
        q=wanted + 0.2 * torch.randn(prompts, D, generator=generator).double(),
        k=centres + noise,
        query_class=asked,
        key_class=torch.arange(CLASSES).expand(prompts, CLASSES),
        clusters=torch.arange(prompts) // 2,
        scene=torch.arange(prompts) // 2,
    )


def basis(columns: Tensor) -> Subspace:
    return Subspace.spanned_by(columns)


def feature(space: Subspace, name: str = "kind", parts: tuple[str, ...] = ()) -> BankFeature:
    return BankFeature(
        name=name,
        head=Head(0, 0),
        query=space,
        key=space,
        sigma=torch.ones(space.rank),
        rank_energy=space.rank,
        rank_null=space.rank,
        parts=parts,
    )


class _Drawn:
    """The part of a fit that is read here: its placebos, random subspaces of one head."""

    def __init__(self, draws: int, seed: int = 0) -> None:
        drawn = torch.randn(draws, 1, D, D, generator=keyed(seed, "placebos")).double()
        key = torch.linalg.qr(drawn).Q
        self.placebos = Placebos(key, key)


def rows_of(vectors: LabelledVectors, draws: int = 199) -> list[tuple[float, float, bool]]:
    item = feature(Subspace(torch.eye(D)[:, :RANK].double()))
    fitted: dict[str, Fitted] = {"kind": _Drawn(draws)}  # pyright: ignore[reportAssignmentType]
    rows = judged_alignment(
        list(alignment_rows(item, {"kind": item}, fitted, 0, vectors, draws=draws, seed=0))
    )
    assert [row.measure for row in rows] == ["retrieval", "correlation"] or not rows
    assert all(row.p_value == max(row.p_shuffled, row.p_placebo) for row in rows)
    return [(row.value, row.shuffled_value, row.supported) for row in rows]


def test_matching_clusters_are_found() -> None:
    (retrieval, chance, supported), (correlation, none, also) = rows_of(planted())
    assert retrieval > 0.8 and supported
    assert chance == pytest.approx(1 / CLASSES, abs=0.08)
    assert correlation > 0.9 and also
    assert abs(none) < 0.2


def test_queries_that_ask_for_nothing_match_nothing() -> None:
    found = [rows_of(planted(matching=False, seed=seed), draws=99) for seed in range(20)]
    assert sum(supported for rows in found for *_, supported in rows) <= 2


def test_clusters_that_match_in_another_subspace_are_not_this_features() -> None:
    """Keys and queries match in the first three dimensions; a feature of three others sees nothing of it."""
    item = feature(Subspace(torch.eye(D)[:, RANK : 2 * RANK].double()))
    fitted: dict[str, Fitted] = {"kind": _Drawn(199)}  # pyright: ignore[reportAssignmentType]
    rows = list(alignment_rows(item, {"kind": item}, fitted, 0, planted(), draws=199, seed=0))
    assert not any(row.supported for row in judged_alignment(rows))


def test_one_cluster_of_prompts_gives_no_number() -> None:
    assert rows_of(replace(planted(), clusters=torch.zeros(80, dtype=torch.long))) == []


def test_retrieval_by_hand() -> None:
    """Two classes, two clusters: keys of the first prompt, the query of the second, and the other way round."""
    vectors = LabelledVectors(
        by="kind",
        names=("a", "b"),
        q=torch.tensor([[1.0, 0.0], [-1.0, 0.0], [2.0, 0.0], [1.0, 0.0]]).double(),
        k=torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]] * 4).double(),
        query_class=torch.tensor([0, 1, 0, 1]),
        key_class=torch.tensor([[0, 1]] * 4),
        clusters=torch.tensor([0, 0, 1, 1]),
        scene=torch.arange(4),
    )
    eye = torch.eye(2).double()
    directions = Directions(query=eye, key=eye, paired_query=eye, paired_key=eye)
    half = torch.tensor([True, True, False, False])
    # Queries of each half, less the mean of their class means: ±1 and ±½. All four are right.
    assert measured(vectors, directions, half).tolist() == pytest.approx([1.0, 1.0])
    turned = measured(vectors, directions, half, torch.tensor([[1, 0]] * 4))
    assert turned.tolist() == pytest.approx([0.0, -1.0])


def test_classes_are_dealt_alike_to_prompts_that_share_their_keys() -> None:
    dealt = planted().shuffled(50, keyed(0, "deal"))
    assert torch.equal(dealt[:, ::2], dealt[:, 1::2])
    assert torch.equal(dealt.sort(-1).values, torch.arange(CLASSES).expand(50, 80, CLASSES))
    assert len(dealt[:, 0].unique(dim=0)) > 20


def test_keys_without_a_class_stay_without() -> None:
    vectors = planted()
    classes = vectors.key_class.clone()
    classes[:, 1] = -1
    dealt = replace(vectors, key_class=classes).shuffled(20, keyed(0, "deal"))
    assert (dealt[..., 1] == -1).all() and (dealt[..., [0, 2, 3, 4]] >= 0).all()


def test_placebo_directions_go_together_in_sign() -> None:
    """u_j and v_j are a pair: u_jᵀ ΔC v_j is positive, for a placebo as for a feature."""
    from headwise.contrast.collect import Pairs
    from headwise.contrast.placebo import placebo_covariances

    generator = keyed(0, "signs")
    q, keys = (
        torch.randn(40, 1, D, generator=generator).double(),
        torch.randn(40, 1, 4, D, generator=generator),
    )
    pairs = Pairs(
        q, keys[:, :, 0].double(), keys[:, :, 1:].mean(2).double(), None, keys, torch.tensor([[1, 3]] * 40)
    )
    made = placebo_covariances(pairs, torch.full((1, 40), 1 / 40), 7, keyed(0, "placebo", "x"))[:, 0]
    found = Placebos.fitted(pairs, RANK, 7, 0, "x")
    assert ((found.query.mT @ made @ found.key).diagonal(dim1=-2, dim2=-1) > 0).all()


def test_members_take_means() -> None:
    values = torch.tensor([[1.0], [5.0], [3.0]]).double()
    assert (members(torch.tensor([0, 1, 0]), 2) @ values).tolist() == [[2.0], [5.0]]


@pytest.mark.parametrize("tests", [1, 3, 12, 14, 25])
def test_one_alignment_among_many_can_be_supported_alone(tests: int) -> None:
    """With 200 draws the smallest p, 1/201, did not pass the correction from eleven tests on."""
    draws = draws_for(tests, 200)
    p = [1 / (1 + draws)] + [1.0] * (tests - 1)
    assert claims(p, null="", draws=draws, group="")[0].supported
    fixed = claims([1 / 201, *p[1:]], null="", draws=200, group="")[0].supported
    assert fixed == (tests <= 10) and draws == max(200, 20 * tests)


def test_the_first_placebos_are_the_same_however_many_there_are() -> None:
    """Swaps are held against the first of them, which must not hang on how many alignments a run has."""
    g = keyed(0, "many placebos")
    q, keys = torch.randn(30, 2, 6, generator=g).double(), torch.randn(30, 2, 4, 6, generator=g).double()
    counts = torch.tensor([[1, 3]] * 30)
    pairs = Pairs(q, keys[:, :, 0], keys[:, :, 1:].mean(2), keys=keys, counts=counts)
    few, many = (Placebos.fitted(pairs, 3, draws, 0, "kind") for draws in (40, 130))
    assert len(many.key) == len(many.query) == 130
    assert torch.allclose(few.key, many.key[:40]) and torch.allclose(few.query, many.query[:40])


def test_a_study_draws_as_many_as_its_alignments_ask_for() -> None:
    class Coloured:
        colours: ClassVar = {"a": "kind", "b": "kind", "c": ""}
        names = ("a", "b", "c")

    # Two features that have classes, two measures of each, in four heads: sixteen alignments.
    assert alignment_draws(Coloured(), 4, 200) == 320  # pyright: ignore[reportArgumentType]
    assert alignment_draws(Coloured(), 1, 200) == 200  # pyright: ignore[reportArgumentType]
