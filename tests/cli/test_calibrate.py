"""``headwise calibrate``, and balanced channels from what it stored: whole commands, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny import VARIANTS, prompts_of, tiny
from toy_answers import small_model

import headwise
from headwise.bases.balanced import HeadMoments
from headwise.bases.basis import Bases, Basis
from headwise.bases.calibrate import calibrate, calibrated
from headwise.bases.calibration import Calibration, moments_folder, store
from headwise.cli import main as cli
from headwise.corpus import Corpus
from headwise.errors import HeadwiseError
from headwise.model.model import Model
from headwise.model.stream import split
from headwise.toy.language import sentences
from headwise.tracing.writes import PromptWrites

TEXTS = tuple(dict.fromkeys(s.text for s in sentences(120, 0, "calibration")))[:60]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


def _random_moments(model: Model, seed: int = 0, cells: int = 10_000) -> Calibration:
    """Moments of made-up queries and keys with a mean: what any calibration has, for models without a tokenizer."""
    g = torch.Generator().manual_seed(seed)
    shape = (model.n_layers, model.n_heads, model.d_head)
    mean = torch.randn(shape, generator=g, dtype=torch.float64)
    spread = [torch.randn(*shape, model.d_head, generator=g, dtype=torch.float64) for _ in range(2)]
    query = spread[0] @ spread[0].mT + mean[..., :, None] * mean[..., None, :]
    ones = torch.ones(shape, dtype=torch.float64)
    return Calibration(
        model=model.name,
        weight_hash=model.weight_hash,
        corpus="made up",
        digest=f"{seed:064d}",
        texts=1,
        kinds=("a", "b"),
        moments=HeadMoments(torch.full(shape[:2], float(cells)), mean, query, spread[1] @ spread[1].mT),
        halves=ones,
        across=ones,
        outputs=ones,
    )


def test_the_command_measures_once_and_is_done_the_second_time(
    corpus: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = small_model()
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: model)
    assert cli.main(["calibrate", "--corpus", str(corpus), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert 50 <= document["corpus"]["texts"] <= len(TEXTS)  # near-duplicates are left out
    assert Path(document["file"]).is_file() and Path(document["file"]).parent == moments_folder()
    assert not [p for p in moments_folder().iterdir() if p.name.startswith("work")]
    monkeypatch.setattr(
        "headwise.bases.calibrate.collect_moments",
        lambda *_: pytest.fail("measured although it was stored"),
    )
    assert cli.main(["calibrate", "--corpus", str(corpus)]) == 0
    printed = capsys.readouterr().out
    assert "attended cells per head" in printed and "saved: " in printed


def test_balanced_channels_come_from_what_was_stored(corpus: Path) -> None:
    model = small_model()
    with pytest.raises(HeadwiseError, match=r"no moments of .*headwise calibrate"):
        Bases.of(model, "balanced")
    found, _ = calibrated(model, corpus)
    assert Bases.of(model, "balanced").name == Bases.of(model, "balanced", calibration=found).name
    circuit = headwise.trace(model, TEXTS[0], basis="balanced")
    assert circuit.basis == Bases.of(model, "balanced").name
    # a circuit of other moments is not taken for one of these
    store(calibrate(model, Corpus("other", TEXTS[:30], tuple("ab"[i % 2] for i in range(30)))))
    edges = [edge for edge in circuit.edges if edge.channels][:1]
    if edges:
        with pytest.raises(HeadwiseError, match="was made in another basis"):
            headwise.intervene(model, circuit, [edges], draws=1)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_balanced_coordinates_sum_to_the_logits(name: str) -> None:
    model = tiny(name, torch.float64)
    bases = Bases.of(model, "balanced", calibration=_random_moments(model))
    up = PromptWrites(split(model, prompts_of(9)[0]), 0, bases)
    for head in model.heads:
        query_map, key_map = up.maps_at(head, 7)
        q, k = up.q[head.layer, head.index, 7].double(), up.k[head.layer, head.index // up.group].double()
        assert (((q @ query_map) * (k @ key_map.mT)).sum(-1) - k @ q).abs().max() < 1e-9


def test_salience_comes_first_and_no_other_channel_has_a_mean() -> None:
    model = tiny("llama", torch.float64)
    moments = _random_moments(model)
    basis = Bases.of(model, "balanced", calibration=moments).layer(1)
    mean = (moments.moments.query_mean[1][:, None] @ basis.query_map)[:, 0]
    assert bool((mean[:, 0] > 0).all())
    assert mean[:, 1:].abs().max() < 1e-9


def test_a_head_of_too_few_cells_keeps_its_singular_channels_and_says_so() -> None:
    model = tiny("llama", torch.float64)
    few = _random_moments(model, 1, cells=3 * model.d_head)
    basis = Bases.of(model, "balanced", calibration=few).layer(1)
    assert bool(basis.fell_back.all())
    assert torch.equal(basis.query_map, Bases.of(model).layer(1).query_map)
    some = Bases.of(model, "balanced", calibration=_random_moments(model, 2, cells=6 * model.d_head)).layer(1)
    assert bool(some.few.all()) and not bool(some.fell_back.any())


def test_channels_that_two_corpora_do_not_share_are_not_stable() -> None:
    model = tiny("llama", torch.float64)
    moments = _random_moments(model, 3)
    moments.across[1, 0, 3] = 0.5
    moments.halves[1, 0, 4] = 0.89
    stable = Basis.of(model, "L1H0", kind="balanced", calibration=moments).stable
    assert [i for i, kept in enumerate(stable.tolist()) if not kept] == [3, 4]


def test_moments_that_give_no_invertible_basis_are_refused() -> None:
    model = tiny("llama", torch.float64)
    moments = _random_moments(model, 4)
    moments.moments.query[2, 1] = 0.0
    moments.moments.key[2, 1] = 0.0
    with pytest.raises(HeadwiseError, match=r"moments of L2H1 give no basis that can be inverted") as error:
        Bases.of(model, "balanced", calibration=moments).layer(2)
    assert "\n" not in str(error.value)


def test_moments_of_another_model_are_refused() -> None:
    with pytest.raises(
        HeadwiseError,
        match=r"^this calibration is of 'tiny-qwen2' .* not of 'tiny-llama' .*calibrate this model",
    ):
        Bases.of(tiny("llama"), "balanced", calibration=_random_moments(tiny("qwen2")))


@pytest.mark.real
def test_a_corpus_in_another_script_is_refused(smollm2: Model) -> None:
    chinese = Corpus(
        "zh", ("注意力机制使模型能够关注输入序列的不同部分，从而更好地理解上下文。",) * 20, ("zh",) * 20
    )
    with pytest.raises(HeadwiseError, match=r"in a script that .* hardly knows") as error:
        calibrate(smollm2, chinese)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "nowhere.jsonl"], "there is no corpus at 'nowhere.jsonl'"),
        (["--texts", "2"], "--texts"),
        (["--corpus", "."], "has no .txt or .md file"),
    ],
)
def test_bad_options_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["calibrate", *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
