"""A whole study on a small model: its numbers, its files, resuming, and what it refuses."""

import json
import sys
from dataclasses import asdict
from typing import Any

import pytest
import torch
from words import worded_model

import headwise
from headwise.contrast import study as study_module
from headwise.contrast.attribution import attribute_prompt
from headwise.contrast.bank import FeatureBank
from headwise.contrast.placebo import NULLS
from headwise.contrast.result import FILES, FeaturesResult
from headwise.contrast.rows import ROWS, where
from headwise.contrast.study import find_features
from headwise.errors import HeadwiseError
from headwise.tasks.labelled.binding import binding
from headwise.tasks.labelled.filter import filter

MODEL = worded_model()
SMALL: dict[str, Any] = {"prompts": 40, "test": 12, "scan": 12}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "run"
    return find_features(MODEL, "binding", heads="L1H2,L2H0", through_model=6, out=out, **SMALL), out


def test_a_task_of_ones_own_shows_itself(run):
    task = filter(MODEL.tokenizer, prompts=40, test=6, scan=6)
    found = headwise.find_features(MODEL, task, heads=["L1H2"])
    assert found.chosen == ["L1H2"]
    assert [f.name for f in found.features] == [
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
    document = run[0].to_json()
    whole = {"heads", "features", "alignment", "shapes", "warnings", "seconds", "through_model"}
    assert set(document) == whole
    claim = {"null", "draws", "p", "q", "group", "supported"}
    assert set(document["heads"][0]) == {"head", "score", "ci", "test_score", *claim}
    assert len(document["heads"]) == len(MODEL.heads)
    ranks = {"rank", "rank_energy", "rank_interaction", "rank_null", "saturated"}
    crowding = {"interaction_share", "superposition", "superposition_null", "superposition_high"}
    assert set(document["features"][0]) == {"name", "head", "swap", *ranks, *crowding, *claim}
    nulls = {"placebo_share", "placebo_high", "p_placebo", "p_covariance", "percentile", "p_uniform"}
    swap = {"original", "target", "share_of_full", "prompts", "clusters", *nulls}
    assert set(document["features"][0]["swap"]) == swap
    about = {
        "head",
        "name",
        "measure",
        "by",
        "classes",
        "prompts",
        "value",
        "shuffled_value",
        "placebo_value",
    }
    assert set(document["alignment"][0]) == {*about, "p_shuffled", "p_placebo", *claim}
    json.dumps(document, allow_nan=False)


def test_prediction_and_edited_pass_agree(run):
    errors = [a.error for a in run[0].answers if a.error is not None]
    assert len(errors) == 2 * 5
    assert max(errors) < 1e-5


def test_swaps_behave(run):
    found = run[0]
    for head in found.chosen:
        clean, full = (where(found.swaps, head=head, condition=c)[0] for c in ("none", "full"))
        assert clean.original == pytest.approx(full.target, abs=1e-6)
        assert clean.target == pytest.approx(full.original, abs=1e-6)
        for f in where(found.features, head=head):
            doses = where(found.doses, head=head, name=f.name)
            assert doses[0].original == pytest.approx(clean.original, abs=1e-9)
            assert doses[-1].share == pytest.approx(f.share_of_full, abs=1e-9)
            conditions = {s.condition for s in where(found.swaps, head=head, name=f.name)}
            assert conditions >= {
                "swap",
                "query",
                "both sides",
                "ablate keys",
                "ablate query",
                "principal components",
                "mean difference",
            }
            for null in NULLS:
                assert len(where(found.draws, head=head, name=f.name, against=null)) == 200


def test_what_is_printed_is_what_was_swapped_and_claimed(run):
    found = run[0]
    assert len({f.q_value for f in found.features}) >= 1
    for row in found.summary()[1:]:
        (f,) = where(found.features, head=row[0], name=row[1])
        assert int(row[2]) == f.rank == found.bank.get(f.head, f.name).rank
        assert row[-1] == ("yes" if f.supported else "no")
        assert found.bank.get(f.head, f.name).supported == f.supported
        assert f.p_value == max(f.p_placebo, f.p_covariance) <= f.q_value
        shares = torch.tensor(
            [d.share for d in where(found.draws, head=f.head, name=f.name, against="placebo")]
        )
        assert f.p_placebo == pytest.approx((1 + int((shares >= f.share_of_full).sum())) / 201)
        assert f.placebo_share == pytest.approx(float(shares.mean()), rel=1e-5)
        if not f.union:
            (chosen,) = [c for c in where(found.curves, head=f.head, name=f.name) if c.chosen]
            assert chosen.rank == f.rank
            best = max(c.share - c.placebo_high for c in where(found.curves, head=f.head, name=f.name))
            assert chosen.share - chosen.placebo_high == best


def test_a_category_is_tested_on_swaps_that_involve_it():
    task = filter(MODEL.tokenizer, prompts=40, test=20, scan=6)
    found = find_features(MODEL, task, heads=["L1H2"])
    for f in found.features:
        assert f.prompts == len(task.involved(f.name))
        assert f.prompts % 2 == 0  # both prompts of a pair involve the same two categories
        wordings = {task.test.examples[i].groups["template"] for i in task.involved(f.name)}
        assert f.clusters == len(wordings)
    assert found.heads[0].clusters <= 6
    tested = [h.test_score for h in found.heads]
    assert sum(score is not None for score in tested) == 1


def test_explained_and_superposition_have_null_values(run):
    found = run[0]
    for f in found.features:
        assert f.superposition is not None and 0 <= f.superposition_null <= f.superposition_high < 1
    assert all(row.explained_null is not None for row in found.attribution)
    rows = where(found.attribution, head="L1H2", method="shapley")
    ((null, high),) = {(row.explained_null, row.explained_high) for row in rows}
    assert null <= high <= 1 + 1e-9


def test_a_run_is_read_back_and_not_run_again(run, monkeypatch):
    found, out = run
    monkeypatch.setattr(study_module._Study, "run", lambda *_: pytest.fail("ran again"))
    again = find_features(MODEL, "binding", heads="L1H2,L2H0", through_model=6, out=out, **SMALL)
    for name in ROWS:
        assert getattr(again, name) == getattr(found, name)
    assert torch.equal(again.gallery.k, found.gallery.k)
    assert not (out / ".headwise-work").exists()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["config"]["weight_hash"] == MODEL.weight_hash
    assert manifest["config"]["seed"] == 0
    assert {"torch", "transformers", "python"} <= set(manifest["versions"])
    with pytest.raises(HeadwiseError, match="holds another run"):
        find_features(MODEL, "binding", heads="L1H2", out=out, **SMALL)


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path, monkeypatch, run):
    monkeypatch.setattr(study_module, "SHARD", 16)

    def go(out, **options):
        return find_features(
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


def test_a_result_saves_itself_as_the_study_does(run, tmp_path):
    found, out = run
    headwise.FeaturesResult.load(found.save(tmp_path / "again"))
    whole = find_features(MODEL, "binding", heads="L1H2,L2H0", through_model=6, **SMALL)
    whole.save(tmp_path / "memory")
    for name in (*FILES, "manifest.json"):
        for copy in ("again", "memory"):
            assert (tmp_path / copy / name).read_bytes() == (out / name).read_bytes(), name
    with pytest.raises(HeadwiseError, match="holds another run"):
        find_features(MODEL, "binding", heads="L1H2", **SMALL).save(out)


def test_tables_become_frames_or_one_line(run, monkeypatch):
    made = {}

    class Frames:
        """Stands for pandas, which is an extra."""

        @staticmethod
        def DataFrame(rows, columns):
            made[tuple(columns)] = rows
            return columns

    monkeypatch.setitem(sys.modules, "pandas", Frames)
    frames = run[0].to_pandas()
    assert list(frames) == list(ROWS)
    for table, columns in frames.items():
        assert made[tuple(columns)] == [asdict(row) for row in getattr(run[0], table)]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HeadwiseError, match=r"pip install 'headwise\[pandas\]'"):
        run[0].to_pandas()


