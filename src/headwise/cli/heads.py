"""``headwise heads``: which heads do this task?"""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli.bars import stage_bars
from headwise.cli.contrast import task_options
from headwise.cli.outputs import print_json
from headwise.cli.verb import new_app

app = new_app("Rank every head of the model on a task in one pass.")


@app.command()
def heads(
    task: Annotated[str, typer.Argument(help="binding, filter, or a .jsonl file of labelled prompts.")],
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    prompts: Annotated[int, typer.Option(min=4, help="Prompts to scan on.")] = 200,
    top: Annotated[int, typer.Option(min=1, help="How many heads to show.")] = 10,
    pairs: Annotated[int | None, typer.Option(help="binding: entity–box pairs in a prompt.")] = None,
    categories: Annotated[str | None, typer.Option(help="filter: 5, 13 or a list of names.")] = None,
    jitter: Annotated[
        bool, typer.Option("--jitter", help="Vary lengths, so that order is not place.")
    ] = False,
    format: Annotated[str | None, typer.Option(help="plain, few-shot or chat.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document with every head.")] = False,
) -> None:
    """Rank every head of the model on a task in one pass."""
    from headwise.contrast.heads import choose_heads
    from headwise.contrast.study import scan_heads
    from headwise.model.loading.load import load
    from headwise.tasks.labelled.make import make_task
    from headwise.tasks.names import check_task_name

    check_task_name(task)
    options = task_options(pairs=pairs, categories=categories, jitter=jitter or None, format=format)
    if not task.endswith(".jsonl"):
        # Only the scanning prompts are used; the others are made as few as the task allows.
        options |= {"prompts": 60, "test": 4, "scan": prompts}
    loaded = load(model)
    made = make_task(task, loaded.tokenizer, seed=seed, **options)
    with stage_bars() as progress:
        scores = scan_heads(loaded, made, seed=seed, progress=progress)
    chosen = choose_heads(scores, made.rule)
    if as_json:
        document = {
            "task": made.name,
            "rule": made.rule,
            "prompts": len(made.scan),
            "heads": [s.to_json() for s in scores],
            "chosen": [str(h) for h in chosen],
        }
        print_json(document)
        return
    from headwise.contrast.rows import HeadRow
    from headwise.show.contrast.terminal import heads_table
    from headwise.show.kit.terminal import console

    rows = [HeadRow.of(s, chosen=s.head in chosen) for s in scores[:top]]
    console().print(heads_table(rows, made.rule))
