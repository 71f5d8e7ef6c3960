"""The folder of a study of features, damaged or changed: made again while unfinished, else refused in one line."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from box_runs import MODEL, go, stopped
from pace import first_is_quick
from run_folders import flips, holding, one_line, signed_again
from toy_answers import contents

from headwise.contrast.result import FILES, FeaturesResult
from headwise.contrast.rows import DrawRow
from headwise.contrast.study import find_features
from headwise.scale import work
from headwise.scale.folder import WORK
from headwise.scale.manifest import read_manifest

pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.mark.parametrize(
    "damage", first_is_quick("flip", "empty", "half", "folder", "other place", "other run")
)
def test_damaged_chunks_are_made_again(
    file: Path, tmp_path: Path, whole: dict[str, bytes], damage: str
) -> None:
    out = tmp_path / "run"
    chunk, second, *_ = stopped(file, out, "testing swaps", 1)
    content = chunk.read_bytes()
    if damage == "folder":
        chunk.unlink()
        chunk.mkdir()
    elif damage == "other place":
        shutil.copy(second, chunk)
    elif damage == "other run":
        contrast_of = tmp_path / "other"
        with suppress(KeyboardInterrupt):
            find_features(MODEL, file, heads="L0H0", out=contrast_of, progress=_at_the_end_of_scanning)
        shutil.copy(contrast_of / WORK / chunk.name, chunk)
        assert chunk.read_bytes() != content
    else:
        chunk.write_bytes(
            {"empty": b"", "half": content[:100], "flip": next(flips(content, 1, "chunk"))}[damage]
        )
    go(file, out)
    assert contents(out) == whole


def _at_the_end_of_scanning(stage: str, done: int, total: int) -> None:
    if stage != "finding heads":
        raise KeyboardInterrupt


def test_every_flipped_bit_of_a_chunk_is_noticed(file: Path, tmp_path: Path) -> None:
    chunks = stopped(file, tmp_path / "run", "testing swaps", 9)
    keeper = work.Keeper(tmp_path / "run" / WORK, 2, read_manifest(tmp_path / "run").stamp)
    chunk = work.Chunk(0, (None,) * 8)
    assert keeper.place(chunk) in chunks
    assert keeper.has(chunk)
    for other in flips(keeper.place(chunk).read_bytes(), 100, "bits"):
        with holding(keeper.place(chunk), other):
            assert not keeper.has(chunk)


def test_every_flipped_bit_of_a_finished_run_is_noticed(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    go(file, out)
    for name in (*FILES, "manifest.json"):
        for other in flips((out / name).read_bytes(), 15, name):
            with holding(out / name, other):
                one_line(lambda: FeaturesResult.load(out))
    for name in (*FILES, "manifest.json"):
        (out / name).rename(tmp_path / "aside")
        assert name in one_line(lambda: FeaturesResult.load(out))
        (out / name).mkdir()
        assert name in one_line(lambda: FeaturesResult.load(out))
        (out / name).rmdir()
        (tmp_path / "aside").rename(out / name)
    FeaturesResult.load(out)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("heads", "score", float("nan")),
        ("heads", "head", "L9H9"),
        ("swaps", "original", 7.0),
        ("swaps", "head", "x"),
        ("features", "rank", -5),
        ("features", "name", "other"),
        ("features", "p_value", 2.0),
        ("swaps", "condition", "none at all"),
        ("angles", "side", "both"),
        ("draws", "target", float("inf")),
    ],
)
def test_tables_changed_on_purpose_are_refused(
    file: Path, tmp_path: Path, table: str, column: str, value: Any
) -> None:
    out = tmp_path / "run"
    go(file, out)
    place = out / f"{table}.parquet"
    found = pq.read_table(place)
    rows = found.to_pylist()
    for row in rows if column == "condition" else rows[:1]:
        row[column] = value
    pq.write_table(found.from_pylist(rows, schema=found.schema), place)
    assert one_line(lambda: FeaturesResult.load(out))
    signed_again(out)
    one_line(lambda: FeaturesResult.load(out))


def test_tables_of_other_types_are_refused(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    go(file, out)
    place = out / "draws.parquet"
    found = pq.read_table(place)
    for other in (
        found.set_column(2, "draw", found.column("draw").cast("double")),
        found.drop_columns(["share"]),
        found.append_column("more", found.column("share")),
    ):
        pq.write_table(other, place)
        signed_again(out)
        assert "draws.parquet" in one_line(lambda: FeaturesResult.load(out))
    pq.write_table(found, place)
    signed_again(out)
    assert FeaturesResult.load(out).draws == tuple(DrawRow(**row) for row in found.to_pylist())


def test_a_run_of_other_weights_is_refused(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    go(file, out)
    signed_again(out, weight_hash="0" * 64)
    assert "features.safetensors" in one_line(lambda: FeaturesResult.load(out))
    for other in (None, "", 5, MODEL.weight_hash[:-1]):
        signed_again(out, weight_hash=other)
        one_line(lambda: FeaturesResult.load(out))
