"""The commands: JSON that parses, run folders that continue, one line for what is wrong."""

import json
import re

import pytest
from typer.testing import CliRunner

from headwise.cli.main import main
from headwise.cli.toy import app
from headwise.errors import HeadwiseError
from headwise.model.loading import load as load_module
from headwise.scale.manifest import read_manifest
from headwise.show.kit.figures import figure_table
from headwise.show.toy import payload as draw
from headwise.toy import sparse_attention
from headwise.toy.small_lm import DATA, LMSetup, build, save_model
from headwise.toy.sparse_attention import Point

QUICK = ["payload", "--d-head", "4", "--r1", "1", "--r2", "2", "--steps", "40", "--samples", "600"]


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_payload(tmp_path):
    out = tmp_path / "run"
    first = run(*QUICK, "--out", str(out), "--json")
    document = json.loads(first.stdout)
    (cell,) = document["cells"]
    wanted = "d_head latents r1 r2 accuracy ceiling rank99 rank_null principal_cosine"
    wanted += " closed_form_error swap g_energy"
    assert set(wanted.split()) <= set(cell)
    assert {"none", "z1", "z2", "both", "random_z1", "random_both"} <= set(cell["swap"])
    tables = (out / "cells.json").read_bytes()
    assert "Payload retrieval" in (out / "report.html").read_text()
    again = json.loads(run(*QUICK, "--out", str(out), "--json").stdout)
    assert again["cells"] == document["cells"]
    assert (out / "cells.json").read_bytes() == tables
    assert "1,2" in run(*QUICK).stdout
    # Figures hold the numbers they claim to show.
    assert cell["swap"]["both"]["target"] in [row[2] for row in figure_table(draw.interventions([cell])).rows]
    grid = draw.rank_grid([cell])
    texts = [t for trace in grid.to_dict()["data"] for t in (trace.get("text") or [])]
    assert [str(r) for r in cell["rank99"]] == texts[:2]


def test_alignment(tmp_path):
    out = tmp_path / "run"
    quick = ["alignment", "--seeds", "2", "--steps", "30", "--out", str(out), "--json"]
    document = json.loads(run(*quick).stdout)
    assert len(document["variants"]) == 2
    assert json.loads(run(*quick).stdout)["variants"] == document["variants"]
    page = (out / "report.html").read_text()
    assert "singular vectors" in page and ("Who moves first" in page) == (document["motion"] is not None)
    assert json.loads((out / "variants.json").read_text())["motion"] == document["motion"]
    swept = json.loads(run("alignment", "--sweep", "head", "--seeds", "1", "--steps", "5", "--json").stdout)
    assert [v["head"] for v in swept["variants"]] == [1, 2, 5, 10]
    assert [v["head"] for v in swept["values"]] == [1, 2, 5, 10]
    assert swept["values"][0]["second_to_first_singular_value"] is None
    planted = run("alignment", "--sweep", "interference", "--seeds", "1", "--steps", "2", "--json").stdout
    values = json.loads(planted)["values"]
    assert values[0]["condition"] == pytest.approx(1) and values[0]["theorem_cosine"] == pytest.approx(1)
    assert values[-1]["least_cosine"] <= values[-1]["theorem_cosine"] < values[1]["theorem_cosine"] < 1
    page = tmp_path / "swept"
    lines = run("alignment", "--sweep", "lambda", "--seeds", "2", "--steps", "3", "--out", str(page)).stdout
    assert [line.split()[0] for line in lines.splitlines()[:-2]] == ["lambda", "0.1", "0.3", "1", "3", "10"]
    swept_page = (page / "report.html").read_text()
    assert "(2 per value" in swept_page
    # Pairs of a sweep are told apart by the value that was swept, which every row of their table begins with.
    pairs = swept_page.split("query feature</th>")[1]
    assert (
        re.findall(r"<tr><td class=n[^>]*>([^<]+)</td>", pairs)
        == ["0.1"] * 2 + ["0.3"] * 2 + ["1"] * 2 + ["3"] * 2 + ["10"] * 2
    )
    many = tmp_path / "many"
    run("alignment", "--case", "pairs", "--seeds", "1", "--steps", "2", "--out", str(many))
    assert (many / "report.html").exists()


def test_saving_a_checkpoint_draws_nothing(tmp_path, capfd):
    save_model(build(LMSetup(width=8, heads=2)), tmp_path / "step")
    assert capfd.readouterr() == ("", "")


