"""Every study's tables as real DataFrames: as many rows as the result has, and numbers where numbers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
from toy_answers import answer_lines, small_model

import headwise
from headwise.survey.records import CircuitRun

pytestmark = pytest.mark.slow
TEXTS = [one["prompt"] for one in answer_lines(6)]


@pytest.fixture(scope="module")
def results(whole_run: Path, answer_file: Path) -> dict[str, Any]:
    model = small_model()
    return {
        "circuits": CircuitRun.load(whole_run),
        "families": headwise.find_families(whole_run),
        "sinks": headwise.find_sinks(model, TEXTS, threshold=0.1, traced=2, proved=1),
        "sparsity": headwise.find_sparsity(model, answer_file, prompts=12, rotations=2),
    }


@pytest.mark.parametrize("study", ["circuits", "families", "sinks", "sparsity"])
def test_tables_are_frames(results: dict[str, Any], study: str) -> None:
    frames = results[study].to_pandas()
    assert frames
    for name, frame in frames.items():
        assert isinstance(frame, pandas.DataFrame), name
        assert frame.columns.is_unique, name
        assert len(frame) == 0 or len(frame.columns) > 1, name
    assert any(len(frame) for frame in frames.values())


def test_rows_are_those_of_the_result(results: dict[str, Any]) -> None:
    run, sparsity = results["circuits"], results["sparsity"]
    assert len(run.to_pandas()["prompts"]) == len(run)
    assert len(run.to_pandas()["edges"]) == run.edges.num_rows
    assert len(sparsity.to_pandas()["heads"]) == len(sparsity.heads) + 1
