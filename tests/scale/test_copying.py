"""Finished runs copied elsewhere: whole or not at all, and never over something else."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from toy_answers import contents

from headwise.cli.main import main
from headwise.errors import HeadwiseError
from headwise.scale.copying import copy_run
from headwise.scale.folder import RunFolder


def made(path: Path, *, finished: bool = True) -> Path:
    with RunFolder(path, "features", {"seed": 0}) as folder:
        folder.write_json("features.json", {"a": 1})
        if finished:
            folder.finish("features.json")
    return path


def test_a_copy_holds_the_same_bytes_and_stays_a_run(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    (run / "report.html").write_text("<p>")
    count = copy_run(run, "memory://bucket/run")
    place = fsspec.filesystem("memory")
    there = {file.rpartition("/")[2]: place.cat_file(file) for file in place.find("/bucket/run")}
    assert there == contents(run)
    assert count == sum(map(len, there.values()))
    with pytest.raises(HeadwiseError, match="'memory://bucket/run' holds files already: choose a new place"):
        copy_run(run, "memory://bucket/run")


def test_what_comes_back_changed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, memory = made(tmp_path / "run"), type(fsspec.filesystem("memory"))
    monkeypatch.setattr(memory, "cat_file", lambda *given, **more: b"other")
    with pytest.raises(
        HeadwiseError, match=r"'features.json' does not come back from 'memory://changed' as it was"
    ):
        copy_run(run, "memory://changed")
    assert not any(file.endswith("manifest.json") for file in fsspec.filesystem("memory").find("/changed"))


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("nowhere://x", "'nowhere://x' is no place that fsspec reaches"),
        ("http://127.0.0.1:1/x", "'http://127.0.0.1:1/x'"),
    ],
)
def test_places_that_cannot_be_written_are_one_line(
    url: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["copy", str(made(tmp_path / "run")), url]) == 2
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1


def test_only_finished_sound_runs_are_copied(tmp_path: Path) -> None:
    with pytest.raises(HeadwiseError, match="holds no run"):
        copy_run(tmp_path, "memory://none")
    with pytest.raises(HeadwiseError, match="is not finished"):
        copy_run(made(tmp_path / "half", finished=False), "memory://none")
    damaged = made(tmp_path / "damaged")
    (damaged / "features.json").write_text("{}")
    with pytest.raises(HeadwiseError, match="missing, damaged or of another run"):
        copy_run(damaged, "memory://none")


def test_a_study_works_in_a_folder_not_at_a_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["circuits", "ioi", "--out", "s3://bucket/run", "--model", "/nowhere"]) == 2
    said = capsys.readouterr().err
    assert "is a URL, and a study works in a folder" in said and "headwise copy" in said