def test_training_measures_given_checkpoints(tmp_path):
    out = tmp_path / "run"
    given = ["--checkpoints", str(DATA), "--checkpoints", str(DATA)]
    document = json.loads(run("training", *given, "--prompts", "8", "--out", str(out), "--json").stdout)
    assert len(document["checkpoints"]) == 2
    assert document["heads"]
    assert (out / "report.html").exists()


@pytest.fixture
def measured(monkeypatch):
    """Checkpoints by what would be loaded, and the steps that they are drawn at, without the work of measuring."""
    loaded = []
    monkeypatch.setattr(load_module, "load", lambda name, revision=None: loaded.append((name, revision)))
    monkeypatch.setattr(
        sparse_attention, "measure", lambda model, asked, name, step: Point(name, step, 1, {})
    )

    def run_series(*checkpoints):
        points = sparse_attention.measure_series(checkpoints, prompts=2)
        return loaded, [(p.name, p.step) for p in points]

    return run_series


def test_an_at_in_the_name_of_a_folder_is_part_of_the_name(tmp_path, measured):
    folders = [tmp_path / "run@home-5", tmp_path / "me@work" / "step-7"]
    for folder in folders:
        folder.mkdir(parents=True)
    loaded, points = measured(*folders, "org/model@step9")
    assert loaded == [*((str(folder), None) for folder in folders), ("org/model", "step9")]
    assert points == [("run@home-5", 5), ("step-7", 7), ("step9", 9)]


@pytest.mark.parametrize("name", ["step²", "step١٢", "①", "step" + "9" * 5000, "final"])
def test_a_name_without_a_plain_number_is_drawn_at_its_place(measured, name):
    assert measured("org/a@step-3", f"org/a@{name}")[1] == [("step-3", 3), (name, 1)]


@pytest.mark.parametrize("out", [[], ["--out", "run"]])
def test_one_checkpoint_is_refused_at_once(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(load_module, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    assert main(["toy", "training", "--checkpoints", "run@home", *out]) == 2
    line = (
        "headwise: a trajectory over training needs at least two checkpoints, and only 'run@home' was given"
    )
    assert capsys.readouterr().err == f"{line}: give more\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("world", ["payload", "alignment", "training"])
def test_folders_of_others_are_refused(tmp_path, world):
    mine = tmp_path / "mine" / "thesis.tex"
    mine.parent.mkdir()
    mine.write_text("mine")
    quick = {
        "payload": QUICK,
        "alignment": ["alignment", "--seeds", "1", "--steps", "2"],
        "training": ["training", "--checkpoints", str(DATA), "--checkpoints", str(DATA), "--prompts", "4"],
    }[world]
    with pytest.raises(HeadwiseError, match="holds other files"):
        run(*quick, "--out", str(mine.parent))
    assert [p.name for p in mine.parent.iterdir()] == ["thesis.tex"]
    assert mine.read_text() == "mine"
    # What a run states of its files is so, and another kind of run does not take its folder.
    out = tmp_path / "run"
    run(*quick, "--out", str(out))
    found = read_manifest(out)
    assert found.kind == f"toy {world}"
    assert found.files
    found.hold_against(out, found.files)
    other = ["alignment", "--seeds", "1", "--steps", "2"] if world == "payload" else QUICK
    with pytest.raises(HeadwiseError, match=f"holds another run .toy {world}"):
        run(*other, "--out", str(out))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["payload", "--r1", "0"], "invalid value '0' for --r1: it should be greater than or equal to 1"),
        (["payload", "--r2", "65"], "rank 65"),
        (["payload", "--preset", "mine"], "'mine' is not one of 'released', 'paper'"),
        (["payload", "--latents", "x"], "'x' is not one of 'discrete', 'gaussian'"),
        (["payload", "--schedule", "slow"], "'slow' is not one of 'fast', 'paper'"),
        (["payload", "--ranks", "2,b"], "'2,b' is not a list of ranks"),
        (["payload", "--out", "/dev/null/run"], "cannot be written"),
        (["alignment", "--case", "x"], "'x' is not one of 'none', 'pair', 'pairs'"),
        (["alignment", "--out", "/dev/null/run"], "cannot be written"),
        (
            ["training", "--steps", "0"],
            "invalid value '0' for --steps: it should be greater than or equal to 1",
        ),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys):
    assert main(["toy", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
