"""``headwise toy``: the controlled worlds from the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headwise.cli import options
from headwise.cli.outputs import print_json, report_in
from headwise.cli.progress import noted_bars
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError
from headwise.strings import counted, printable

app = new_app("Controlled worlds with known answers.")


@app.callback(invoke_without_command=True)
def toy(context: typer.Context) -> None:
    """Controlled worlds with known answers."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def _finish(document: dict[str, Any], as_json: bool, out: Path | None, lines: list[str]) -> None:
    if as_json:
        print_json(document)
        return
    for line in lines:
        print(printable(line))
    for word, path in (("run", out), ("report", report_in(out))):
        if path is not None:
            print(printable(f"{word}: {path}"))


def _ranks(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise HeadwiseError(f"{text!r} is not a list of ranks: write it as 3,3 or 2,2,3") from None


@app.command(short_help="Heads that retrieve a payload: ranks, subspaces, swaps.")
def payload(
    d_head: Annotated[
        int, typer.Option(min=1, help="Head dimension; the paper has 8 and 16.", metavar="D")
    ] = 8,
    latents: Annotated[
        Literal["discrete", "gaussian"], typer.Option(help="What the latents are.")
    ] = "discrete",
    r1: Annotated[int, typer.Option(min=1, help="Rank of the first latent.", metavar="R")] = 3,
    r2: Annotated[int, typer.Option(min=1, help="Rank of the second latent.", metavar="R")] = 3,
    ranks: Annotated[
        str | None, typer.Option(help="Ranks of any number of latents, such as 2,2,3.", metavar="RANKS")
    ] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="The paper's whole grid as one batched training.")
    ] = False,
    preset: Annotated[
        Literal["released", "paper"],
        typer.Option(help="released: scaled maps, noise 0.01; paper: standard Gaussian."),
    ] = "released",
    schedule: Annotated[
        Literal["fast", "paper"], typer.Option(help="fast: lr 2e-3; paper: lr 1e-4.")
    ] = "fast",
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Stop every cell after this many steps at the latest.", metavar="N"),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help="Triplets and swap samples, instead of the paper's numbers.", metavar="N"),
    ] = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Train heads on payload retrieval and measure ranks, subspaces and swaps against the truth."""
    cell = _ranks(ranks) if ranks else (r1, r2)
    from dataclasses import replace

    from headwise.toy.payload import PayloadSetup
    from headwise.toy.payload_run import run_payload
    from headwise.toy.payload_study import Effort
    from headwise.toy.payload_train import FAST, PAPER

    began = time.perf_counter()
    if grid:
        setup = PayloadSetup.grid(d_head, latents, preset=preset, seed=seed)  # type: ignore[arg-type]
    else:
        setup = PayloadSetup(d_head, latents, (cell,), preset=preset, seed=seed)  # type: ignore[arg-type]
    plan = {"fast": FAST, "paper": PAPER}[schedule]
    plan = plan if steps is None else replace(plan, max_steps=steps)
    effort = Effort.for_head(d_head) if samples is None else Effort(samples, samples, samples)
    with noted_bars() as bar:
        task = bar.add_task(f"training {counted(len(setup.cells), 'cell')}", total=plan.max_steps, note="")
        measure = bar.add_task("measuring", total=len(setup.cells), note="", visible=False)

        def on_check(step: int, accuracy: Any, alive: int) -> None:
            note = f"accuracy {accuracy.min():.3f}–{accuracy.max():.3f}, {alive} training"
            bar.update(task, completed=step, note=note)

        def on_cell(done: int, total: int) -> None:
            bar.update(measure, completed=done, total=total, note=f"cell {done}/{total}", visible=True)

        run = run_payload(setup, plan, effort, out=out, on_check=on_check, on_cell=on_cell)
    if out is not None:
        from headwise.show.toy.payload_report import payload_report

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


@app.command(short_help="Do singular vectors turn to the features attended by?")
def alignment(
    case: Annotated[
        Literal["none", "pair", "pairs"],
        typer.Option(help="none: no head; pair: one attended pair; pairs: twenty."),
    ] = "pair",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds train side by side.", metavar="N")] = 8,
    sweep: Annotated[
        Literal["probability", "lambda", "features", "head", "context", "interference"] | None,
        typer.Option(help="Vary one setting instead; interference: of planted features."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps, instead of the case's own.", metavar="N")
    ] = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Train feature worlds with an attention head, and compare its singular vectors with the features."""
    from headwise.scale.folder import opened
    from headwise.toy import alignment as world
    from headwise.toy.alignment_motion import find_motion
    from headwise.toy.alignment_study import by_value, study_variant, summarise

    began = time.perf_counter()
    setups = world.sweep(sweep, seeds, seed) if sweep else world.case(case, seeds, seed)
    total = world.STEPS["pair" if sweep else case] if steps is None else steps
    frames = 0 if sweep else world.FRAMES
    with opened(out, "toy alignment", world.config(setups, total, frames)) as folder, noted_bars() as bar:
        task = bar.add_task(f"training {counted(len(setups), 'variant')}", total=total, note="")

        def on_check(step: int, recon: float, attention: float) -> None:
            bar.update(task, completed=step, note=f"reconstruction {recon:.4f}, attention {attention:.4f}")

        run = world.train_alignment(setups, steps=total, frames=frames, folder=folder, progress=on_check)
        records = [study_variant(run, v) for v in range(len(setups))]
        summary = summarise(records, total)
        motion = find_motion(run, seed)
        document = {
            "case": "pair" if sweep else case,
            "sweep": sweep,
            "summary": summary,
            "variants": records,
            "motion": motion.to_json() if motion else None,
        }
        if sweep:
            document["values"] = by_value(records, world.sweep_field(sweep))
        document["seconds"] = round(time.perf_counter() - began, 1)
        if folder:
            from headwise.show.toy.alignment import alignment_report

            folder.write_json(
                "variants.json", {"schema": 1, **{k: v for k, v in document.items() if k != "seconds"}}
            )
            alignment_report(run, document["case"], sweep, motion).write(folder.place("report.html"))
            folder.finish("variants.json", world.TRAINING, "report.html")
    lines = [
        f"{name.replace('_', ' '):>34}  {value:.4g}" for name, value in summary.items() if value is not None
    ]
    if motion:
        from headwise.show.toy.alignment_motion import motion_lines

        lines += motion_lines(motion)
    if sweep:
        lines = [
            f"{world.sweep_field(sweep):>12}  cosine: smallest   mean  σ2/σ1   logit  others inside  aligned by"
        ]
        lines += [_swept(v) for v in document["values"]]
    _finish(document, as_json, out, lines)


