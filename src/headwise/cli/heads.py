"""``headwise heads``: which heads do this task?"""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli import options
from headwise.cli.features import task_options
from headwise.cli.outputs import finish
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app

app = new_app("Rank every head of the model on a task in one pass.")


@app.command()
def heads(
    task: options.LabelledTask,
    prompts: Annotated[int, typer.Option(min=4, help="Prompts to scan on.")] = 200,
    top: options.Top = 10,
    pairs: options.Pairs = None,
    categories: options.Categories = None,
    jitter: options.Jitter = False,
    format: options.Format = None,
    seed: options.Seed = 0,
    model: options.Model = None,
    workers: options.MoreWorkers = 1,
    as_json: options.Json = False,
) -> None:
    """Rank every head of the model on a task in one pass."""
    from headwise.contrast.heads import choose_heads
    from headwise.contrast.study import scan_heads
    from headwise.model.loading.load import load
    from headwise.tasks.labelled.make import make_task

    settings = task_options(pairs=pairs, categories=categories, jitter=jitter or None, format=format)
    if not task.endswith(".jsonl"):
        # Only the scanning prompts are used; the others are made as few as the task allows.
        settings |= {"prompts": 60, "test": 4, "scan": prompts}
    loaded = load(model)
    made = make_task(task, loaded.tokenizer, seed=seed, **settings)
    with stage_bars() as progress:
        scores = scan_heads(loaded, made, workers=workers, seed=seed, progress=progress)
    chosen = choose_heads(scores, made.rule)
    document = {
        "task": made.name,
        "rule": made.rule,
        "prompts": len(made.scan),
        "heads": [s.to_json() for s in scores],
        "chosen": [str(h) for h in chosen],
    }
    from headwise.contrast.rows import HeadRow
    from headwise.show.contrast.terminal import heads_table

    rows = [HeadRow.of(s, chosen=s.head in chosen) for s in scores[:top]]
    finish(document, lambda: heads_table(rows, made.rule), as_json=as_json)
