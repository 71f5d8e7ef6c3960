"""Ranking heads: a planted head is found, chance is not, and corrections behave."""

import pytest
import torch
from words import worded_model

from headwise.contrast.heads import choose_heads, label_attention, rank_heads, shuffled_labels
from headwise.errors import HeadwiseError
from headwise.tasks.labelled.binding import binding
from headwise.tasks.labelled.filter import filter
from headwise.types import Head

HEADS = [Head(layer, index) for layer in range(5) for index in range(10)]


def planted(n=120, keys=6, right=0.6, seed=0):
    """Fifty heads of random attention; L2H3 looks at the positive key in ``right`` of the prompts."""
    g = torch.Generator().manual_seed(seed)
    attention = torch.rand(n, len(HEADS), keys, generator=g).softmax(-1) * 0.8
    labels = torch.zeros(n, keys, dtype=torch.long)
    labels[:, 0] = 1
    chosen = torch.rand(n, generator=g) < right
    attention[chosen, HEADS.index(Head(2, 3)), 0] += 1.0
    return attention, labels, g


@pytest.mark.parametrize("rule", ["accuracy", "ratio"])
def test_a_planted_head_is_found_and_no_other(rule):
    attention, labels, g = planted()
    ranked = rank_heads(HEADS, attention, labels, rule=rule, generator=g)
    assert ranked[0].head == Head(2, 3)
    assert ranked[0].claim.q < 0.01
    assert ranked[0].score.low < ranked[0].score.mean < ranked[0].score.high
    assert choose_heads(ranked, rule) == [Head(2, 3)]
    assert all(s.claim.q > 0.01 for s in ranked[1:])


def test_a_rank_has_an_interval_over_prompts():
    attention, labels, g = planted()
    ranked = rank_heads(HEADS, attention, labels, rule="accuracy", generator=g, permutations=99)
    assert [s.rank.mean for s in ranked] == sorted(s.rank.mean for s in ranked)
    first = ranked[0]
    assert (first.rank.mean, first.rank.low, first.rank.high) == (1, 1, 1)  # far ahead in every draw
    assert first.to_json()["rank"] == 1 and first.to_json()["rank_ci"] == [1, 1]
    for one in ranked[1:]:
        assert 2 <= one.rank.low <= one.rank.mean <= one.rank.high <= len(HEADS)
        better = sum(other.score.mean > one.score.mean for other in ranked)
        assert one.rank.mean == 1 + better  # equals share a place
    # Heads that look at random have no place of their own.
    assert sum(one.rank.high - one.rank.low for one in ranked[1:]) / len(ranked[1:]) > 10
    by_ratio = rank_heads(HEADS, attention, labels, rule="ratio", generator=g, permutations=99)
    assert [s.rank.mean for s in by_ratio] == sorted(s.rank.mean for s in by_ratio)


def test_p_values_under_chance_are_uniform():
    attention, labels, g = planted(right=0.0)
    ranked = rank_heads(HEADS, attention, labels, rule="accuracy", generator=g, permutations=499)
    p = torch.tensor([s.claim.p for s in ranked])
    assert 0.3 < p.mean() < 0.7
    assert choose_heads(ranked, "accuracy") == []


def test_quiet_heads_do_not_win_by_ratio():
    attention, labels, g = planted()
    attention[:, 7] = 1e-4
    attention[:, 7, 0] = 1e-2
    ranked = rank_heads(HEADS, attention, labels, rule="ratio", generator=g, permutations=99)
    assert ranked[-1].head == HEADS[7]
    assert ranked[-1].ratio > 10


def test_prompts_with_fewer_keys_are_not_padded_into_chance():
    attention, labels, g = planted()
    labels[::2, 4:] = -1
    attention[::2, :, 4:] = 0.9  # whatever stands in the padding is never read
    ranked = rank_heads(HEADS, attention, labels, rule="accuracy", generator=g, permutations=199)
    assert ranked[0].head == Head(2, 3)
    assert ranked[0].mass < 1.5


