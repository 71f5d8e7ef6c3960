"""``headwise sinks``: which heads park their attention, what makes them, and what happens without that."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.bars import stage_bars
from headwise.cli.outputs import keep_study, refuse_unwritable, show_study
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError

app = new_app("Find attention sinks, the heads that park there, the signals that make them, and proof.")


@app.command()
def sinks(
    model: Annotated[str | None, typer.Option(help="A known model, hub id, folder or .gguf.")] = None,
    prompts: Annotated[
        int, typer.Option(min=4, help="Prompts to measure attention on (there are 60 texts of our own).")
    ] = 60,
    task: Annotated[
        str | None,
        typer.Option(help="Prompts of a task instead: ioi, greater-than, pronouns, facts, .jsonl."),
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="Your own texts instead: a file, one a line.")] = None,
    threshold: Annotated[
        float, typer.Option(help="A token is a sink from this much attention received on.")
    ] = 0.3,
    parked: Annotated[float, typer.Option(help="A head parks from this much attention on sinks on.")] = 0.5,
    traced: Annotated[int, typer.Option(min=2, help="Prompts to trace signals in.")] = 24,
    proved: Annotated[int, typer.Option(min=1, help="Prompts to remove signals in.")] = 6,
    out: Annotated[Path | None, typer.Option(help="Folder for the report and its numbers.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Find attention sinks, the heads that park there, the signals that make them, and proof."""
    from headwise.sinks.texts import TEXTS, read_texts

    if task is not None and texts is not None:
        raise HeadwiseError(f"--task {task} and --texts {texts} both say what to read: give one of them")
    if task is not None:
        from headwise.tasks.names import check_answer_task

        check_answer_task(task)
    if task is None and texts is None and prompts > len(TEXTS):
        raise HeadwiseError(
            f"{prompts} prompts are more than the {len(TEXTS)} texts of our own: give --texts FILE or --task ioi"
        )
    given = read_texts(texts) if texts is not None else list(TEXTS)
    if out is not None:
        refuse_unwritable(out / "report.html")
    from headwise.model.loading.load import load
    from headwise.sinks.study import find_sinks

    loaded = load(model)
    if task is not None:
        from headwise.tasks.answers.make import make_answers

        given = [p.prompt for p in make_answers(task, loaded.tokenizer, prompts=prompts, seed=seed).prompts]
    with stage_bars() as progress:
        study = find_sinks(
            loaded, given[:prompts], threshold=threshold, parked=parked, traced=traced, proved=proved,
            seed=seed, progress=progress,
        )  # fmt: skip
    document = study.document()
    if out is not None:
        from headwise.show.sinks.report import sinks_report

        source = task or (None if texts is None else str(texts))
        config = {"model": loaded.name, "weight_hash": loaded.weight_hash, "texts": source,
                  "prompts": len(given[:prompts]), **study.settings}  # fmt: skip
        keep_study(out, "sinks", config, document, sinks_report(study))
    from headwise.show.sinks.terminal import sinks_tables

    show_study(document, lambda: sinks_tables(study), out, as_json=as_json)
