"""``headwise sparsity``: how few channels carry a task's attention?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli import options, sharing
from headwise.cli.loading import load, refuse_loading
from headwise.cli.outputs import finish, report_in
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app

app = new_app(
    "Split the attention that a task's circuits use over channels, beside five nulls without features.",
    loads=True,
)


@app.command()
def sparsity(
    context: typer.Context,
    task: options.AnswerTask,
    heads: options.Heads = "auto",
    prompts: Annotated[int, typer.Option(min=2, help="Prompts to trace.", metavar="N")] = 60,
    rotations: Annotated[
        int, typer.Option(min=1, help="Random rotations of the published control.", metavar="N")
    ] = 8,
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            help="Follow the last one's cells through these, in order: model folders, or name@revision.",
            metavar="MODEL",
        ),
    ] = None,
    seed: options.Seed = 0,
    model: options.Model = None,
    out: options.Out = None,
    workers: sharing.MoreWorkers = None,
    ray: sharing.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Split the attention that a task's circuits use over channels, beside five nulls without features."""
    if checkpoints is not None:
        used = ("task", "prompts", "rotations", "checkpoints", "seed", "out", "as_json")
        options.refuse_unused(context, used, "is not used with --checkpoints")
        refuse_loading("is not used with --checkpoints")
        _course(checkpoints, task, prompts, rotations, seed, out, as_json)
        return
    from headwise.sparsity.study import find_sparsity

    loaded = load(model)
    with stage_bars() as progress:
        study = find_sparsity(
            loaded,
            task,
            heads=heads,
            prompts=prompts,
            rotations=rotations,
            out=out,
            workers=sharing.share_work(workers, ray),
            seed=seed,
            progress=progress,
        )
    document = study.to_json()
    if out is not None:
        from headwise.show.sparsity.report import sparsity_report

        sparsity_report(study).write(out / "report.html")
    from headwise.show.sparsity.terminal import sparsity_table

    finish(document, lambda: sparsity_table(study), as_json=as_json, run=out, report=report_in(out))


def _course(
    checkpoints: list[str],
    task: str,
    prompts: int,
    rotations: int,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    from headwise.model.loading.checkpoints import require_series

    require_series(checkpoints)
    from headwise.scale.folder import opened
    from headwise.show.sparsity.course import course_report, course_table
    from headwise.sparsity.course import find_sparsity_course

    asked = {
        "checkpoints": checkpoints,
        "task": task,
        "prompts": prompts,
        "rotations": rotations,
        "seed": seed,
    }
    with opened(out, "sparsity course", asked) as folder:
        with stage_bars(lambda _stage: "checkpoint") as progress:
            found = find_sparsity_course(
                checkpoints, task, prompts=prompts, rotations=rotations, seed=seed, progress=progress
            )
        document = found.to_json()
        if folder:
            folder.write_json("course.json", {"schema": 1, **document})
            course_report(found).write(folder.place("report.html"))
            folder.finish("course.json", "report.html")
    finish(document, lambda: course_table(found), as_json=as_json, run=out, report=report_in(out))