def test_a_head_whose_keys_make_no_difference_is_named(monkeypatch):
    """Shares are of what swapping whole keys does: where that is nothing, there is nothing to divide by."""
    monkeypatch.setattr(study_module, "choose_heads", lambda *_: [headwise.Head(0, 1)])
    with pytest.raises(HeadwiseError, match="swapping whole keys changes nothing in L0H1, so no feature"):
        find_features(MODEL, "binding", **SMALL)


def test_test_prompts_of_one_cluster_are_refused():
    """Two prompts of one scene: every interval over them would be a point."""
    said = (
        r"the test prompts of 'binding' \(2\) are a single pair: give more, so that what is found can be told"
    )
    with pytest.raises(HeadwiseError, match=said):
        find_features(MODEL, "binding", prompts=8, test=2, scan=4)


def test_chosen_heads_whose_keys_make_no_difference_are_skipped(monkeypatch, tmp_path):
    idle, good = headwise.Head(0, 1), [headwise.Head(1, 2), headwise.Head(2, 0)]
    named = find_features(MODEL, "binding", heads=good, **SMALL)
    chosen = [good[0], idle, good[1]]
    monkeypatch.setattr(study_module, "choose_heads", lambda *_: chosen)
    found = find_features(MODEL, "binding", out=tmp_path / "run", **SMALL)
    skipped = "swapping whole keys changes nothing in L0H1, so no feature can be tested there: skipped"
    assert skipped in found.warnings
    assert not any("L0H1" in warning for warning in found.warnings if warning != skipped)
    assert sorted(found.chosen) == sorted(map(str, good))
    assert {h.head for h in found.heads if h.chosen} == set(found.chosen)
    for table in (
        "features",
        "swaps",
        "draws",
        "doses",
        "angles",
        "attribution",
        "alignment",
        "spectra",
        "growth",
    ):
        assert {row.head for row in getattr(found, table)} == {row.head for row in getattr(named, table)}, (
            table
        )
    assert torch.equal(found.gallery.k, named.gallery.k)


