"""Prompts of one wording count as one: where heads park, where their signals agree, and where they are removed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from planted_sink import plant_sink, planted_prompts

from headwise.cli import sinks as command
from headwise.errors import HeadwiseError
from headwise.intervals import estimate, wilson
from headwise.sinks import study
from headwise.sinks.find import PARKS, Parking
from headwise.sinks.matched import exchanged
from headwise.sinks.result import SinksResult
from headwise.sinks.signals import agreement
from headwise.sinks.study import find_sinks
from headwise.tasks.answers import make
from headwise.tasks.answers.types import AnswerPrompt, AnswerSet
from headwise.types import Head


def test_that_a_head_parks_is_counted_over_clusters() -> None:
    """Six prompts of three clusters are three coins."""
    attention = torch.full((6, 1, 1), 0.9).double()
    attention[1] = 0.2  # its cluster still gives more than a half
    each = Parking([[0]] * 6, [(0,)] * 6, [torch.zeros(1)] * 6, attention)
    three = Parking(each.token_ids, each.sinks, each.received, attention, (0, 0, 1, 1, 2, 2))
    assert each.parks(0.5)[Head(0, 0)].p == pytest.approx(7 / 64)
    found = three.parks(0.5)[Head(0, 0)]
    assert found.p == pytest.approx(1 / 8) and found.null != PARKS and "clusters of prompts" in found.null
    assert three.some([1, 4]).clusters == (0, 2) and each.some([1, 4]).clusters == ()
    shared = estimate(attention.flatten(), 0, clusters=torch.tensor(three.clusters))
    low, high = (float(x) for x in three.heads(0)[1:])
    assert (low, high) == pytest.approx((shared.low, min(1.0, shared.high)))
    assert high - low > float(each.heads(0)[2] - each.heads(0)[1]) * 1.01


def test_signals_are_exchanged_in_whole_clusters() -> None:
    same, other = torch.ones(6, 6), torch.eye(6)
    assert exchanged(same, other, torch.tensor([0, 0, 1, 1, 2, 2])) == (1 / 8, 8)
    assert exchanged(same, other) == (1 / 64, 64)


def by_wording(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Signals of three wordings that have nothing to do with one another, six prompts each."""
    g = torch.Generator().manual_seed(seed)
    which = torch.arange(18) // 6
    means = torch.randn(3, 16, generator=g)
    return (means[which] + 0.2 * torch.randn(18, 16, generator=g)).double(), which


def test_wordings_that_agree_in_themselves_alone_are_rarely_said_to_agree() -> None:
    said = naive = 0
    for seed in range(40):
        vectors, which = by_wording(seed)
        found, each = (agreement(vectors, vectors[:0], [1], seed, clusters=c) for c in (which, None))
        assert found.claim is not None and each.claim is not None
        said, naive = said + (found.claim.p <= 0.05), naive + (each.claim.p <= 0.05)
        assert (found.distance.n, found.distance.clusters, each.distance.clusters) == (18, 3, 18)
        assert found.distance.high - found.distance.low > each.distance.high - each.distance.low
    assert naive == 40 and wilson(said, 40)[0] <= 0.05
    g = torch.Generator().manual_seed(0)
    common = torch.randn(16, generator=g) + 0.2 * torch.randn(18, 16, generator=g)
    true = agreement(common.double(), common[:0].double(), [1], 0, clusters=torch.arange(18) // 6)
    assert true.claim is not None and true.claim.p == 1 / 200


def test_agreement_of_few_prompts_has_a_t_interval() -> None:
    """A bootstrap of four is too narrow: its ends are those of 35 different resamples at most."""
    g = torch.Generator().manual_seed(0)
    vectors = (torch.randn(16, generator=g) + torch.randn(4, 16, generator=g)).double()
    found = agreement(vectors, vectors[:0], [1], 0).distance
    assert found.low == 0.0 or found.mean - found.low == pytest.approx(found.high - found.mean)


def test_a_study_takes_the_labels_of_its_prompts() -> None:
    labels = [{"wording": str(i // 4), "name": str(i)} for i in range(8)]

    def studied(labels: list[dict[str, str]] | None) -> SinksResult:
        return find_sinks(plant_sink(), planted_prompts(), labels=labels, traced=8, proved=8)

    found, each = studied(labels), studied(None)
    assert found.config["clusters"] == [0] * 4 + [1] * 4 == list(found.parking.clusters)
    assert "clusters" not in each.config and each.parking.clusters == ()
    # Two wordings are two coins, whatever the number of prompts.
    assert min(one.p for one in found.parks.values()) == 1 / 4 > min(one.p for one in each.parks.values())
    assert {one.distance.clusters for one in found.agreements.values()} == {2}
    assert {one.claim.draws for one in found.shared} == {2**2}
    assert {one.claim.draws for one in each.shared} == {2**8}
    wide, narrow = (study.one_by_one[0]["edited_ci"] for study in (found, each))
    assert wide[1] - wide[0] != narrow[1] - narrow[0]
    # A label that every prompt has for itself, or all share, makes no clusters.
    alike, unlike = (studied([{"wording": one} for one in ones]) for ones in ("1" * 8, "12345678"))
    assert alike.config == each.config == unlike.config


def test_labels_that_do_not_fit_are_one_line() -> None:
    with pytest.raises(HeadwiseError, match="2 labels do not fit 8 prompts: give one for each"):
        find_sinks(plant_sink(), planted_prompts(), labels=[{}] * 2)


def test_the_command_passes_on_what_is_known_of_a_tasks_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = tuple(AnswerPrompt(f"text {i}", " a", " b", {"wording": str(i // 2)}, 1, 2) for i in range(4))
    monkeypatch.setattr(command, "load", lambda model: SimpleNamespace(tokenizer=None))
    monkeypatch.setattr(make, "make_answers", lambda *args, **options: AnswerSet("ioi", prompts))
    given = []

    def asked(model: object, texts: list[str], **options: object) -> None:
        given.append((texts, options["labels"]))
        raise HeadwiseError("far enough")

    monkeypatch.setattr(study, "find_sinks", asked)
    with pytest.raises(HeadwiseError, match="far enough"):
        command.sinks("ioi")
    with pytest.raises(HeadwiseError, match="far enough"):
        command.sinks()
    assert given[0] == ([p.prompt for p in prompts], [p.labels for p in prompts])
    assert given[1][1] is None
