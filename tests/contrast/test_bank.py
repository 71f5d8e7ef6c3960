"""Feature banks on disk: what was saved is what is loaded, and nothing else is loaded at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing import NO_FILES, damaged, ends_well, line_is_fit, mutated
from hypothesis import HealthCheck, given, settings
from run_folders import flips, sealed_again
from safetensors.torch import save
from tiny import tiny

from headwise.contrast.bank import BankFeature, FeatureBank, features_of
from headwise.errors import HeadwiseError
from headwise.scale.tensors import from_bytes
from headwise.types import Head, Subspace

MODEL = tiny("llama")
quick = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def feature(name: str, head: Head, rank: int, parts: tuple[str, ...] = ()) -> BankFeature:
    generator = torch.Generator().manual_seed(rank)
    query, key = (
        Subspace.spanned_by(torch.randn(MODEL.d_head, rank, generator=generator, dtype=torch.float64))
        for _ in "qk"
    )
    return BankFeature(
        name=name,
        head=head,
        query=query,
        key=key,
        sigma=torch.arange(rank, 0.0, -1).double(),
        rank_energy=1,
        rank_null=rank,
        parts=parts,
    )


BANK = FeatureBank(
    MODEL.name,
    MODEL.weight_hash,
    "made up",
    (
        feature("order", Head(1, 2), 2),
        feature("entity", Head(1, 2), 1),
        feature("both", Head(1, 2), 3, ("order", "entity")),
    ),
)
WHOLE = BANK.to_bytes()


def opened() -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    tensors, record = from_bytes(WHOLE)
    return record, tensors


def written(folder: Path, record: Any, tensors: dict[str, torch.Tensor]) -> Path:
    place = folder / "features.safetensors"
    place.write_bytes(sealed_again(tensors, record))
    return place


def test_features_that_swaps_do_not_support_are_stored_and_left_out(tmp_path: Path) -> None:
    (order, entity, both) = BANK.features
    bank = replace(BANK, features=(replace(order, supported=False), replace(entity, supported=True), both))
    again = FeatureBank.load(bank.save(tmp_path / "features.safetensors"))
    assert [f.supported for f in again] == [False, True, None]
    assert [f.name for f in features_of([again], entity.head)] == ["entity"]
    assert [f.name for f in features_of([again.with_unsupported()], entity.head)] == ["order", "entity"]
    none = replace(bank, features=tuple(replace(f, supported=False) for f in bank))
    with pytest.raises(
        HeadwiseError, match="no feature of L1H2 in this bank is supported by its swaps"
    ) as said:
        features_of([none], entity.head)
    assert "\n" not in str(said.value)


def test_a_bank_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    assert FeatureBank.load(BANK.save(tmp_path / "features.safetensors")).to_bytes() == WHOLE
    assert FeatureBank.load(tmp_path).require(MODEL).heads == BANK.heads
    assert opened()[0] == RECORD


Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], Any]
WRONG: list[tuple[Change, str]] = [
    (lambda r, t: r.update(schema=2), "has schema 2, this headwise reads up to 1: upgrade headwise"),
    (lambda r, t: r.pop("model"), "the field 'model' is missing"),
    (lambda r, t: r.pop("task"), "the field 'task' is missing"),
    (lambda r, t: r.pop("weight_hash"), "the field 'weight_hash' is missing"),
    (lambda r, t: r.update(weight_hash=5), "weight_hash is 5, not text"),
    (lambda r, t: r.update(weight_hash=None), "weight_hash is null, not text"),
    (lambda r, t: r.update(weight_hash=""), "weight_hash is '', not 64 hexadecimal digits"),
    (lambda r, t: r.update(features={}), "features is an object, not a list"),
    (lambda r, t: r["features"][0].update(head="nine"), "'nine' is not a head"),
    (lambda r, t: r["features"][0].update(rank=1), r"features\[0\].key has rank 2, but the record says 1"),
    (
        lambda r, t: r["features"][0].update(rank_null=-1),
        r"features\[0\].rank_null is -1, which is less than 0",
    ),
    (lambda r, t: r["features"][0].update(rank_energy=0.5), "not a whole number"),
    (lambda r, t: r["features"][0].update(name="entity"), "L1H2 'entity' is listed twice"),
    (lambda r, t: r["features"].pop(), "the tensor '2.key' is unknown"),
    (lambda r, t: t.pop("1.key"), "the tensor '1.key' is missing"),
    (lambda r, t: t.update({"0.key": t["0.key"] * 2}), "must be orthonormal"),
    (
        lambda r, t: t.update({"0.query": t["0.query"] * torch.nan}),
        r"features\[0\].query is not a finite tensor",
    ),
    (lambda r, t: t.update({"0.key": t["0.key"].float()}), r"features\[0\].key is not a finite tensor"),
    (lambda r, t: t.update({"0.sigma": -t["0.sigma"]}), "negative singular value"),
    (lambda r, t: t.update({"0.key": t["0.key"][:0]}), "has shape"),
    (
        lambda r, t: t.update({"1.key": torch.ones(1, 1).double()}),
        "another number of dimensions than the first",
    ),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_file_that_is_no_bank_is_refused_in_one_line(tmp_path: Path, change: Change, message: str) -> None:
    record, tensors = opened()
    change(record, tensors)
    with pytest.raises(HeadwiseError, match=message) as caught:
        FeatureBank.load(written(tmp_path, record, tensors))
    line_is_fit(str(caught.value))


@pytest.mark.parametrize("content", NO_FILES)
def test_bytes_that_are_no_bank_are_one_line(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "features.safetensors"
    place.write_bytes(content)
    with pytest.raises(HeadwiseError, match="is not a feature bank") as caught:
        FeatureBank.load(place)
    line_is_fit(str(caught.value))
    place.write_bytes(save({"x": torch.ones(1)}, {"headwise": content.decode("utf-8", "replace")}))
    with pytest.raises(HeadwiseError, match="feature bank"):
        FeatureBank.load(place)


def test_a_bank_of_other_heads_is_not_used() -> None:
    other = FeatureBank("m", MODEL.weight_hash, "t", (feature("a", Head(9, 9), 1),))
    with pytest.raises(HeadwiseError, match="L9H9 does not exist"):
        other.require(MODEL)
    flat = Subspace(torch.eye(3).double()[:, :1])
    narrow = BankFeature(
        name="a", head=Head(0, 0), query=flat, key=flat, sigma=torch.ones(1), rank_energy=1, rank_null=1
    )
    with pytest.raises(HeadwiseError, match="'a' has 3 dimensions, but a head of 'tiny-llama' has"):
        FeatureBank("m", MODEL.weight_hash, "t", (narrow,)).require(MODEL)
    with pytest.raises(HeadwiseError, match="this bank of features is of 'm'"):
        FeatureBank("m", "", "t", ()).require(MODEL)


RECORD = {
    "schema": 1,
    "model": MODEL.name,
    "weight_hash": MODEL.weight_hash,
    "task": "made up",
    "features": [
        {
            "name": f.name,
            "head": str(f.head),
            "rank": f.rank,
            "rank_energy": f.rank_energy,
            "rank_null": f.rank_null,
            "parts": list(f.parts),
            "supported": f.supported,
        }
        for f in BANK
    ],
}


@quick
@given(record=mutated(RECORD))
def test_a_changed_record_is_loaded_as_it_is_or_refused(tmp_path: Path, record: Any) -> None:
    _, tensors = opened()
    bank = ends_well("feature banks", partial(FeatureBank.load, written(tmp_path, record, tensors)))
    if bank is not None:
        assert (bank.model, bank.weight_hash, bank.task) == (
            record["model"],
            record["weight_hash"],
            record["task"],
        )
        assert [f.name for f in bank] == [f["name"] for f in record["features"]]


@quick
@given(content=damaged(WHOLE, head=1200))
def test_a_damaged_bank_is_the_same_or_refused(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "features.safetensors"
    place.write_bytes(content)
    bank = ends_well("feature banks", partial(FeatureBank.load, place))
    assert bank is None or bank.to_bytes() == WHOLE


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "features.safetensors"
    for content in flips(WHOLE, 300, "bank"):
        place.write_bytes(content)
        with pytest.raises(HeadwiseError, match="is not a feature bank, or damaged"):
            FeatureBank.load(place)
