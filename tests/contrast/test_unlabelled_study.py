"""The study of features without labels: on the shipped small model, in a folder, and with what cannot be studied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import tiny
from toy_answers import contents, labelled_lines, small_model, write_lines

import headwise
from headwise.claims import claim
from headwise.contrast.attribution import attribute_prompt
from headwise.contrast.bank import BankFeature, FeatureBank
from headwise.contrast.unlabelled.collect import (
    PART,
    HeadVectors,
    TextRows,
    TextScanJob,
    VectorsJob,
    rotation_of,
)
from headwise.contrast.unlabelled.given import corpus_given
from headwise.contrast.unlabelled.held_out import ExplainedShare, span_logits
from headwise.contrast.unlabelled.one_head import HeadTexts, find_in_head
from headwise.contrast.unlabelled.pairs import FeaturePair, PairTest, judged, swap_difference, writer_test
from headwise.contrast.unlabelled.result import UnlabelledResult
from headwise.contrast.unlabelled.writers import writer_profiles
from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.scale.work import Chunk, cut
from headwise.toy.language import sentences
from headwise.types import Head

pytestmark = pytest.mark.slow

COUNT = 60


def corpus(count: int = COUNT) -> Corpus:
    texts = tuple(f"{one.text} {one.answer}" for one in sentences(count, 0, "features"))
    return Corpus("sentences", texts, ("",) * count)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[UnlabelledResult, Path]:
    out = tmp_path_factory.mktemp("unlabelled") / "run"
    return headwise.find_features(small_model(), corpus(), heads="L0H0,L2H0", out=out), out


def vectors(family: str) -> tuple[headwise.Model, list[int], HeadVectors]:
    model = tiny(family)
    ids = torch.randint(5, 40, (12,), generator=torch.Generator().manual_seed(0)).tolist()
    heads = tuple(Head(layer, 1) for layer in range(model.n_layers))
    return model, ids, VectorsJob(heads).make(model, Chunk(0, (tuple(ids), tuple(ids[:7]))), lambda _n: None)


@pytest.mark.parametrize(
    "family", ["llama", "llama-yarn", "mistral", "gpt2", "gemma2", "gemma3", "qwen3", "gpt_neox"]
)
def test_keys_as_a_query_sees_them_give_the_heads_own_attention(family: str) -> None:
    """q before rotation times R_dᵀ k, scaled and capped, is the row that the head's softmax sees."""
    _, _, made = vectors(family)
    for head in range(len(made.q)):
        for text, width in ((0, 12), (1, 7)):
            rows = made.rows(head, text, torch.zeros(12, dtype=torch.bool), 0)
            assert len(rows) == width
            cap = float(made.cap[head]) or None
            logits = span_logits(rows, torch.eye(rows.q.shape[1]).double(), float(made.scale[head]), cap)
            pattern = logits.masked_fill(~rows.allowed, float("-inf")).softmax(-1)
            assert torch.allclose(pattern, rows.attention.double(), atol=1e-5)


def test_a_feature_in_the_querys_frame_is_turned_to_where_the_query_is() -> None:
    """Its part of a logit, worked out from rotated vectors, is the one in the query's frame."""
    model, ids, made = vectors("llama")
    head, place = Head(1, 1), 9
    query, key = (torch.linalg.qr(torch.randn(model.d_head, 2).double()).Q for _ in range(2))
    one = BankFeature(
        name="f1",
        head=head,
        query=headwise.Subspace(query),
        key=headwise.Subspace(key),
        sigma=torch.ones(2).double(),
        rank_energy=2,
        rank_null=2,
        frame="query",
    )
    rows = made.rows(1, 0, torch.zeros(12, dtype=torch.bool), 0)
    expected = (rows.q[place].double() @ query @ query.mT) @ rows.keys[place, : place + 1].double().mT
    bank = FeatureBank(model.name, model.weight_hash, "text", (one,))
    split = attribute_prompt(model, ids[: place + 1], bank)[head]["sequential"]
    assert torch.allclose(split.parts[0], expected * float(made.scale[1]), atol=1e-5)
    turned = one.at(rotation_of(model, ids, place)[1])
    assert turned.frame == "absolute"
    assert not torch.allclose(turned.key.basis, one.key.basis, atol=1e-2)


def test_a_bank_keeps_its_frame_and_old_banks_have_the_absolute_one(
    run: tuple[UnlabelledResult, Path],
) -> None:
    found, out = run
    again = FeatureBank.load(out)
    assert {one.frame for one in again} == {"query"}
    absolute = replace(again, features=tuple(replace(one, frame="absolute") for one in again))
    assert b'"frame"' not in absolute.to_bytes()
    assert len(found.bank) == len(again)


