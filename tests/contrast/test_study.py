"""A whole study on a small model: its numbers, its files, resuming, and what it refuses."""

import json
from typing import Any

import pytest
import torch
from words import worded_model

import headwise
from headwise.contrast import study as study_module
from headwise.contrast.bank import FeatureBank
from headwise.contrast.example import attribute_prompt
from headwise.contrast.result import TABLES, ContrastRun
from headwise.contrast.study import contrast
from headwise.errors import HeadwiseError
from headwise.tasks.labelled.binding import binding
from headwise.tasks.labelled.filter import filter

MODEL = worded_model()
SMALL: dict[str, Any] = {"prompts": 40, "test": 12, "scan": 12}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "run"
    return contrast(MODEL, "binding", heads="L1H2,L2H0", through_model=6, out=out, **SMALL), out


def test_the_package_is_also_the_function(run):
    from headwise.contrast import energy_rank

    assert headwise.contrast.energy_rank is energy_rank  # pyright: ignore[reportFunctionMemberAccess]
    task = filter(MODEL.tokenizer, prompts=40, test=6, scan=6)
    found = headwise.contrast(MODEL, task, heads=["L1H2"])
    assert found.chosen == ["L1H2"]
    assert [f["name"] for f in found.features] == [
        "fruits",
        "animals",
        "vehicles",
        "drinks",
        "countries",
        "category",
    ]
    assert "fruits" in repr(found)
    assert "<table" in found._repr_html_()


def test_document_has_exactly_the_promised_keys(run):
    document = run[0].document()
    assert set(document) == {"heads", "features", "warnings", "seconds", "through_model"}
    assert set(document["heads"][0]) == {"head", "score", "ci", "q_value"}
    assert len(document["heads"]) == len(MODEL.heads)
    wanted = {"name", "head", "rank_energy", "rank_null", "saturated", "interaction_share", "swap"}
    assert set(document["features"][0]) == wanted
    swap = {"original", "target", "share_of_full", "percentile", "p_value"}
    assert set(document["features"][0]["swap"]) == swap
    json.dumps(document, allow_nan=False)


def test_prediction_and_edited_pass_agree(run):
    errors = [a["error"] for a in run[0].answers if a["error"] is not None]
    assert len(errors) == 2 * 5
    assert max(errors) < 1e-5


def test_swaps_behave(run):
    found = run[0]
    for head in found.chosen:
        clean, full = (found.of("swaps", head=head, condition=c)[0] for c in ("none", "full"))
        assert clean["original"] == pytest.approx(full["target"], abs=1e-6)
        assert clean["target"] == pytest.approx(full["original"], abs=1e-6)
        for f in found.of("features", head=head):
            doses = found.of("doses", head=head, name=f["name"])
            assert doses[0]["original"] == pytest.approx(clean["original"], abs=1e-9)
            assert doses[-1]["share"] == pytest.approx(f["share_of_full"], abs=1e-9)
            conditions = {s["condition"] for s in found.of("swaps", head=head, name=f["name"])}
            assert conditions >= {"swap", "query", "both sides", "ablate keys", "ablate query",
                                  "principal components", "mean difference"}  # fmt: skip
            assert len(found.of("draws", head=head, name=f["name"])) == 100


def test_a_run_is_read_back_and_not_run_again(run, monkeypatch):
    found, out = run
    monkeypatch.setattr(study_module._Study, "run", lambda *_: pytest.fail("ran again"))
    again = contrast(MODEL, "binding", heads="L1H2,L2H0", through_model=6, out=out, **SMALL)
    for name in TABLES:
        assert getattr(again, name) == getattr(found, name)
    assert torch.equal(again.vectors["k"], found.vectors["k"])
    assert not (out / ".headwise-work").exists()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["config"]["weight_hash"] == MODEL.weight_hash
    assert manifest["config"]["seed"] == 0
    assert {"torch", "transformers", "python"} <= set(manifest["versions"])
    with pytest.raises(HeadwiseError, match="holds another run"):
        contrast(MODEL, "binding", heads="L1H2", out=out, **SMALL)


