"""A whole payload study in a folder: train, measure every cell, stop and continue at any point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from headwise.contrast import Feature
from headwise.scale.folder import RunFolder, opened
from headwise.toy.payload import PayloadSetup
from headwise.toy.payload_study import CellStudy, Effort, study_cell
from headwise.toy.payload_train import FAST, TRAINING, Schedule, Trained, Watch, config, train
from headwise.types import Subspace

KIND = "toy payload"


@dataclass(frozen=True, eq=False)
class PayloadRun:
    setup: PayloadSetup
    trained: Trained
    studies: list[CellStudy]

    @property
    def records(self) -> list[dict[str, Any]]:
        """One plain record a cell, for JSON and figures."""
        return [s.record for s in self.studies]

    def summary(self) -> dict[str, Any]:
        """The grid in a few numbers, cells that fit into the head apart from those that do not."""
        return summarise(self.records)


def summarise(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of cells with exact ranks, how well swaps reverse, smallest cosines; None where no cell qualifies."""
    fits = [r for r in records if not r["superposed"]]
    crowded = [r for r in records if r["superposed"]]

    def true(r: dict[str, Any]) -> list[int]:
        return [r[f"r{j + 1}"] for j in range(len(r["rank99"]))]

    def share(cells: list[dict[str, Any]], name: str) -> float | None:
        return sum(r[name] == true(r) for r in cells) / len(cells) if cells else None

    def reversal(r: dict[str, Any]) -> float:
        none, both = r["swap"]["none"], r["swap"]["both"]
        return max(abs(both["original"] - none["target"]), abs(both["target"] - none["original"]))

    hidden = [r for r in crowded if any(n > e for n, e in zip(r["rank_null"], r["rank99"], strict=True))]
    return {
        "cells": len(records),
        "cells_that_fit": len(fits),
        "exact_rank99_fit": share(fits, "rank99"),
        "exact_rank_null_fit": share(fits, "rank_null"),
        "exact_rank99_superposed": share(crowded, "rank99"),
        "exact_rank_null_superposed": share(crowded, "rank_null"),
        "superposed_cells_with_hidden_directions": len(hidden),
        "untrained_exact_rank99": sum(r["untrained"]["rank99"] == true(r) for r in records) / len(records),
        "smallest_principal_cosine_fit": min((min(r["principal_cosine"]) for r in fits), default=None),
        "largest_reversal_error_fit": max((reversal(r) for r in fits), default=None),
        "smallest_diagonal_energy_fit": min((r["g_energy"]["diagonal"] for r in fits), default=None),
        "mean_diagonal_energy_superposed": (
            sum(r["g_energy"]["diagonal"] for r in crowded) / len(crowded) if crowded else None
        ),
        "largest_closed_form_error": max(max(r["closed_form_error"]) for r in records),
        "mean_accuracy": sum(r["accuracy"] for r in records) / len(records),
        "largest_gap_to_ceiling": max(r["ceiling"] - r["accuracy"] for r in records),
    }


def run_payload(
    setup: PayloadSetup,
    schedule: Schedule = FAST,
    effort: Effort = Effort(),  # noqa: B008 (frozen)
    *,
    out: str | Path | None = None,
    on_check: Watch | None = None,
    on_cell: Callable[[int, int], None] | None = None,
) -> PayloadRun:
    """Train and measure. With ``out`` every finished check and cell is kept, and the same call continues."""
    asked = {**config(setup, schedule), "effort": asdict(effort)}
    names = [f"cell-{'-'.join(map(str, ranks))}.safetensors" for ranks in setup.cells]
    with opened(out, KIND, asked) as folder:
        trained = train(setup, schedule, folder=folder, progress=on_check)
        studies = []
        for cell, name in enumerate(names):
            study = _load(folder, name) if folder else None
            if study is None:
                study = study_cell(trained, cell, effort)
                if folder:
                    _save(folder, name, study)
            studies.append(study)
            if on_cell:
                on_cell(cell + 1, len(setup.cells))
        run = PayloadRun(setup, trained, studies)
        if folder:
            folder.write_json("cells.json", {"schema": 1, "summary": run.summary(), "cells": run.records})
            folder.finish("cells.json", TRAINING, *names)
    return run


def _save(folder: RunFolder, name: str, study: CellStudy) -> None:
    tensors = {"interactions": study.interactions}
    for f in study.features:
        tensors |= {
            f"{f.name}.query": f.query.basis,
            f"{f.name}.key": f.key.basis,
            f"{f.name}.sigma": f.sigma,
        }
    folder.write_tensors(name, tensors, study.record)


def _load(folder: RunFolder, name: str) -> CellStudy | None:
    saved = folder.read_tensors(name)
    if saved is None:
        return None
    tensors, record = saved
    names = [f"z{j + 1}" for j in range(len(record["rank99"]))]
    features = tuple(
        Feature(n, Subspace(tensors[f"{n}.query"]), Subspace(tensors[f"{n}.key"]), tensors[f"{n}.sigma"])
        for n in names
    )
    ranks = tuple(record[f"r{j + 1}"] for j in range(len(names)))
    return CellStudy(ranks, record, features, tensors["interactions"].to(torch.float64))
