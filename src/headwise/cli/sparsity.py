"""``headwise sparsity``: how few channels carry a task's attention?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.bars import stage_bars
from headwise.cli.outputs import keep_study, refuse_unwritable, show_study
from headwise.cli.verb import new_app

app = new_app("Split the attention that a task's circuits use over channels, beside rotated directions.")


@app.command()
def sparsity(
    task: Annotated[str, typer.Argument(help="ioi, greater-than, pronouns, facts, or a .jsonl file.")],
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    heads: Annotated[
        str, typer.Option(help="auto (by how often circuits use them) or a list: L18H6,L20H3.")
    ] = "auto",
    prompts: Annotated[int, typer.Option(min=2, help="Prompts to trace.")] = 60,
    rotations: Annotated[int, typer.Option(min=1, help="Random rotations to compare with.")] = 8,
    out: Annotated[Path | None, typer.Option(help="Folder for the report and its numbers.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Split the attention that a task's circuits use over channels, beside rotated directions."""
    from headwise.tasks.names import check_answer_task

    check_answer_task(task)
    if out is not None:
        refuse_unwritable(out / "report.html")
    from headwise.model.loading.load import load
    from headwise.sparsity.study import measure_sparsity

    loaded = load(model)
    with stage_bars() as progress:
        study = measure_sparsity(
            loaded, task, heads=heads, prompts=prompts, rotations=rotations, seed=seed, progress=progress
        )
    document = study.document()
    if out is not None:
        from headwise.show.sparsity.report import sparsity_report

        config = {"model": loaded.name, "weight_hash": loaded.weight_hash, "task": task, **study.settings}
        keep_study(out, "sparsity", config, document, sparsity_report(study))
    from headwise.show.sparsity.terminal import sparsity_table

    show_study(document, lambda: sparsity_table(study), out, as_json=as_json)
