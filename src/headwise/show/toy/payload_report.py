"""The payload study as one page."""

from __future__ import annotations

from headwise.show.kit.report import Figure, Report, Section, Table, Text
from headwise.show.toy import payload as draw
from headwise.toy.payload import PRESETS
from headwise.toy.payload_run import PayloadRun
from headwise.toy.payload_study import CellStudy, latent_cloud


def typical_cells(run: PayloadRun, count: int) -> list[int]:
    """Cells spread from roomy to crowded, the paper's examples (3, 5) and (3, 3) first where they exist."""
    cells = run.setup.cells
    order = sorted(range(len(cells)), key=lambda i: (sum(cells[i]), cells[i]))
    chosen = [order[round(k * (len(order) - 1) / max(1, count - 1))] for k in range(min(count, len(order)))]
    first = [i for i, ranks in enumerate(cells) if ranks in ((3, 5), (3, 3), (5, 5))]
    unique = list(dict.fromkeys([*chosen, *first]))
    return sorted(unique[: max(count, len(chosen))], key=lambda i: (sum(cells[i]), cells[i]))


def payload_report(run: PayloadRun) -> Report:
    """Figures 2–5 and 11–15 of the paper for whatever was run, with tables."""
    setup, records, summary = run.setup, run.records, run.summary()
    grid = len(records) > 1 and setup.latent_count == 2
    sections = []
    if grid:
        sections.append(
            Section(
                "Ranks",
                [
                    Text(
                        "Every square is one trained head; its lower left triangle is z1, its upper "
                        "right one z2, and the number is the recovered rank. An untrained head has the right "
                        "99 % rank for small latents: a right rank alone shows nothing about training."
                    ),
                    Figure(draw.rank_grid(records), "Recovered ranks (Figures 2 and 11).", _rank_table(run)),
                ],
            )
        )
    shown = typical_cells(run, 6)
    spectrum = _most_hidden(run.studies)
    sections += [
        Section(
            "Singular values",
            [
                Text(f"Cell {spectrum.ranks}: what the 99 % rule counts, and what rises above the null."),
                Figure(
                    draw.spectra(spectrum.record),
                    "Singular values of ΔC against the null; dashed: the true rank.",
                ),
            ],
        ),
        Section(
            "Swaps",
            [
                Text(
                    "Attention on the original and the target token after exchanging their keys' coordinates "
                    "inside each subspace; whiskers span the random draws."
                ),
                Figure(
                    draw.interventions([records[i] for i in shown]),
                    "Causal interventions (Figures 4, 14, 15).",
                    _swap_table(run),
                ),
            ],
        ),
        Section(
            "Interactions",
            [
                Text("q·k = z_qᵀ G z_k. Where the latents fit, G is diagonal; elsewhere latents interfere."),
                Figure(
                    draw.interaction_maps(
                        [(run.studies[i].interactions, run.studies[i].ranks) for i in shown]
                    ),
                    "Interactions G of latents in QK space (Figures 5 and 13), scaled by the largest entry.",
                    _energy_table(run),
                ),
            ],
        ),
    ]
    cell = next((i for i, ranks in enumerate(setup.cells) if ranks[0] == 3), 0)
    cloud = latent_cloud(run.trained, run.studies[cell], cell, 0)
    figure = draw.cloud(
        cloud.points, cloud.is_key, cloud.value, cloud.explained, discrete=setup.latents == "discrete"
    )
    names = [" + ".join(map(str, ranks)) for ranks in setup.cells]
    sections += [
        Section(
            "Inside one subspace", [Figure(figure, f"z1 of the cell {setup.cells[cell]} (Figures 3 and 12).")]
        ),
        Section(
            "Training",
            [
                Figure(
                    draw.training_curves(run.trained.history, names), "Validation accuracy of every cell."
                ),
                Figure(draw.accuracy_grid(records), "Accuracy against what duplicate latents allow."),
            ],
        ),
    ]
    exact = summary["exact_rank99_fit"]
    facts = {
        "cells": str(summary["cells"]),
        "exact 99 % rank where latents fit": "–" if exact is None else f"{exact:.0%}",
        "mean accuracy": f"{summary['mean_accuracy']:.3f}",
        "largest ΔC error against closed form": f"{summary['largest_closed_form_error']:.3f}",
    }
    about = f"d_head {setup.d_head}, {setup.latents} latents, seed {setup.seed}, preset {setup.preset}"
    about += f" ({PRESETS[setup.preset]})."
    return Report("Payload retrieval", sections, about, facts)


def _most_hidden(studies: list[CellStudy]) -> CellStudy:
    """The cell in which the null finds the most that the energy rule hides."""
    return max(studies, key=lambda s: sum(s.record["rank_null"]) - sum(s.record["rank99"]))


def _rank_table(run: PayloadRun) -> Table:
    columns = (
        "r1",
        "r2",
        "rank 99 %",
        "rank null",
        "untrained 99 %",
        "untrained null",
        "principal cosine",
        "accuracy",
        "ceiling",
    )
    rows = [
        (
            r["r1"],
            r["r2"],
            str(r["rank99"]),
            str(r["rank_null"]),
            str(r["untrained"]["rank99"]),
            str(r["untrained"]["rank_null"]),
            min(r["principal_cosine"]),
            r["accuracy"],
            r["ceiling"],
        )
        for r in run.records
    ]
    return Table(columns, rows)


def _swap_table(run: PayloadRun) -> Table:
    rows = [
        (str(s.ranks), name, effect["original"], effect["target"])
        for s in run.studies
        for name, effect in s.record["swap"].items()
    ]
    return Table(("cell", "swap", "attention on original", "attention on target"), rows)


def _energy_table(run: PayloadRun) -> Table:
    rows = [
        (
            str(s.ranks),
            *(s.record["g_energy"][k] for k in ("diagonal", "block", "between")),
            s.record["superposition_index"],
        )
        for s in run.studies
    ]
    return Table(("cell", "diagonal", "block", "between", "superposition index"), rows)