def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path, monkeypatch, run):
    monkeypatch.setattr(study_module, "SHARD", 16)

    def go(out, **options):
        return contrast(
            MODEL, "binding", heads="L1H2", out=out, contrasts=("order", "lexical"), **SMALL, **options
        )

    go(tmp_path / "whole")

    def stop(stage, done, total):
        if stage == "fitting lexical" and done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "parts", progress=stop)
    kept = sorted(p.name for p in (tmp_path / "parts" / ".headwise-work").glob("*.chunk"))
    assert kept[-1] == "002-000000000.chunk"
    seen = []
    go(tmp_path / "parts", progress=lambda stage, done, total: seen.append((stage, done)))
    for name in (
        "heads",
        "features",
        "swaps",
        "draws",
        "doses",
        "spectra",
        "angles",
        "growth",
        "attribution",
    ):
        one, two = ((tmp_path / f / f"{name}.parquet").read_bytes() for f in ("whole", "parts"))
        assert one == two, name
    one, two = ((tmp_path / f / "features.safetensors").read_bytes() for f in ("whole", "parts"))
    assert one == two


def test_bank_is_saved_loaded_and_tied_to_its_model(run):
    found, out = run
    bank = FeatureBank.load(out)
    assert bank.heads == found.bank.heads
    for one, two in zip(bank, found.bank, strict=True):
        assert torch.equal(one.key.basis, two.key.basis)
        assert (one.name, one.head, one.rank_energy, one.rank_null) == (
            two.name, two.head, two.rank_energy, two.rank_null)  # fmt: skip
    assert bank.require(MODEL) is bank
    with pytest.raises(HeadwiseError, match="L0H0 has no features in this bank"):
        bank.of("L0H0")
    with pytest.raises(HeadwiseError, match="has no feature 'colour'"):
        bank.get("L1H2", "colour")
    from tiny import tiny

    with pytest.raises(HeadwiseError, match="these features belong to 'tiny-worded'"):
        bank.require(tiny("llama"))


def test_attribution_sums_to_the_models_own_logits(run):
    bank = run[0].bank
    prompt = list(binding(MODEL.tokenizer, prompts=4).test.examples[0].tokens)
    seen = MODEL.capture([prompt], heads=bank.heads, queries=-1, want=("scores",))
    for place, head in enumerate(bank.heads):
        for split in attribute_prompt(MODEL, prompt, bank)[head].values():
            total = split.parts.sum(0) + split.residual
            assert (total - split.total).abs().max() < 1e-9
            assert (split.total - seen.scores[0, place, 0]).abs().max() < 1e-5


def test_wrong_input_leaves_nothing_behind(tmp_path):
    broken = worded_model.__wrapped__()
    with torch.no_grad():
        broken.hf.model.layers[1].self_attn.k_proj.weight[0] = float("nan")
    out = tmp_path / "run"
    with pytest.raises(HeadwiseError, match="NaN or infinite"):
        contrast(broken, "binding", out=out, **SMALL)
    assert not out.exists()
    with pytest.raises(HeadwiseError, match="L9H9 does not exist"):
        contrast(MODEL, "binding", heads="L9H9", out=out, **SMALL)
    with pytest.raises(HeadwiseError, match="at least 100"):
        contrast(MODEL, "binding", draws=20, out=out, **SMALL)
    assert not out.exists()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(HeadwiseError, match="cannot be written"):
        contrast(MODEL, "binding", out=blocked / "run", **SMALL)


def test_a_finished_run_is_needed_to_load(tmp_path):
    with pytest.raises(HeadwiseError, match="holds no finished run"):
        ContrastRun.load(tmp_path)
    with pytest.raises(HeadwiseError, match="there are no features at"):
        FeatureBank.load(tmp_path)
    (tmp_path / "features.safetensors").write_bytes(b"not a bank")
    with pytest.raises(HeadwiseError, match="is not a feature bank"):
        FeatureBank.load(tmp_path)


def test_shards_of_the_test_change_nothing(run, monkeypatch):
    """Test prompts cut into two shards, the second one smaller, both with vectors for pictures."""
    monkeypatch.setattr(study_module, "SHARD", 8)
    cut = contrast(MODEL, "binding", heads="L1H2,L2H0", through_model=6, **SMALL)
    assert cut.vectors["q"].shape == run[0].vectors["q"].shape
    for mine, whole in zip(cut.swaps, run[0].swaps, strict=True):
        assert (mine["head"], mine["name"], mine["condition"]) == (
            whole["head"],
            whole["name"],
            whole["condition"],
        )
        assert mine["share"] == pytest.approx(whole["share"], abs=1e-4)