def test_what_place_alone_decides_does_not_change_with_the_text() -> None:
    """Two texts with the same attention have no variance; the first token counts for nothing."""
    model = tiny("llama")
    ids = tuple(range(5, 17))
    scanned = TextScanJob().make(model, Chunk(0, (ids, ids)), lambda _n: None)
    assert scanned.changes().abs().max() < 1e-6
    other = TextScanJob().make(model, Chunk(0, (ids, tuple(reversed(ids)))), lambda _n: None)
    assert other.changes().max() > 1e-5
    assert scanned.sinks()[:, 0].all()


def test_features_have_cells_in_context_and_numbers_of_held_out_texts(
    run: tuple[UnlabelledResult, Path],
) -> None:
    found, _ = run
    assert [one.head for one in found.heads] == ["L0H0", "L2H0"]
    # An explanation leaves out what is not supported: the bank has to say it.
    assert [one.supported for one in found.bank] == [one.claim.supported for one in found.features]
    assert found.held_out == COUNT // 3
    for one in found.features:
        assert 0 < one.claim.p <= 1 and one.claim.p <= one.claim.q + 1e-12 <= 1 + 1e-9
        assert one.claim.supported == (one.known and one.claim.q <= 0.05)
        # Cells of one text are resampled together.
        assert one.swap.clusters is not None and one.swap.clusters <= found.held_out < one.swap.n
        for cell in one.cells:
            assert (cell.text + 1) % 3 == 0  # each third text is held out
            assert cell.attention >= 0.2
            assert cell.key <= cell.query < len(cell.tokens)
            assert cell.without < cell.attention + 1e-6 or cell.part < 0
        assert [c.part for c in one.cells] == sorted((c.part for c in one.cells), reverse=True)
    shares = [one.share for one in found.of("L0H0") if one.known]
    assert shares == sorted(shares, reverse=True)


def test_the_span_explains_held_out_attention_better_than_placebos(
    run: tuple[UnlabelledResult, Path],
) -> None:
    for one in run[0].heads:
        assert one.explained > one.placebo
        assert one.explained <= 1


def test_a_whole_head_explains_everything_and_nothing_explains_nothing() -> None:
    _, _, made = vectors("llama")
    rows = made.rows(0, 0, torch.zeros(12, dtype=torch.bool), 0)
    every = span_logits(rows, torch.eye(rows.q.shape[1]).double(), float(made.scale[0]))
    assert ExplainedShare().plus(rows, every).share == pytest.approx(1, abs=1e-6)
    assert ExplainedShare().plus(rows, torch.zeros_like(every)).share == pytest.approx(0, abs=1e-9)


def test_a_run_is_read_again_and_the_same_call_gives_the_same_bytes(
    run: tuple[UnlabelledResult, Path], tmp_path: Path
) -> None:
    found, out = run
    again = UnlabelledResult.load(out)
    first, second = (replace(one, seconds=0.0).to_json() for one in (found, again))
    assert first == second
    other = tmp_path / "other"
    headwise.find_features(small_model(), corpus(), heads="L0H0,L2H0", out=other)
    mine, theirs = contents(out), contents(other)
    assert {name: mine[name] for name in mine if name != "manifest.json"} == {
        name: theirs[name] for name in theirs if name != "manifest.json"
    }


def test_an_explanation_takes_the_bank(run: tuple[UnlabelledResult, Path]) -> None:
    found, _ = run
    text = corpus().texts[2]
    supported = {one.name for one in found.of("L0H0") if one.claim.supported}
    assert 0 < len(supported) < len(found.bank.of("L0H0"))
    for bank in (found.bank, found.bank.with_unsupported()):
        why = headwise.explain(small_model(), text, head="L0H0", features=bank)
        parts = why.what.features
        used = supported if bank is found.bank else {one.name for one in bank.of("L0H0")}
        assert {one.name for one in parts} == used
        assert sum(one.value for one in parts) + why.what.unexplained == pytest.approx(
            why.what.log_odds, abs=1e-4
        )
        assert why.proof.features


def head_texts(head: Head, *, flat: bool = False) -> tuple[HeadTexts, list[tuple[int, ...]]]:
    """One head of the small model on all sentences; ``flat`` spreads its attention over all keys."""
    model = small_model()
    ids = [tuple(model.prompt_ids(text)) for text in corpus().texts]
    parts = [VectorsJob((head,)).make(model, chunk, lambda _n: None) for chunk in cut(ids, PART)]
    if flat:
        even = [part.visible / part.visible.sum(-1, keepdim=True).clamp_min(6) for part in parts]
        parts = [replace(part, attention=one) for part, one in zip(parts, even, strict=True)]
    sinks = (torch.arange(max(map(len, ids))) == 0).expand(len(ids), -1)
    held_out = tuple(range(2, COUNT, 3))
    texts = HeadTexts(
        head=head,
        rows=TextRows((head,), tuple(parts), sinks),
        fit=tuple(i for i in range(COUNT) if i not in held_out),
        held_out=held_out,
        tokens=[model.tokens(text) for text in corpus().texts],
        cap=None,
        changes=0.0,
        seed=0,
    )
    return texts, ids