@pytest.mark.parametrize("rule", ["accuracy", "ratio"])
def test_a_head_without_attention_on_the_keys_is_never_starred(rule):
    """Attention that is nothing but rounding lies on the first key of a tie: that is no finding."""
    attention, labels, g = planted()
    attention[:, 7] = 0.0
    attention[:, 8] = 0.0
    attention[:, 8, 0] = 1e-7
    ranked = rank_heads(HEADS, attention, labels, rule=rule, generator=g, permutations=1999)
    by_head = {one.head: one for one in ranked}
    assert by_head[HEADS[7]].accuracy == pytest.approx(1 / 6)  # six keys tie
    assert by_head[HEADS[7]].claim.p == 1.0
    assert by_head[HEADS[8]].accuracy == 1.0 and by_head[HEADS[8]].claim.p <= 0.01
    assert not by_head[HEADS[8]].claim.supported
    assert {one.head for one in ranked[-2:]} == {HEADS[7], HEADS[8]}
    assert choose_heads(ranked, rule) == [Head(2, 3)]


def test_p_is_exact_where_all_shuffles_can_be_counted():
    """Two prompts of three keys: nine shuffles, of which one does as well as a head that is always right."""
    attention = torch.tensor([[[0.7, 0.2, 0.1]], [[0.1, 0.7, 0.2]]])
    labels = torch.tensor([[1, 0, 0], [0, 1, 0]])
    (alone,) = rank_heads(
        [Head(0, 0)], attention, labels, rule="accuracy", generator=torch.Generator(), permutations=20_000
    )
    assert alone.claim.p == pytest.approx(1 / 9, abs=0.01)
    # One cluster: the same shuffle of places for both prompts, and of six one leaves both as they are.
    (together,) = rank_heads(
        [Head(0, 0)],
        attention,
        labels,
        rule="accuracy",
        generator=torch.Generator(),
        permutations=20_000,
        clusters=torch.zeros(2),
    )
    assert together.claim.p == pytest.approx(1 / 6, abs=0.01)


def test_prompts_of_one_cluster_are_shuffled_alike_and_absent_keys_stay():
    labels = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, -1, -1]])
    drawn = shuffled_labels(labels, torch.tensor([0, 0, 1]), 300, torch.Generator().manual_seed(0))
    assert torch.equal(drawn[:, 0], drawn[:, 1])
    assert not drawn[:, 2, 2:].any()
    assert (drawn.sum(-1) == 1).all()
    assert (drawn.double().mean(0)[0] - 0.25).abs().max() < 0.08


def test_copies_of_one_wording_are_no_evidence():
    """The positive key is always the last, and a head likes the last key: with few wordings that is chance."""
    g = torch.Generator().manual_seed(0)
    attention = torch.rand(120, 1, 4, generator=g) * 0.1
    attention[:, :, -1] += 0.5
    labels = torch.zeros(120, 4, dtype=torch.long)
    labels[:, -1] = 1
    wording = torch.arange(120) % 2
    alone = rank_heads([Head(0, 0)], attention, labels, rule="accuracy", generator=g, permutations=999)
    grouped = rank_heads(
        [Head(0, 0)], attention, labels, rule="accuracy", generator=g, permutations=999, clusters=wording
    )
    assert alone[0].claim.supported and not grouped[0].claim.supported
    assert grouped[0].score.clusters == 2


@pytest.mark.parametrize("make", [binding, filter])
def test_attention_on_labels_is_the_models_own(make):
    # Prompts are batched here and single there: in float32 some processors round the two apart by more than this.
    model = worded_model(dtype="float64")
    task = make(model.tokenizer, prompts=40, scan=8, jitter=True)
    attention, labels = label_attention(model, task.scan)
    for i, e in enumerate(task.scan.examples):
        pattern = model.capture([list(e.tokens)], want=("pattern",)).pattern[0, :, e.query]
        assert (attention[i, :, : len(e.keys)] - pattern[:, sorted(e.keys)]).abs().max() < 1e-6
        assert (labels[i] == 1).sum() == len(e.positive)
        assert (labels[i] == 0).sum() == len(e.negative)


def test_counterfactual_prompts_cannot_be_scanned():
    model = worded_model()
    lexical = binding(model.tokenizer, prompts=4, contrasts=("lexical",)).fits[0]
    with pytest.raises(HeadwiseError, match="has counterfactual prompts"):
        label_attention(model, lexical)
