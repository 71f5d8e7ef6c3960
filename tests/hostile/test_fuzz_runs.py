"""Damaged feature banks and run folders: each is read as it was written, or refused in one line."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
from fuzzing import NO_FILES, damaged, ends_well, mutated, tried
from hypothesis import given
from hypothesis import strategies as st
from run_folders import sealed_again, signed_again
from toy_answers import answer_lines, labelled_lines, small_model, write_lines

import headwise
from headwise.contrast.bank import FILE as BANK
from headwise.contrast.bank import FeatureBank
from headwise.contrast.result import FeaturesResult
from headwise.errors import HeadwiseError
from headwise.scale.manifest import FILE as MANIFEST
from headwise.scale.manifest import _digest
from headwise.scale.tensors import from_bytes
from headwise.survey.collect import trace_many
from headwise.survey.records import CircuitRun
from headwise.tasks.answers.make import make_answers

pytestmark = pytest.mark.hostile


@lru_cache(maxsize=1)
def scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="headwise-runs-"))


@cache
def folder(kind: str) -> Path:
    """A sound run folder."""
    place, model = scratch() / kind, small_model()
    if kind == "circuits":
        lines = write_lines(scratch() / "answers.jsonl", answer_lines(4))
        trace_many(model, make_answers(str(lines), model.tokenizer), out=place, workers=1)
    else:
        lines = write_lines(scratch() / "labelled.jsonl", labelled_lines())
        headwise.find_features(model, str(lines), heads="L1H0", draws=100, out=place)
    return place


def files(kind: str) -> list[str]:
    return sorted(path.name for path in folder(kind).iterdir() if path.name not in (MANIFEST, "report.html"))


def manifest(kind: str) -> Any:
    return json.loads((folder(kind) / MANIFEST).read_text(encoding="utf-8"))


def read(kind: str, place: Path) -> Any:
    return CircuitRun.load(place) if kind == "circuits" else FeaturesResult.load(place)


def copy(kind: str) -> Path:
    place = scratch() / "changed"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder(kind), place)
    return place


KINDS = st.sampled_from(["circuits", "features"])


# Banks


@lru_cache(maxsize=1)
def bank() -> tuple[Any, dict[str, Any]]:
    """The record and the tensors of a sound bank."""
    tensors, record = from_bytes((folder("features") / BANK).read_bytes())
    return record, tensors


def required(data: bytes, target: str) -> FeatureBank | None:
    path = scratch() / "bank.safetensors"
    path.write_bytes(data)
    found = ends_well(target, lambda: FeatureBank.load(path).require(small_model()))
    if found is not None:
        assert FeatureBank.load(found.save(scratch() / "again.safetensors")).to_bytes() == found.to_bytes()
    return found


@tried(0.04)
@given(st.deferred(lambda: mutated(bank()[0])))
def test_bank_records(record: Any) -> None:
    required(sealed_again(bank()[1], record), "feature banks")


@tried(0.03)
@given(st.deferred(lambda: damaged((folder("features") / BANK).read_bytes(), head=2000)))
def test_damaged_banks(data: bytes) -> None:
    found = required(data, "damaged feature banks")
    assert found is None or found.to_bytes() == (folder("features") / BANK).read_bytes()


# Run folders


@tried(0.03)
@given(st.data(), KINDS, st.booleans())
def test_manifests(data: st.DataObject, kind: str, signed: bool) -> None:
    """Changed by a disk, or by somebody who also writes the digest that belongs to it."""
    record = data.draw(mutated(manifest(kind)))
    if signed and isinstance(record, dict):
        rest = {key: value for key, value in record.items() if key != "sha256"}
        record["sha256"] = _digest(rest)
    place = copy(kind)
    (place / MANIFEST).write_text(json.dumps(record))
    same = record == manifest(kind)
    found = ends_well(f"manifests of {kind}", lambda: read(kind, place))
    assert found is None or signed or same


@tried(0.03)
@given(st.data(), KINDS)
def test_files_of_runs(data: st.DataObject, kind: str) -> None:
    """Not one changed byte is read as if it were sound."""
    name = data.draw(st.sampled_from(files(kind)))
    sound = (folder(kind) / name).read_bytes()
    found = data.draw(st.one_of(damaged(sound), st.sampled_from(NO_FILES)))
    place = copy(kind)
    (place / name).write_bytes(found)
    if found == sound:
        read(kind, place)
        return
    assert ends_well(f"damaged files of {kind}", lambda: read(kind, place)) is None


@tried(0.02)
@given(st.data(), KINDS)
def test_files_of_runs_with_the_digests_of_what_they_hold(data: st.DataObject, kind: str) -> None:
    """Somebody changed a run on purpose: what is read then is at least whole, and is written again as it is."""
    name = data.draw(st.sampled_from(files(kind)))
    found = data.draw(st.one_of(damaged((folder(kind) / name).read_bytes()), st.sampled_from(NO_FILES)))
    place = copy(kind)
    (place / name).write_bytes(found)
    signed_again(place)
    run = ends_well(f"changed files of {kind}", lambda: read(kind, place))
    if run is None or kind == "circuits":
        return
    again = scratch() / "again"
    shutil.rmtree(again, ignore_errors=True)
    try:
        run.save(again)
    except HeadwiseError:
        return
    FeaturesResult.load(again)
