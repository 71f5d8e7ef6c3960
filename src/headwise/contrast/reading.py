"""A study of features from its folder: every file held against its digest, its schema, and the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise import jsons
from headwise.contrast.bank import FILE as BANK
from headwise.contrast.bank import FeatureBank
from headwise.contrast.edited_passes import ALL_HEADS
from headwise.contrast.measured import Gallery
from headwise.contrast.result import DOCUMENT, FILES, KIND, VECTORS, FeaturesResult
from headwise.contrast.rows import ROWS
from headwise.contrast.schema import TABLES as COLUMNS
from headwise.contrast.schema import FeaturesConfig, FeaturesDocument, GalleryLabels
from headwise.scale.manifest import AGAIN, damaged, read_finished
from headwise.scale.manifest import FILE as MANIFEST
from headwise.scale.tables import BadTable, read_table
from headwise.scale.tensors import Damaged, from_bytes
from headwise.validation import check

MAKE = "headwise features TASK --out DIR"


def read_result(path: Path) -> FeaturesResult:
    """The result in a folder, or one line about the first file that cannot be used."""
    manifest = read_finished(path, KIND, MAKE)
    manifest.hold_against(path, FILES)
    config = check(FeaturesConfig, manifest.config, repr(str(path / MANIFEST)), AGAIN)
    file = path / DOCUMENT
    about = check(FeaturesDocument, jsons.read(file, "a run's document", AGAIN), repr(str(file)), AGAIN)
    try:
        tables: dict[str, Any] = {}
        for name, row in ROWS.items():
            file = path / f"{name}.parquet"
            tables[name] = tuple(row(**record) for record in read_table(file, COLUMNS[name]).to_pylist())
        file = path / VECTORS
        vectors, record = from_bytes(file.read_bytes())
        labels = check(GalleryLabels, record, repr(str(file)), AGAIN)
        file = path / BANK
        bank = FeatureBank.load(file)
        if bank.weight_hash != config.weight_hash:
            raise ValueError("its features are of another model")
        if any(f.key.d_head != config.shape.d_head for f in bank):
            raise ValueError("its features are of other heads")
        file = path / VECTORS
        _check_vectors(vectors, labels, (len(bank.heads), config.shape.d_head))
        file = path / "heads.parquet"
        _check_heads(tables, bank, config.shape.names)
    except (OSError, BadTable, Damaged, ValueError):
        raise damaged(file) from None
    return FeaturesResult(
        task=about.task,
        model=about.model,
        rule=about.rule,
        **tables,
        warnings=tuple(about.warnings),
        bank=bank,
        gallery=Gallery(vectors["q"], vectors["k"], labels.query, labels.keys, labels.colours),
        config=manifest.config,
    )


def _check_vectors(vectors: dict[str, Tensor], labels: GalleryLabels, shape: tuple[int, int]) -> None:
    if set(vectors) != {"q", "k"} or vectors["q"].ndim != 3 or vectors["k"].ndim != 4:
        raise ValueError("the vectors are not queries and keys")
    q, k = vectors["q"], vectors["k"]
    n, (heads, width) = q.shape[1], shape
    if q.shape != (heads, n, width) or k.shape != (heads, n, k.shape[2], width):
        raise ValueError("queries and keys are not of the same prompts")
    if not all(value.dtype == torch.float32 and value.isfinite().all() for value in (q, k)):
        raise ValueError("a query or key is not a finite number")
    named: list[list[Any]] = [*labels.query.values(), *labels.keys.values()]
    if any(len(one) != n for one in named):
        raise ValueError("there is not one label per prompt")


def _check_heads(tables: Mapping[str, Sequence[Any]], bank: FeatureBank, known: list[str]) -> None:
    if sorted(row.head for row in tables["heads"]) != sorted(known):
        raise ValueError("the heads are not those of the model")
    fitted = {(str(f.head), f.name) for f in bank}
    if {(row.head, row.name) for row in tables["features"]} != fitted:
        raise ValueError("the features are not those of the bank")
    for name, rows in tables.items():
        if not {row.head for row in rows} <= {*known, ALL_HEADS}:
            raise ValueError(f"{name} names a head that is none of the model's")
    for condition in ("none", "full"):
        tested = {row.head for row in tables["swaps"] if row.condition == condition}
        if not {head for head, _ in fitted} <= tested:
            raise ValueError(f"a head was not tested with {condition}")
