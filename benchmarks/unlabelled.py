"""Features without labels against what is known: toys with latents. Language models: ``unlabelled_model.py``.

    python benchmarks/unlabelled.py [toys GRID] [--train FOLDER] [--out FILE] [--fresh]  # 8, 16, gaussian, three, pairs
    python benchmarks/unlabelled.py draw [GRID] [--toys FILE] [--out FILE.svg]           # a grid of two latents

The first writes one JSON file; ``docs/results/features.md`` has their numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headwise.files import write_text
from headwise.jsons import dumps, parse
from headwise.scale.folder import opened
from headwise.toy import alignment
from headwise.toy.payload import PayloadSetup
from headwise.toy.payload_train import FAST, Trained, config, train
from headwise.toy.unlabelled import recover_cell, recover_pairs

GRIDS = {
    "8": PayloadSetup.grid(8, "discrete"),
    "16": PayloadSetup.grid(16, "discrete"),
    "gaussian": PayloadSetup.grid(8, "gaussian"),
    "three": PayloadSetup(16, "discrete", ((2, 2, 2), (3, 3, 3), (2, 4, 6), (4, 4, 4), (5, 5, 5), (6, 6, 6))),
}


def toys(grid: str, folder: Path, steps: int | None, most: int | None, fresh: bool) -> dict[str, Any]:
    """Every cell of a grid without labels, or the first ``most``: those that fit the head come first.

    ``fresh`` takes the heads as they were before training. Records are kept beside the training, so that an interrupted
    run goes on where it was.
    """
    if grid == "pairs":
        setups = [*alignment.case("pair", 3), *alignment.case("none", 1)]
        run = alignment.train_alignment(setups, steps=3000)
        many = alignment.train_alignment(alignment.case("pairs", 2), steps=3000)
        records = [
            {"case": name, **recover_pairs(one, place)}
            for name, one, places in (("pair", run, range(3)), ("pairs", many, range(2)))
            for place in places
        ]
        return {"grid": grid, "records": records}
    setup = GRIDS[grid]
    with opened(folder, "toy payload", config(setup, FAST)) as kept:
        trained = train(setup, FAST, folder=kept, stop_after=steps)
    order = sorted(range(len(setup.cells)), key=lambda cell: sum(setup.cells[cell]))
    file = folder / f"records-{'fresh' if fresh else 'trained'}.json"
    records: list[dict[str, Any]] = parse(file.read_text()) if file.exists() else []
    for cell in order[len(records) : most]:
        records.append({**_recovered(trained, cell, fresh), "accuracy": float(trained.accuracy[cell])})
        write_text(file, dumps(records))
        said = ("ranks", "rank", "rank_energy", "found", "smallest", "identified", "identified_but_no_latent")
        print(*(f"{name} {records[-1][name]}" for name in said), flush=True)
    return {
        "grid": grid,
        "trained": not fresh,
        "steps": int(trained.steps.max()),
        "records": records,
        **_summary(records, trained),
    }


def _recovered(trained: Trained, cell: int, fresh: bool) -> dict[str, Any]:
    """One head's record, with what a span that ends at 99 % of the energy would have found, where it is smaller."""
    record = recover_cell(trained, cell, fresh=fresh).record
    if not 0 < record["rank_energy"] < record["rank"]:
        return record
    shorter = recover_cell(trained, cell, fresh=fresh, max_rank=record["rank_energy"]).record
    names = ("found", "smallest", "identified", "identified_but_no_latent")
    return record | {"at_99_percent": {name: shorter[name] for name in names}}