def _swept(value: dict[str, Any]) -> str:
    """One value of a sweep as a line."""
    setting, second, by = (
        next(iter(value.values())),
        value["second_to_first_singular_value"],
        value["last_arrival"],
    )
    return (
        f"{setting:>12g}  {value['smallest_cosine']:16.4f}  {value['mean_cosine']:.4f}"
        f"  {'–' if second is None else f'{second:.4f}':>6}  {value['mean_logit']:6.2f}"
        f"  {value['others_inside']:13.3f}  {'–' if by is None else by:>10}"
    )


@app.command(short_help="Does attention become sparse as a small model learns?")
def training(
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps of the small model.", metavar="N")
    ] = None,
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            help="Measure these instead: model folders, or name@revision, in order.", metavar="MODEL"
        ),
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, help="Test sentences per checkpoint.", metavar="N")] = 200,
    seed: options.Seed = 0,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Train a small language model, and watch attention become sparse in its channels."""
    if checkpoints is not None:
        from headwise.model.loading.checkpoints import require_series

        require_series(checkpoints)
    import tempfile
    from dataclasses import asdict, replace

    from headwise.scale.folder import RunFolder
    from headwise.toy.small_lm import LMSetup, files_of, losses_of, train_lm
    from headwise.toy.sparse_attention import closest_null, course_summary, measure_series, task_heads

    began = time.perf_counter()
    setup = LMSetup(seed=seed) if steps is None else replace(LMSetup(seed=seed), steps=steps)
    asked = (
        asdict(setup)
        if checkpoints is None
        else {"checkpoints": checkpoints, "prompts": prompts, "seed": seed}
    )
    with (
        tempfile.TemporaryDirectory() as scratch,
        RunFolder(out or scratch, "toy training", asked) as folder,
        noted_bars() as bar,
    ):
        losses: list[list[float]] = []
        series: list[Any] = list(checkpoints or ())
        if checkpoints is None:
            task = bar.add_task("training", total=setup.steps, note="")
            series = list(
                train_lm(
                    setup, folder, progress=lambda s, v: bar.update(task, completed=s, note=f"loss {v:.3f}")
                )
            )
            losses = losses_of(folder)
        task2 = bar.add_task("measuring", total=len(series), note="")
        points = measure_series(
            series, prompts=prompts, seed=seed, progress=lambda i, n: bar.update(task2, completed=i, note=n)
        )
        document: dict[str, Any] = {
            "heads": task_heads(points[-1]),
            "summary": course_summary(points),
            "checkpoints": [asdict(p) for p in points],
            "losses": losses,
            "seconds": round(time.perf_counter() - began, 1),
        }
        if out is not None:
            from headwise.show.toy.training import training_report

            folder.write_json(
                "course.json", {"schema": 1, **{k: v for k, v in document.items() if k != "seconds"}}
            )
            training_report(points, losses).write(folder.place("report.html"))
            trained = files_of(folder, series) if checkpoints is None else []
            folder.finish("course.json", "report.html", *trained)
    head = document["heads"][0]
    lines = [f"{'checkpoint':>16}  accuracy  sparsity of {head}  closest null  rotated  channels needed"]
    for p in points:
        h = p.heads[head]
        found = (
            f"{h['sparsity']:16.3f}  {closest_null(h):12.3f}  {h['rotated']:7.3f}  {h['channels_needed']:.0f}"
        )
        lines.append(f"{p.name:>16}  {p.accuracy:8.3f}  {found}")
    _finish(document, as_json, out, lines)
