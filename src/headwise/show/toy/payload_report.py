"""The payload study as one page."""

from __future__ import annotations

from headwise.show.kit.markdown import Prose
from headwise.show.kit.report import Block, Figure, Markdown, Report, Section, Table
from headwise.show.toy import payload as draw
from headwise.strings import percent
from headwise.toy.payload import PRESETS
from headwise.toy.payload_run import PayloadRun
from headwise.toy.payload_study import CellStudy, latent_cloud

PROSE = Prose.read("toy/payload.md")


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
    shown = typical_cells(run, 6)
    spectrum = _most_hidden(run.studies)
    maps = [(run.studies[i].interactions, run.studies[i].ranks) for i in shown]
    sections = [
        Section(
            "Singular values",
            [
                Markdown(PROSE("spectrum", ranks=str(spectrum.ranks))),
                Figure(draw.spectra(spectrum.record), PROSE("spectrum figure")),
            ],
        ),
        Section(
            "Swaps",
            [
                Markdown(PROSE("swaps")),
                Figure(
                    draw.interventions([records[i] for i in shown]), PROSE("swaps figure"), _swap_table(run)
                ),
            ],
        ),
        Section(
            "Interactions",
            [
                Markdown(PROSE("interactions")),
                Figure(draw.interaction_maps(maps), PROSE("interactions figure"), _energy_table(run)),
            ],
        ),
        Section("Inside one subspace", [_cloud(run)]),
        Section("Training", _training(run)),
    ]
    if len(records) > 1 and setup.latent_count == 2:
        ranks = Figure(draw.rank_grid(records), PROSE("ranks figure"), _rank_table(run))
        sections.insert(0, Section("Ranks", [Markdown(PROSE("ranks")), ranks]))
    exact = summary["exact_rank99_fit"]
    facts = {
        "cells": str(summary["cells"]),
        "exact 99 % rank where latents fit": "–" if exact is None else percent(exact),
        "mean accuracy": f"{summary['mean_accuracy']:.3f}",
        "largest ΔC error against closed form": f"{summary['largest_closed_form_error']:.3f}",
    }
    about = PROSE(
        "about",
        d_head=setup.d_head,
        latents=setup.latents,
        seed=setup.seed,
        preset=setup.preset,
        meaning=PRESETS[setup.preset],
    )
    return Report("Payload retrieval", sections, about, facts)


def _cloud(run: PayloadRun) -> Figure:
    cells = run.setup.cells
    cell = next((i for i, ranks in enumerate(cells) if ranks[0] == 3), 0)
    found = latent_cloud(run.trained, run.studies[cell], cell, 0)
    discrete = run.setup.latents == "discrete"
    figure = draw.cloud(found.points, found.is_key, found.value, found.explained, discrete=discrete)
    return Figure(figure, PROSE("cloud figure", ranks=str(cells[cell])))


def _training(run: PayloadRun) -> list[Block]:
    names = [" + ".join(map(str, ranks)) for ranks in run.setup.cells]
    curves = Figure(draw.training_curves(run.trained.history, names), PROSE("training figure"))
    if len(run.records) == 1:
        one = run.records[0]
        return [Markdown(PROSE("accuracy of one", accuracy=one["accuracy"], ceiling=one["ceiling"])), curves]
    return [curves, Figure(draw.accuracy_grid(run.records), PROSE("accuracy figure"))]


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