def _summary(records: Sequence[dict[str, Any]], trained: Trained) -> dict[str, Any]:
    fits = [r for r in records if not r["superposed"]]
    full = [r for r in records if r["superposed"]]
    return {
        "cells": len(records),
        "cells_that_fit": len(fits),
        "all_latents_found": sum(r["smallest"] >= 0.95 for r in fits),
        "all_latents_found_at_99_percent": sum(
            r.get("at_99_percent", r)["smallest"] >= 0.95 for r in fits if r["rank_energy"]
        ),
        "smallest_span_cosine": min((min(r["span_key"], r["span_query"]) for r in fits), default=None),
        "rank_as_many_as_latents": sum(r["rank"] == sum(r["ranks"]) for r in fits),
        "rank_above_latents": sum(r["rank"] > sum(r["ranks"]) for r in fits),
        "axes": sum(r["rank"] for r in fits),
        "identified": sum(r["identified"] for r in fits),
        "identified_but_no_latent": sum(r["identified_but_no_latent"] for r in fits),
        "axes_when_superposed": sum(r["rank"] for r in full),
        "identified_when_superposed": sum(r["identified"] for r in full),
        "identified_but_no_latent_when_superposed": sum(r["identified_but_no_latent"] for r in full),
        "found_of_latents_when_superposed": [[r["found"], sum(r["ranks"])] for r in full],
        "mean_accuracy": float(trained.accuracy.mean()),
    }


def drawn(records: Sequence[dict[str, Any]]) -> str:
    """A grid of two latents: in each cell how many of its latents are found, dark where all are."""
    size, left, top = 52, 60, 46
    firsts, seconds = (sorted({r["ranks"][i] for r in records}) for i in (0, 1))
    width, height = left + size * len(seconds) + 12, top + size * len(firsts) + 34
    parts = [f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for r in records:
        x, y = left + size * seconds.index(r["ranks"][1]), top + size * firsts.index(r["ranks"][0])
        total = sum(r["ranks"])
        share = r["found"] / total
        shade = round(245 - 165 * share)
        ink = "#ffffff" if share > 0.7 else "#1b1f24"
        edge = "#1b1f24" if not r["superposed"] else "#c3c8ce"
        parts.append(
            f'<rect x="{x + 2}" y="{y + 2}" width="{size - 4}" height="{size - 4}" rx="4" '
            f'fill="rgb({shade - 40},{shade},{min(255, shade + 25)})" stroke="{edge}" stroke-width="1.5"/>'
            f'<text x="{x + size / 2}" y="{y + size / 2 + 5}" fill="{ink}" text-anchor="middle">'
            f"{r['found']}/{total}</text>"
        )
    parts += [
        f'<text x="{left + size * (i + 0.5)}" y="{top - 8}" text-anchor="middle">{r}</text>'
        for i, r in enumerate(seconds)
    ]
    parts += [
        f'<text x="{left - 12}" y="{top + size * (i + 0.5) + 5}" text-anchor="end">{r}</text>'
        for i, r in enumerate(firsts)
    ]
    parts.append(f'<text x="{left}" y="18">dimensions of the second latent</text>')
    parts.append(
        f'<text x="8" y="{height - 12}">rows: dimensions of the first; framed dark: all fit the head</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#1b1f24">{"".join(parts)}</svg>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="toys", choices=("toys", "draw"))
    parser.add_argument("grid", nargs="?", default="8", choices=(*GRIDS, "pairs"))
    parser.add_argument("--train", type=Path, help="where the training is kept (runs/unlabelled-GRID)")
    parser.add_argument("--toys", type=Path, help="what toys wrote")
    parser.add_argument("--cells", type=int, help="so many cells, the least crowded first")
    parser.add_argument("--fresh", action="store_true", help="the heads as they were before training")
    parser.add_argument("--steps", type=int, help="stop a training here")
    parser.add_argument("--out", type=Path, help="the file to write (runs/unlabelled-GRID.json)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = options.train or Path("runs") / f"unlabelled-{options.grid}"
    if options.part == "draw":
        toys_file = options.toys or folder.with_suffix(".json")
        write_text(
            options.out or toys_file.with_suffix(".svg"),
            drawn(parse(toys_file.read_text())["records"]) + "\n",
        )
        return
    found = toys(options.grid, folder, options.steps, options.cells, options.fresh)
    write_text(options.out or folder.with_suffix(".json"), dumps(found) + "\n")


if __name__ == "__main__":
    main()
