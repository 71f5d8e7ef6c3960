"""``headwise features``, ``heads`` and ``explain --row`` as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from words import worded_model

from headwise.cli.main import main
from headwise.model.model import Model

SMALL = ["--prompts", "40", "--test", "12", "--scan", "12"]


@pytest.fixture(autouse=True)
def _loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.model.loading.load.load", lambda *_, **__: worded_model())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "binding"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwise.model.loading.load.load", lambda *_, **__: worded_model())
        asked = ["features", "binding", *SMALL, "--heads", "L1H2", "--out", str(out)]
        assert main([*asked, "--through-model", "--answers", "4"]) == 0
    return out


def test_a_run_folder_holds_everything(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    tables = {f"{name}.parquet" for name in ("heads", "features", "swaps")}
    assert names >= {"manifest.json", "features.safetensors", "report.html", "features.json", *tables}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Head L1H2" in page
    assert len(page.encode()) < 2_000_000
    assert page.count("<details class=fold ") == 1
    # It loads nothing and sends nowhere: by its own policy, and by what is in it.
    assert page.count("http-equiv") == 1
    assert """http-equiv="Content-Security-Policy" content="default-src 'none';""" in page
    assert "connect-src" not in page
    assert 'src="http' not in page


def test_json_is_one_document_and_progress_goes_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["features", "filter", "--prompts", "40", "--test", "8", "--scan", "10", "--json"]
    assert main([*arguments, "--heads", "1.2"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert set(document) == {"heads", "features", "alignment", "shapes", "warnings", "seconds"}
    assert [f["name"] for f in document["features"]][-1] == "category"
    *parts, union = document["features"]
    assert union["rank_energy"] <= sum(part["rank"] for part in parts)
    assert "finding heads" in printed.err


def test_heads_ranks_every_head(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["heads", "binding", "--prompts", "18", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["heads"]) == len(worded_model().heads)
    wanted = {"head", "score", "ci", "n", "clusters", "accuracy", "ratio", "mass", "rank", "rank_ci"}
    claimed = {"null", "draws", "p", "q", "group", "supported"}
    assert set(document["heads"][0]) == wanted | claimed, sorted(document["heads"][0])
    assert main(["heads", "filter", "--prompts", "10", "--top", "3"]) == 0
    shown = capsys.readouterr().out
    assert "ratio" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_a_row_of_logits_is_split_into_bars_that_sum(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = "The hat is in Box A. The pen is in Box B. The hat is in Box"
    page = tmp_path / "bars.html"
    row = ["explain", prompt, "--row", "--features", str(folder)]
    # Weights drawn at random have no feature that its swaps support.
    assert main(row) == 2
    assert "is supported by its swaps" in capsys.readouterr().err
    row.append("--unsupported")
    assert main([*row, "--html", str(page), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["logits"]
    for method in ("sequential", "shapley"):
        for position in range(3, 10):
            of = {
                r["feature"]: r["logit"] for r in rows if r["position"] == position and r["method"] == method
            }
            assert sum(v for k, v in of.items() if k != "total") == pytest.approx(of["total"], abs=1e-5)
    assert page.exists()
    assert main([*row, "--head", "L1H2"]) == 0
    shown = capsys.readouterr().out
    assert "of their variation explained" in shown
    assert "'hat'" in shown
    # With a head, every key that counts is split by writer and by feature, too.
    assert "Which keys" in shown and "unexplained" in shown
    assert main([*row, "--head", "L1H2", "--html", str(page), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["head"] == "L1H2" and document["logits"] and document["features"]["parts"]
    assert "Named features" in page.read_text()


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {
            "prompt": f"The {e} is in Box [[a:A]]. The pen is in Box [[b:B]]. The {e} is in Box",
            "positive": ["a"],
            "negative": ["b"],
            "groups": {"entity": e},
        }
        for e in ["hat", "jam", "cup", "key", "ring", "coin", "book", "lamp", "shoe", "sock", "ball", "kite"]
    ]
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    assert main(["features", str(file), "--heads", "L0H1", "--out", str(tmp_path / "run")]) == 0
    assert "L0H1" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["features", "bindings"], "there is no task 'bindings'"),
        (["heads", "nowhere.jsonl"], "there is no file 'nowhere.jsonl'"),
        (["features", "binding", "--prompts", "1"], "1 prompts are too few"),
        (["features", "binding", *SMALL, "--heads", "L9H9"], "L9H9 does not exist"),
        (["features", "binding", *SMALL, "--heads", "first"], "'first' is not a head"),
        (["features", "binding", *SMALL, "--out", "/proc/nowhere"], "'/proc/nowhere' cannot be written"),
        (["features", "binding", *SMALL, "--draws", "9"], "--draws"),
        (["features", "filter", "--pairs", "4"], "the task 'filter' does not take --pairs"),
        (["explain", "The hat", "--row", "--features", "/nowhere"], "there are no features at"),
        (["explain", "The hat", "--row", "--method", "x"], "'x' is not one of"),
    ],
)
def test_wrong_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) == 1
    assert message in printed.err


@pytest.mark.real
def test_the_default_models_binding_head(smollm2: Model) -> None:
    """L18H6 finds the right one of nine boxes far beyond chance; swaps of its features beat random ones."""
    from headwise.contrast.study import find_features

    run = find_features(
        smollm2, "binding", heads="L18H6", prompts=54, test=24, scan=36, contrasts=("lexical",)
    )
    scores = {h.head: h for h in run.heads}
    assert scores["L18H6"].score > 0.3
    assert scores["L18H6"].q_value < 0.05
    assert "L18H6" in [h.head for h in run.heads[:4]]
    (lexical,) = run.features
    assert lexical.rank <= 9
    # Few prompts fit a weaker subspace than the reported run's: it must beat random ones, not reach its share.
    assert lexical.share_of_full > lexical.random_share_99
    assert lexical.percentile >= 99


@pytest.mark.real
def test_a_real_process(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "headwise.cli.main", "heads", "filter", "--prompts", "12", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["heads"]) == 270
    assert "L22H4" in [h["head"] for h in document["heads"][:10]]
