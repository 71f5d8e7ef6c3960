"""The toy language, the shipped model, and sparsity over checkpoints."""

import pytest
import torch

from headwise.bases import channel_logits
from headwise.errors import HeadwiseError
from headwise.model.loading.load import load
from headwise.scale.folder import RunFolder
from headwise.show.toy.training import answer
from headwise.toy.language import NAMES, sentences, tokenizer, training_batch, vocabulary
from headwise.toy.small_lm import DATA, LMSetup, losses_of, train_lm
from headwise.toy.sparse_attention import (
    answer_position,
    course_summary,
    head_channels,
    measure,
    measure_series,
)

TINY = LMSetup(layers=1, heads=2, width=16, steps=6, batch=8, checkpoints=4)


@pytest.fixture(scope="module")
def shipped():
    return load(DATA)


def test_sentences_name_two_people_and_ask_for_the_other():
    for s in sentences(200, 0, "x"):
        words = s.text.split()
        assert words.count(s.wrong) == 2
        assert words.count(s.answer) == 1
        first = next(w for w in words if w in NAMES)
        assert (first == s.answer) == (s.order == "ABBA")
    assert sentences(5, 0, "x") == sentences(5, 0, "x") != sentences(5, 1, "x")


def test_words_are_tokens():
    words = vocabulary()
    assert len(words) == len(set(words))
    ids, labels = training_batch(8, 0, 1)
    assert ids.shape == labels.shape
    assert (labels[ids == 0] == -100).all()
    text = sentences(1, 0)[0].text
    encoded = tokenizer()(text)["input_ids"]
    assert encoded[0] == 1
    assert [words[i] for i in encoded[1:]] == text.split()
    repeated = ids[-1, 1:17]
    assert torch.equal(repeated[:8], repeated[8:])


def test_the_shipped_model_does_its_task_and_is_sparse(shipped):
    assert sum(f.stat().st_size for f in DATA.iterdir()) < 4_000_000
    point = measure(shipped, sentences(60, 1, "held out"), "shipped", 0)
    assert point.accuracy > 0.95
    best = max(point.heads.values(), key=lambda h: h["attention"])
    assert best["attention"] > 0.4
    assert best["sparsity"] < best["rotated"]
    # Its singular values alone do that: Gaussian streams through the same weights are as sparse.
    assert best["sparsity"] > best["isotropic"]
    assert set(point.claims) == set(point.heads)
    assert not any(point.claims[head].supported for head in ("L0H3", "L1H3"))


def test_channels_of_the_model_sum_to_its_scores(shipped):
    prompt = sentences(1, 3)[0].text
    captured = shipped.capture([prompt], queries=-1, want=("q", "k", "scores"))
    for layer in range(shipped.n_layers):
        part = slice(layer * shipped.n_heads, (layer + 1) * shipped.n_heads)
        c = head_channels(shipped, layer)
        q, k = captured.q[0, part].double(), captured.k[0, part].double()
        scores = channel_logits(c, q[:, 0], k, scale=float(captured.scale[0])).sum(-1)
        torch.testing.assert_close(scores, captured.scores[0, part, 0].double(), atol=1e-4, rtol=1e-4)


def test_training_resumes_exactly_and_is_measured(tmp_path):
    from safetensors.torch import load_file

    with RunFolder(tmp_path / "a", "toy training", {}) as folder:
        whole = train_lm(TINY, folder)
        losses = losses_of(folder)
    assert [p.name for p in whole] == [f"step-{s:06d}" for s in TINY.saved_steps()]
    with RunFolder(tmp_path / "b", "toy training", {}) as folder:
        train_lm(TINY, folder, stop_after=TINY.saved_steps()[-2])
    with RunFolder(tmp_path / "b", "toy training", {}) as folder:
        again = train_lm(TINY, folder)
        assert losses_of(folder) == losses
    assert [step for step, _ in losses] == list(range(1, TINY.steps + 1))
    for a, b in zip(whole, again, strict=True):
        left, right = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
        assert all(torch.equal(left[k], right[k]) for k in left)
    points = measure_series([whole[0], whole[-1]], prompts=6)
    assert [p.step for p in points] == [0, TINY.steps]
    assert 0 < course_summary(points)["sparsity_last"] <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LMSetup(steps=0), "0 steps"),
        (lambda: LMSetup(width=10, heads=4), "width 10"),
        (lambda: measure_series(["one"]), "at least two"),
        (lambda: answer_position(["a", "b"], "mary"), "'mary' is not among"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(HeadwiseError, match=message):
        call()


@pytest.mark.parametrize(
    ("sparsity", "supported", "said"),
    [
        ((0.4, 0.2), 1.0, "Yes, and not by the weights alone"),
        ((0.4, 0.2), 0.25, "Sparser, but not because of features"),
        ((0.2, 0.3), 1.0, "No"),
    ],
)
def test_attention_became_sparse_because_of_features_only_if_it_is_sparser_than_its_nulls(
    sparsity, supported, said
):
    ends = {"sparsity": sparsity, "rotated": (0.4, 0.4), "null": (0.4, 0.3), "supported": (0.0, supported)}
    summary = {f"{kind}_{end}": ends[kind][i] for kind in ends for i, end in enumerate(("first", "last"))}
    assert answer(summary | {"accuracy_last": 0.9}).startswith(f"**{said}.**")
    assert answer(summary | {"accuracy_last": 0.1}).startswith("**Too early to say.**")
