"""Moments over a corpus: the same after an interruption, of this model alone, with the stability of every channel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy_answers import small_model
from words import worded_model

from headwise.bases import calibrate as module
from headwise.bases.calibrate import calibrate, pooled_corpus
from headwise.bases.calibration import Calibration, store
from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.model.loading.load import load
from headwise.model.model import Model
from headwise.toy.language import sentences
from headwise.toy.small_lm import DATA

TEXTS = tuple(dict.fromkeys(s.text for s in sentences(120, 0, "calibration")))[:60]
CORPUS = Corpus("sentences", TEXTS, tuple("ab"[i % 4 > 1] for i in range(len(TEXTS))))


def same(one: Calibration, other: Calibration) -> bool:
    return one.to_bytes() == other.to_bytes()


def test_it_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    whole = calibrate(model, CORPUS)
    inner, calls = module.collect_moments, []

    def stopping(*given: object) -> object:
        calls.append(given)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return inner(*given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(module, "collect_moments", stopping)
    with pytest.raises(KeyboardInterrupt):
        calibrate(model, CORPUS, keep=tmp_path / "work")
    done = len(calls)
    again = calibrate(model, CORPUS, keep=tmp_path / "work")
    assert same(whole, again)
    assert len(calls) - done < 15, "chunks that were finished are not made again"
    assert not list((tmp_path / "work").iterdir())


def test_a_spread_model_has_the_same_moments() -> None:
    """Layers that are on disk are measured like those in memory."""
    spread = load(DATA, device_map="auto", max_memory={"cpu": 100_000})
    assert "disk" in set(spread.hf.hf_device_map.values())
    found, expected = calibrate(spread, CORPUS), calibrate(small_model(), CORPUS)
    assert found.weight_hash == expected.weight_hash and found.texts == expected.texts
    for name in ("cells", "query_mean", "query", "key"):
        one, other = getattr(found.moments, name), getattr(expected.moments, name)
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.outputs, expected.outputs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.stability, expected.stability, rtol=1e-3, atol=1e-3)


def test_a_file_comes_back_and_belongs_to_its_model(tmp_path: Path) -> None:
    model = small_model()
    made = calibrate(model, CORPUS)
    path = store(made, tmp_path)
    read = Calibration.load(path, model)
    assert read.digest == CORPUS.digest
    assert torch.allclose(read.moments.query, made.moments.query, rtol=1e-6, atol=1e-6)
    assert torch.allclose(read.outputs, made.outputs, rtol=1e-6, atol=1e-6)
    with pytest.raises(HeadwiseError, match=r"is of .* not of 'tiny-worded'"):
        Calibration.load(path, worded_model())
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(HeadwiseError, match=r"does not hold a model's moments .*headwise calibrate"):
        Calibration.load(path, model)


def test_stability_lies_between_nothing_and_the_same(tmp_path: Path) -> None:
    made = calibrate(small_model(), CORPUS)
    assert made.kinds == ("a", "b")
    assert ((made.stability >= 0) & (made.stability <= 1)).all()
    one_kind = calibrate(small_model(), Corpus("c", TEXTS, ("same",) * len(TEXTS)))
    assert one_kind.across.isnan().all()
    assert (one_kind.stability == 0).all(), "one kind of text cannot show that a channel survives another"


def test_too_few_texts_are_refused() -> None:
    with pytest.raises(HeadwiseError, match="has 3 usable texts: moments take at least 8"):
        calibrate(small_model(), Corpus("short", TEXTS[:3], ("a",) * 3))


@pytest.mark.real
def test_no_kind_has_more_than_half_of_the_pooled_corpus(smollm2: Model) -> None:
    found = pooled_corpus(smollm2)
    counts = {kind: found.kinds.count(kind) for kind in set(found.kinds)}
    assert set(counts) == {"documentation", "prompts", "prose"}
    assert max(counts.values()) <= len(found) / 2
    assert min(counts.values()) >= 10