def test_writers_of_a_feature_sum_to_its_logit() -> None:
    """The parts of all components are the feature's logit through the key, that of the mean key included."""
    head = Head(2, 0)
    texts, ids = head_texts(head)
    one = find_in_head(texts, 3)
    found, group = one.found, list(one.found.groups[0])
    cells = one.parts.cells.chosen(torch.arange(4))
    names, profiles = writer_profiles(small_model(), head, found, 0, cells, ids)
    asks = cells.q.double() @ found.key_directions[:, group]
    mean = torch.from_numpy(found.axes.mean_ @ found.axes.components_.T)[group]
    expected = (asks * (found.coordinates(cells.k)[:, group] + mean)).sum(1)
    assert torch.allclose(profiles.sum(1).double(), expected, rtol=1e-4, atol=1e-4)
    assert {"embedding", "MLP0", "L1H3"} <= set(names)


def test_pairs_are_told_apart_only_by_what_differs() -> None:
    g = torch.Generator().manual_seed(0)
    same = torch.randn(1, 9, generator=g) + 0.3 * torch.randn(24, 9, generator=g)
    other = torch.randn(1, 9, generator=g) + 0.3 * torch.randn(12, 9, generator=g)
    texts = torch.arange(24)
    alike, apart = writer_test(same[:12], same[12:], texts, 0), writer_test(same[:12], other, texts, 0)
    assert alike is not None and apart is not None
    assert alike.claim.p > 0.05
    assert apart.claim.p <= 0.002 and apart.difference > 0
    unit = torch.arange(40)
    own, theirs = unit < 20, unit >= 20
    moved = torch.stack([own * 2.0 + 0.1, theirs * 2.0 + 0.1]) + 0.1 * torch.randn(2, 40, generator=g)
    told = swap_difference(own, theirs, moved, unit, 0)
    assert told is not None and told.claim.p <= 0.002
    assert told.difference == pytest.approx(2.0, abs=0.2)
    none = swap_difference(own, theirs, moved[[0, 0]], unit, 0)
    assert none is not None and none.claim.p > 0.5
    # One side alone does not tell them apart: the second's swap does no more than the first's in its own cells.
    half = swap_difference(own, theirs, torch.stack([moved[0], 0 * moved[0] + 0.1]), unit, 0)
    assert half is not None and half.claim.p > 0.05
    assert swap_difference(own & (unit < 2), theirs, moved, unit, 0) is None
    pairs = judged(
        [
            FeaturePair(
                head="L0H0", first="f1", second="f2", overlap=0.5, chance=0.2, swaps=swaps, writers=writers
            )
            for swaps, writers in ((told, alike), (none, apart), (none, alike), (None, None))
        ]
    )
    assert [pair.by for pair in pairs] == [("swaps",), ("writers",), (), ()]
    assert ["could not be told apart" in pair.sentence for pair in pairs] == [False, False, True, True]
    assert pairs[0].swaps is not None and pairs[0].swaps.claim.q > pairs[0].swaps.claim.p


def test_what_is_given_decides(tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in corpus(5).texts])
    prompts = write_lines(tmp_path / "prompts.jsonl", labelled_lines())
    found = corpus_given(texts)
    assert found is not None and len(found) == 5
    assert corpus_given(prompts) is None and corpus_given("filter") is None and corpus_given("bindng") is None
    with pytest.raises(
        HeadwiseError, match="draws= is of labelled prompts, and 'sentences' is ordinary text"
    ):
        headwise.find_features(small_model(), corpus(), draws=300)


@pytest.mark.parametrize(("count", "said"), [(1, "has 1 usable text:"), (20, "has 20 usable texts:")])
def test_too_small_a_corpus_is_refused(count: int, said: str) -> None:
    with pytest.raises(HeadwiseError, match=f"the corpus 'sentences' {said} .* take at least 24"):
        headwise.find_features(small_model(), corpus(count), heads="L0H0")


def test_a_head_without_attended_cells_is_refused() -> None:
    with pytest.raises(HeadwiseError, match="L0H0 attends to 0 cells besides the first token and sinks"):
        find_in_head(head_texts(Head(0, 0), flat=True)[0], 16)


def test_estimates_are_whole_values() -> None:
    test = PairTest(1.0, claim(0.01, null="signs", draws=99))
    pair = FeaturePair(
        head="L0H0", first="f1", second="f2", overlap=0.5, chance=0.2, swaps=test, writers=None
    )
    assert pair.to_json()["swaps"] == {"difference": 1.0, **test.claim.to_json()}
    assert pair.to_json()["told_apart"] is True
