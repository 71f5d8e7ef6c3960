"""Activations against the obvious way to compute them, on every family, and against each other."""

from __future__ import annotations

import pytest
import torch
from tiny import VARIANTS, tiny

from headwise.bases.basis import Bases
from headwise.model.attend import pattern_rows, raw_scores
from headwise.naming.activation import Activations, LayerReads, writers_of
from headwise.naming.signals import Subject
from headwise.types import Component, Head, Side

TEXTS = [[5, 9, 13, 2, 30, 7, 41, 3], [8, 1, 60, 22, 9], [4, 4, 17, 33, 12, 6, 28]]


def reads_of(name: str, layer: int = 3) -> LayerReads:
    return LayerReads(tiny(name, torch.float64).split(TEXTS), layer)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("side", ["query", "key"])
def test_writers_sum_to_the_channels_share(name: str, side: Side) -> None:
    reads = reads_of(name)
    model, head = reads.stream.model, Head(3, 2)
    for channels in ((), (0,), (1, 4)):
        shown = f" ch{'+'.join(map(str, channels))}" if channels else ""
        subjects = [
            Subject.parse(f"{head} {side}{shown} {writer.name}") for writer in writers_of(model, head, side)
        ]
        acts = Activations(model, [*subjects, Subject(head, channels=channels)])
        total = torch.stack([acts.alpha(number, reads) for number in range(len(subjects))]).sum(0)
        whole = acts.alpha(len(subjects), reads)
        assert (total - whole)[reads.exists].abs().max() <= 1e-5 * whole[reads.exists].abs().max().clamp(
            min=1.0
        )
        assert (total - whole)[reads.exists].abs().max() <= 1e-9 * whole[reads.exists].abs().max().clamp(
            min=1.0
        )


@pytest.mark.parametrize("name", ["gpt2", "llama", "llama-yarn", "mistral", "qwen3", "gemma2"])
def test_a_channel_is_its_coordinates_product_less_the_mean_of_the_others(name: str) -> None:
    reads = reads_of(name)
    stream, head = reads.stream, Head(3, 1)
    acts = Activations(stream.model, [Subject(head, channels=(2,))])
    found = acts.alpha(0, reads)
    basis = Bases.of(stream.model).head(head)
    call = stream.layers[3].call
    for text, ids in enumerate(TEXTS):
        rotary = stream.rotary(3, text)
        for d in range(len(ids)):
            seen = basis if rotary is None else basis.seen_from(rotary.at_positions([d]).double())
            a = call.query[text, head.index, d] @ seen.query_map
            b = call.key_of(head.index)[text] @ seen.key_map.mT
            z = call.scale * a[2] * b[:, 2]
            keys = reads.visible[text, d].nonzero()[:, 0].tolist()
            for s in keys if len(keys) > 1 else []:
                others = [t for t in keys if t != s]
                assert float(found[text, d, s]) == pytest.approx(float(z[s] - z[others].mean()), abs=1e-9)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_head_is_its_log_odds_on_visible_cells_alone(name: str) -> None:
    reads = reads_of(name)
    call = reads.record.call
    acts = Activations(reads.stream.model, [Subject(Head(3, 0))])
    found = acts.score(0, reads)
    rows = torch.arange(call.query.shape[2]).expand(len(TEXTS), -1)
    pattern = pattern_rows(
        raw_scores(call.query[:, 0], call.key_of(0), call.scale, call.cap), call.visible(rows)
    )
    for text, ids in enumerate(TEXTS):
        exists = reads.exists[text]
        assert not exists[len(ids) :].any()  # padding
        assert not exists[:, len(ids) :].any()
        assert not exists[0].any()  # one visible key
        assert not exists.triu(1).any()
    attention = pattern[reads.exists]
    assert torch.allclose(found[reads.exists], (attention / (1 - attention)).log(), atol=1e-8)


def test_windows_hide_cells() -> None:
    reads = reads_of("mistral")
    assert not reads.exists[0, 7, :4].any()
    assert reads.exists[0, 7, 4:].all()


def test_poles_share_the_cells_out_and_never_pool_them() -> None:
    reads = reads_of("llama")
    head, model = Head(3, 1), reads.stream.model
    writer = Component("mlp", 1)
    poles = ["++", "--", "+-", "-+"]
    acts = Activations(model, [Subject(head, "key", writer, (2,), pole) for pole in poles])  # pyright: ignore[reportArgumentType]
    scores = torch.stack([acts.score(number, reads) for number in range(4)])[:, reads.exists]
    alpha = acts.alpha(0, reads)[reads.exists]
    assert ((scores > 0).sum(0) == 1).all()  # every cell belongs to one pole
    positive = scores.max(0)
    assert torch.allclose(positive.values, alpha.abs())
    attracting = positive.indices < 2
    assert torch.equal(attracting, alpha > 0)


def test_several_channels_take_the_pole_of_the_first() -> None:
    reads = reads_of("llama")
    head, model = Head(3, 1), reads.stream.model
    both, lead = Subject(head, channels=(2, 5), pole="++"), Subject(head, channels=(2,), pole="++")
    acts = Activations(model, [both, lead])
    several, first = acts.score(0, reads), acts.score(1, reads)
    assert (first[reads.exists & (several > 0)] > 0).all()
    alpha = acts.alpha(0, reads)
    inside = reads.exists & (first > 0)
    assert torch.allclose(several[inside], alpha[inside])


def test_the_rotated_control_keeps_the_sum_over_channels_and_nothing_else() -> None:
    reads = reads_of("llama")
    head, model = Head(3, 1), reads.stream.model
    every = [Subject(head, channels=(k,)) for k in range(model.d_head)]
    plain, turned = Activations(model, [*every, Subject(head)]), Activations(model, every, turned=7)
    numbers = range(len(every))
    whole = plain.alpha(len(every), reads)[reads.exists]
    total = torch.stack([turned.alpha(n, reads) for n in numbers]).sum(0)[reads.exists]
    assert torch.allclose(total, whole, atol=1e-9)
    assert not torch.allclose(turned.alpha(0, reads), plain.alpha(0, reads), atol=1e-3)


def test_blocks_give_every_subject_once_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama", torch.float64)
    subjects = [
        Subject(Head(3, 2)),
        Subject(Head(1, 0)),
        Subject.parse("L3H0 query MLP1"),
        Subject(Head(2, 2)),
    ]
    acts = Activations(model, subjects)
    stream = model.split(TEXTS, layers=acts.layers)
    whole = {
        n: score
        for numbers, scores, _ in acts.blocks(stream)
        for n, score in zip(numbers, scores, strict=True)
    }
    monkeypatch.setattr("headwise.naming.activation.BLOCK", 1)
    single = {
        n: score
        for numbers, scores, _ in acts.blocks(stream)
        for n, score in zip(numbers, scores, strict=True)
    }
    assert sorted(whole) == sorted(single) == [0, 1, 2, 3]
    assert all(torch.equal(whole[n], single[n]) for n in whole)
