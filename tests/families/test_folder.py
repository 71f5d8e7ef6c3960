"""The folder of an analysis: an older analysis gives way to it, and nothing else does."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from family_runs import planted_run
from run_folders import one_line
from toy_answers import contents

from headwise.families.result import FamiliesResult
from headwise.families.study import find_families
from headwise.scale.manifest import read_manifest
from headwise.survey.records import CircuitRun


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CircuitRun:
    return planted_run(tmp_path_factory.mktemp("planted") / "run", 24)


@pytest.mark.slow
def test_an_older_analysis_gives_way(run: CircuitRun, tmp_path: Path) -> None:
    find_families(run, out=tmp_path / "one")
    found = read_manifest(tmp_path / "one")
    assert found.files is not None
    assert {"families.json", "members.parquet"} <= set(found.files)
    found.hold_against(tmp_path / "one", found.files)
    first = contents(tmp_path / "one")
    # An empty table is not there, and one of an earlier analysis is not left.
    stray = tmp_path / "one" / "causality.parquet"
    assert not stray.exists()
    stray.write_bytes(b"old")
    (tmp_path / "one" / "notes.txt").write_text("mine")
    find_families(run, out=tmp_path / "one", distance="edges")
    assert read_manifest(tmp_path / "one").config["distance"] == "edges"
    assert not stray.exists()
    assert (tmp_path / "one" / "notes.txt").read_text() == "mine"
    find_families(run, out=tmp_path / "one")
    assert contents(tmp_path / "one") == first | {"notes.txt": b"mine"}


def test_folders_of_others_are_refused(run: CircuitRun, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "heads.parquet").write_text("mine")
    assert "holds other files" in one_line(lambda: find_families(run, out=tmp_path / "mine"))
    assert contents(tmp_path / "mine") == {"heads.parquet": b"mine"}
    before = contents(run.paths[0])
    assert "holds another run (circuits" in one_line(lambda: find_families(run, out=run.paths[0]))
    assert contents(run.paths[0]) == before


@pytest.mark.slow
def test_an_analysis_comes_back_from_its_folder(run: CircuitRun, tmp_path: Path) -> None:
    found = find_families(run, out=tmp_path / "one")
    again = FamiliesResult.load(tmp_path / "one")
    assert again.to_json() == {**found.to_json(), "seconds": 0.0}
    assert again.tables == found.tables
    assert np.array_equal(again.distances, found.distances)
    assert again.groups.keys() == found.groups.keys()
    again.save(tmp_path / "two")
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert "representative" in found._repr_html_()
    # Where the circuits were moved, or others have taken their place.
    moved = tmp_path / "moved"
    shutil.copytree(run.paths[0], moved)
    assert len(FamiliesResult.load(tmp_path / "one", moved).run) == len(run)
    other = planted_run(tmp_path / "other", 30)
    told = one_line(lambda: FamiliesResult.load(tmp_path / "one", other.paths[0]))
    assert "are not those that" in told
    (tmp_path / "one" / "result.safetensors").write_bytes(b"")
    assert "result.safetensors" in one_line(lambda: FamiliesResult.load(tmp_path / "one"))
