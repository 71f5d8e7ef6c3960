"""One shape for every study: a frozen result that goes to JSON, to a folder and back, to frames and to a notebook."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from box_runs import lines
from toy_answers import answer_lines, contents, small_model, write_lines

import headwise
from headwise.corpus import Corpus


def features(folder: Path) -> Any:
    return headwise.find_features(
        small_model(), write_lines(folder / "boxes.jsonl", lines()), heads="L0H0,L1H2"
    )


def sinks(folder: Path) -> Any:
    words = ("jam", "key", "map", "cup")
    texts = [f"The pen is in Box A . The {word} is in Box B . The pen is in Box" for word in words]
    return headwise.find_sinks(small_model(), texts, threshold=0.1, parked=0.1, traced=2, proved=1)


def sparsity(folder: Path) -> Any:
    file = write_lines(folder / "answers.jsonl", answer_lines(10))
    return headwise.find_sparsity(small_model(), file, rotations=2)


def families(folder: Path) -> Any:
    file = write_lines(folder / "answers.jsonl", answer_lines(12))
    headwise.trace_many(small_model(), file, out=folder / "circuits")
    return headwise.find_families(folder / "circuits")


def atlas(folder: Path) -> Any:
    texts = tuple(line["prompt"] for line in answer_lines(8))
    corpus = Corpus("answers", texts, ("answers",) * len(texts))
    return headwise.atlas(small_model(), "L1H1,L2H1", corpus=corpus, cells=2)


@pytest.mark.parametrize("find", [features, sinks, sparsity, families, atlas])
def test_a_result_has_the_shape_of_every_study(
    find: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find(tmp_path)
    kind = type(found)
    assert getattr(headwise, kind.__name__) is kind
    with pytest.raises(FrozenInstanceError):
        found.model = "another"
    document = found.to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert "seconds" in document
    saved = found.save(tmp_path / "run")
    assert saved == tmp_path / "run"
    again = kind.load(saved)
    assert {**again.to_json(), "seconds": 0} == {**document, "seconds": 0}
    again.save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(saved)
    assert json.loads((saved / f"{find.__name__}.json").read_text())
    assert found._repr_html_().startswith("<div")
    first, *_ = repr(found).splitlines()
    assert found.to_json().get("model", "small_lm") in first and len(first) < 200
    monkeypatch.setitem(sys.modules, "pandas", _Frames)
    tables = found.to_pandas()
    assert tables and all(isinstance(table, list) for table in tables.values())


class _Frames:
    """Stands for pandas, which is an extra."""

    @staticmethod
    def DataFrame(rows: list[dict[str, Any]], columns: list[str] | None = None) -> list[dict[str, Any]]:
        return rows
