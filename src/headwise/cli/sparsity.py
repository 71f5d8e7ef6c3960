"""``headwise sparsity``: how few channels carry a task's attention?"""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli import options, sharing
from headwise.cli.outputs import finish, report_in
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app

app = new_app("Split the attention that a task's circuits use over channels, beside rotated directions.")


@app.command()
def sparsity(
    task: options.AnswerTask,
    heads: options.Heads = "auto",
    prompts: Annotated[int, typer.Option(min=2, help="Prompts to trace.")] = 60,
    rotations: Annotated[int, typer.Option(min=1, help="Random rotations to compare with.")] = 8,
    seed: options.Seed = 0,
    model: options.Model = None,
    out: options.Out = None,
    workers: sharing.MoreWorkers = None,
    ray: sharing.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Split the attention that a task's circuits use over channels, beside rotated directions."""
    from headwise.model.loading.load import load
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
