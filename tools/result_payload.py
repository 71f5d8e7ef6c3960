"""The tables of docs/results/toys.md that are about payload retrieval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from result_blocks import Blocks, percent, power, table

GRIDS = {
    "payload-8-discrete": "8, discrete",
    "payload-8-gaussian": "8, Gaussian",
    "payload-16-discrete": "16, discrete",
    "payload-16-gaussian": "16, Gaussian",
    "payload-8-paper": "8, discrete, preset `paper`",
}
EXAMPLES = {
    "payload-cube": "discrete, r = 3, 5",
    "payload-sphere": "Gaussian, r = 3, 5",
    "payload-three": "discrete, r = 3, 4, 5",
}
CELL = (
    "r1",
    "r2",
    "superposed",
    "accuracy",
    "ceiling",
    "rank99",
    "rank_null",
    "principal_cosine",
    "g_energy",
)


def kept_grid(document: dict[str, Any]) -> dict[str, Any]:
    """The summary, and of every cell what a page shows."""
    cells = []
    for one in document["cells"]:
        swap = {
            name: {side: value[side] for side in ("original", "target")}
            for name, value in one["swap"].items()
        }
        cells.append({name: one[name] for name in CELL} | {"swap": swap})
    return {"summary": document["summary"], "cells": cells}


def grids(data: dict[str, Any]) -> Sequence[str]:
    """The four grids, and one with the paper's own settings, beside the paper."""
    found = [data[name]["summary"] for name in GRIDS]

    def row(title: str, paper: str, made: Sequence[str]) -> list[str]:
        return [title, paper, *made]

    rows = [
        row("cells (that fit)", "25 / 81", [f"{one['cells']} ({one['cells_that_fit']})" for one in found]),
        *(
            row(title, paper, [percent(one[key]) for one in found])
            for title, paper, key in (
                ("exact 99 % ranks, cells that fit", "all", "exact_rank99_fit"),
                ("exact null ranks, cells that fit", "–", "exact_rank_null_fit"),
                ("exact 99 % ranks, superposed", "some", "exact_rank99_superposed"),
                ("exact null ranks, superposed", "–", "exact_rank_null_superposed"),
                ("exact 99 % ranks, *untrained* heads, all cells", "–", "untrained_exact_rank99"),
            )
        ),
        row(
            "superposed cells in which the 99 % rule hides directions",
            "–",
            [f"{one['superposed_cells_with_hidden_directions']}" for one in found],
        ),
        row(
            "smallest principal cosine with the true subspace, cells that fit",
            "–",
            [f"{one['smallest_principal_cosine_fit']:.4f}" for one in found],
        ),
        row(
            "swap of both against the reversed clean attention, largest error",
            '"all attention"',
            [power(one["largest_reversal_error_fit"]) for one in found],
        ),
        row(
            "G: energy on the diagonal, smallest cell that fits",
            '"strong diagonal"',
            [f"{one['smallest_diagonal_energy_fit']:.2f}" for one in found],
        ),
        row(
            "G: energy on the diagonal, mean of superposed cells",
            "off-diagonal",
            [f"{one['mean_diagonal_energy_superposed']:.2f}" for one in found],
        ),
        row(
            "ΔC against its closed form, largest relative error",
            "–",
            [f"{100 * one['largest_closed_form_error']:.1f} %" for one in found],
        ),
        row(
            "mean accuracy",
            "99 % (85 % Gaussian, 8)",
            [f"{100 * one['mean_accuracy']:.1f} %" for one in found],
        ),
        row(
            "largest gap of accuracy to what tokens with the same latents allow",
            "–",
            # Gaussian latents of two tokens are never the same.
            [
                "–" if name.endswith("gaussian") else f"{100 * one['largest_gap_to_ceiling']:.1f} %"
                for name, one in zip(GRIDS, found, strict=True)
            ],
        ),
    ]
    return table(["", "paper", *GRIDS.values()], rows)


def swapped(data: dict[str, Any]) -> Sequence[str]:
    """Attention on original and target after swaps in one cell."""
    cell = next(one for one in data["payload-8-discrete"]["cells"] if (one["r1"], one["r2"]) == (3, 3))
    pairs = [f"{one['original']:.3f}, {one['target']:.3f}" for one in cell["swap"].values()]
    return table([name.replace("_", " ") for name in cell["swap"]], [pairs])


def examples(data: dict[str, Any]) -> Sequence[str]:
    """The paper's own example, and one with three latents."""
    rows = []
    for name, title in EXAMPLES.items():
        (cell,) = data[name]["cells"]
        both = cell["swap"]["both"]
        rows.append(
            [
                title,
                ", ".join(map(str, cell["rank99"])),
                ", ".join(map(str, cell["rank_null"])),
                f"{min(cell['principal_cosine']):.4f}",
                f"{cell['accuracy']:.3f}",
                f"{both['original']:.3f}, {both['target']:.3f}",
            ]
        )
    titles = ["d_head 16", "99 % ranks", "null ranks", "smallest principal cosine", "accuracy"]
    return table([*titles, "attention on original, target after the swap of all"], rows)


PAYLOAD: Blocks = {"grids": grids, "swapped": swapped, "examples": examples}
