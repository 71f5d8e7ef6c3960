"""``headwise toy``: the controlled worlds from the command line."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from headwise.errors import HeadwiseError

app = typer.Typer(help="Controlled worlds with known answers.", no_args_is_help=True)

Out = Annotated[Path | None, typer.Option(help="Run folder: results, report, and where to continue from.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]


@contextmanager
def _progress() -> Iterator[Any]:
    """A progress bar on stderr, so that stdout holds results alone."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from headwise.show.terminal import console

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        yield bar


def _finish(document: dict[str, Any], as_json: bool, out: Path | None, lines: list[str]) -> None:
    if as_json:
        json.dump(document, sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
        return
    for line in lines:
        typer.echo(line)
    if out is not None:
        typer.echo(f"report: {out / 'report.html'}")


def _ranks(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise HeadwiseError(f"{text!r} is not a list of ranks: write it as 3,3 or 2,2,3") from None


@app.command()
def payload(
    d_head: Annotated[int, typer.Option(help="Head dimension; the paper has 8 and 16.")] = 8,
    latents: Annotated[str, typer.Option(help="discrete or gaussian.")] = "discrete",
    r1: Annotated[int, typer.Option(help="Rank of the first latent.")] = 3,
    r2: Annotated[int, typer.Option(help="Rank of the second latent.")] = 3,
    ranks: Annotated[str | None, typer.Option(help="Ranks of any number of latents, such as 2,2,3.")] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="The paper's whole grid as one batched training.")
    ] = False,
    preset: Annotated[
        str, typer.Option(help="released (scaled maps, noise 0.01) or paper (standard Gaussian).")
    ] = "released",
    schedule: Annotated[str, typer.Option(help="fast (lr 2e-3) or paper (lr 1e-4).")] = "fast",
    steps: Annotated[
        int | None, typer.Option(help="Stop every cell after this many steps at the latest.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Triplets and swap samples, instead of the paper's numbers.")
    ] = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Train heads on payload retrieval and measure ranks, subspaces and swaps against the truth."""
    from dataclasses import replace

    from headwise.toy.payload import PayloadSetup
    from headwise.toy.payload_run import run_payload
    from headwise.toy.payload_study import Effort
    from headwise.toy.payload_train import FAST, PAPER

    began = time.perf_counter()
    if schedule not in ("fast", "paper"):
        raise HeadwiseError(f"schedule {schedule!r} is not known: write fast or paper")
    if grid:
        setup = PayloadSetup.grid(d_head, latents, preset=preset, seed=seed)  # type: ignore[arg-type]
    else:
        cell = _ranks(ranks) if ranks else (r1, r2)
        setup = PayloadSetup(d_head, latents, (cell,), preset=preset, seed=seed)  # type: ignore[arg-type]
    plan = {"fast": FAST, "paper": PAPER}[schedule]
    plan = plan if steps is None else replace(plan, max_steps=steps)
    effort = Effort() if samples is None else Effort(samples, samples, samples)
    with _progress() as bar:
        task = bar.add_task(f"training {len(setup.cells)} cells", total=plan.max_steps, note="")
        measure = bar.add_task("measuring", total=len(setup.cells), note="", visible=False)

        def on_check(step: int, accuracy: Any, alive: int) -> None:
            note = f"accuracy {accuracy.min():.3f}–{accuracy.max():.3f}, {alive} training"
            bar.update(task, completed=step, note=note)

        def on_cell(done: int, total: int) -> None:
            bar.update(measure, completed=done, total=total, note=f"cell {done}/{total}", visible=True)

        run = run_payload(setup, plan, effort, out=out, on_check=on_check, on_cell=on_cell)
    if out is not None:
        from headwise.show.toy_payload_report import payload_report

        payload_report(run).write(out / "report.html")
    document = {
        "summary": run.summary(),
        "cells": run.records,
        "seconds": round(time.perf_counter() - began, 1),
    }
    lines = [
        f"{'ranks':>10}  {'99 %':>10}  {'null':>10}  accuracy  ceiling  cosine   swap both",
    ]
    for study in run.studies:
        r = study.record
        both = r["swap"]["both"]
        found = "  ".join(f"{_short(x):>10}" for x in (study.ranks, r["rank99"], r["rank_null"]))
        lines.append(
            f"{found}  {r['accuracy']:8.3f}  {r['ceiling']:7.3f}  {min(r['principal_cosine']):.4f}"
            f"   {both['original']:.3f}, {both['target']:.3f}"
        )
    _finish(document, as_json, out, lines)


def _short(ranks: Any) -> str:
    return ",".join(map(str, ranks))
