"""Files that earlier versions wrote are read as they were meant, and files of later versions are refused in one line.

``tests/stored`` has one folder per set of schema numbers, written by ``tools/make_stored.py`` of its time.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_answers import small_model

import headwise
from headwise.bases.calibration import Calibration
from headwise.circuits import files
from headwise.contrast.bank import FeatureBank
from headwise.contrast.roles import HeadRoles
from headwise.errors import HeadwiseError
from headwise.known_names import KnownNames
from headwise.scale import tensors as sealed
from headwise.scale.results import read_value
from headwise.survey.records import CircuitRun
from headwise.why.document import SCHEMA as EXPLANATION
from make_stored import KINDS, PROMPT, bank_of

STORED = Path(__file__).parent / "stored"
FOLDERS = sorted(folder for folder in STORED.iterdir() if folder.is_dir())


def _id(folder: Path) -> str:
    return folder.name


@pytest.fixture(params=FOLDERS, ids=_id)
def stored(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_a_stored_circuit_fits_the_model_and_is_written_as_it_was(stored: Path, tmp_path: Path) -> None:
    circuit = files.load(stored / "circuit.json", small_model())
    assert circuit.edges and circuit.prompt == PROMPT
    circuit.save(tmp_path / "again.json")
    assert files.load(tmp_path / "again.json", small_model()) == circuit


def test_a_stored_bank_is_read_whole(stored: Path) -> None:
    bank = FeatureBank.load(stored / "features.safetensors").require(small_model())
    assert bank.to_bytes() == bank_of(small_model()).to_bytes()


def test_a_stored_run_of_circuits_is_read(stored: Path) -> None:
    run = CircuitRun.load(stored / "circuits")
    assert len(run) and run.circuit(0).edges


STUDIES: dict[str, Any] = {
    "families": headwise.FamiliesResult,
    "features": headwise.FeaturesResult,
    "unlabelled": headwise.UnlabelledResult,
    "sinks": headwise.SinksResult,
    "sparsity": headwise.SparsityResult,
    "names": headwise.NamesResult,
    "atlas": headwise.Atlas,
    "explanations": headwise.ExplanationsResult,
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_stored_study_is_read_whole_and_written_as_it_was(stored: Path, tmp_path: Path, name: str) -> None:
    if not (stored / name).exists():
        pytest.skip("this version had no such study")
    found = STUDIES[name].load(stored / name)
    before, now = (
        json.loads((stored / name / f"{name}.json").read_text()),
        json.loads(json.dumps(found.to_json())),
    )
    shared = (before.keys() & now.keys()) - {"seconds"}
    assert len(shared) > 2
    assert all(_holds(now[key], before[key]) for key in shared)
    again = STUDIES[name].load(found.save(tmp_path / "again"))
    assert json.loads(json.dumps(again.to_json())) == now


def _holds(now: Any, before: Any) -> bool:
    """Whether a document has all that it had; it may have more. Sums of a few numbers differ in the last bit between
    versions of Python."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(key in now and _holds(now[key], before[key]) for key in before)
    if isinstance(before, list):
        return isinstance(now, list) and len(now) == len(before) and all(map(_holds, now, before))
    if isinstance(before, float):
        return isinstance(now, float) and math.isclose(now, before, rel_tol=1e-12)
    return now == before


def test_a_result_with_other_parts_asks_for_its_version(tmp_path: Path) -> None:
    """As a later version would write it, whole: nothing is damaged."""
    found = headwise.SparsityResult.load(FOLDERS[-1] / "sparsity").save(tmp_path / "run")
    tensors, record = sealed.from_bytes((found / "result.safetensors").read_bytes())
    content = sealed.to_bytes(tensors, {**record, "novelty": 1})
    (found / "result.safetensors").write_bytes(content)
    with pytest.raises(HeadwiseError, match=r"a result of another version of headwise.* make the run again"):
        read_value(headwise.SparsityResult, found)


def test_stored_roles_and_moments_fit_the_model(stored: Path) -> None:
    if not (stored / "roles.json").exists():
        pytest.skip("this version kept neither")
    model = small_model()
    roles = HeadRoles.load(stored / "roles.json", model)
    assert len(roles.heads) == len(model.heads)
    moments = Calibration.load(stored / "moments.safetensors", model)
    assert moments.to_bytes() == (stored / "moments.safetensors").read_bytes()


def test_the_newest_folder_has_every_kind() -> None:
    assert {file.name for file in FOLDERS[-1].iterdir()} == set(KINDS)


def _keys(value: Any, path: str = "") -> set[str]:
    """Every key of a document with the way to it; the items of a list are alike."""
    if isinstance(value, dict):
        return {f"{path}.{key}" for key in value} | {
            found for key, item in value.items() for found in _keys(item, f"{path}.{key}")
        }
    return (
        {found for item in value for found in _keys(item, f"{path}[]")} if isinstance(value, list) else set()
    )


def test_a_document_of_the_same_schema_has_the_same_keys(stored: Path) -> None:
    """Who reads an explanation relies on its keys: one that goes away or is renamed needs a new schema number."""
    before = json.loads((stored / "explanation.json").read_text())
    if before["schema"] != EXPLANATION:
        pytest.skip("an earlier schema: documents are not read back")
    assert _keys(before) <= _keys(headwise.explain(small_model(), PROMPT).to_json())


def _newer_circuit(folder: Path) -> None:
    file = folder / "circuit.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 99}))
    files.load(file)


def _newer_bank(folder: Path) -> None:
    file = folder / "features.safetensors"
    tensors, record = sealed.from_bytes(file.read_bytes())
    file.write_bytes(sealed.to_bytes(tensors, {**record, "schema": 99}))
    FeatureBank.load(file)


def _newer_run(folder: Path) -> None:
    file = folder / "circuits" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": 99}))
    CircuitRun.load(folder / "circuits")


def _newer_names(folder: Path) -> None:
    class Newer:
        def to_json(self) -> dict[str, Any]:
            return {"schema": 99, "kind": "names"}

    KnownNames.of(Newer())


@pytest.mark.parametrize("read", [_newer_circuit, _newer_bank, _newer_run, _newer_names])
def test_a_file_of_a_later_version_asks_for_that_version(
    read: Callable[[Path], None], tmp_path: Path
) -> None:
    shutil.copytree(FOLDERS[-1], tmp_path / "newer")
    with pytest.raises(HeadwiseError, match=r"schema 99.*upgrade headwise to open it") as said:
        read(tmp_path / "newer")
    assert "\n" not in str(said.value)