def test_bank_is_saved_loaded_and_tied_to_its_model(run):
    found, out = run
    bank = FeatureBank.load(out)
    assert bank.heads == found.bank.heads
    for one, two in zip(bank, found.bank, strict=True):
        assert torch.equal(one.key.basis, two.key.basis)
        assert (one.name, one.head, one.rank_energy, one.rank_null) == (
            two.name,
            two.head,
            two.rank_energy,
            two.rank_null,
        )
    assert bank.require(MODEL) is bank
    with pytest.raises(HeadwiseError, match="L0H0 has no features in this bank"):
        bank.of("L0H0")
    with pytest.raises(HeadwiseError, match="has no feature 'colour'"):
        bank.get("L1H2", "colour")
    from tiny import tiny

    with pytest.raises(
        HeadwiseError, match=r"this bank of features is of 'tiny-worded' \(weights [0-9a-f]{12}\), not of"
    ):
        bank.require(tiny("llama"))


def test_attribution_sums_to_the_models_own_logits(run):
    bank = run[0].bank.with_unsupported()
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
        find_features(broken, "binding", heads="L1H0", out=out, **SMALL)
    assert not out.exists()
    with pytest.raises(HeadwiseError, match="L9H9 does not exist"):
        find_features(MODEL, "binding", heads="L9H9", out=out, **SMALL)
    with pytest.raises(
        HeadwiseError, match="draws=20 subspaces are too few to compare with: give at least 100"
    ):
        find_features(MODEL, "binding", draws=20, out=out, **SMALL)
    assert not out.exists()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(HeadwiseError, match="cannot be written"):
        find_features(MODEL, "binding", out=blocked / "run", **SMALL)


def test_a_finished_run_is_needed_to_load(tmp_path):
    with pytest.raises(HeadwiseError, match="holds no finished run"):
        FeaturesResult.load(tmp_path)
    with pytest.raises(HeadwiseError, match="there are no features at"):
        FeatureBank.load(tmp_path)
    (tmp_path / "features.safetensors").write_bytes(b"not a bank")
    with pytest.raises(HeadwiseError, match="is not a feature bank"):
        FeatureBank.load(tmp_path)


@pytest.mark.slow
def test_shards_of_the_test_change_nothing(run, monkeypatch):
    """Test prompts cut into two shards, the second one smaller, both with vectors for pictures."""
    monkeypatch.setattr(study_module, "SHARD", 8)
    cut = find_features(MODEL, "binding", heads="L1H2,L2H0", through_model=6, **SMALL)
    assert cut.gallery.q.shape == run[0].gallery.q.shape
    for mine, whole in zip(cut.swaps, run[0].swaps, strict=True):
        assert (mine.head, mine.name, mine.condition) == (
            whole.head,
            whole.name,
            whole.condition,
        )
        assert mine.share == pytest.approx(whole.share, abs=1e-4)
