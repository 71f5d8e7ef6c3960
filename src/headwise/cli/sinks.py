"""``headwise sinks``: which heads park their attention, what makes them, and what happens without that."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli import options, sharing
from headwise.cli.loading import load
from headwise.cli.outputs import finish, report_in
from headwise.cli.progress import stage_bars
from headwise.cli.verb import new_app
from headwise.errors import HeadwiseError

app = new_app(
    "Find attention sinks, the heads that park there, the signals that make them, and proof.", loads=True
)


@app.command()
def sinks(
    task: options.OptionalTask = None,
    prompts: Annotated[
        int,
        typer.Option(
            min=4, help="Prompts to measure attention on (60 texts come with headwise).", metavar="N"
        ),
    ] = 60,
    texts: Annotated[
        Path | None,
        typer.Option(help="Your own texts: a file, one per line.", metavar="FILE", callback=options.readable),
    ] = None,
    threshold: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Minimum mean attention for a token to count as a sink.", metavar="P"
        ),
    ] = 0.3,
    parked: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Minimum attention on sinks for a head to count as parked.", metavar="P"
        ),
    ] = 0.5,
    traced: Annotated[int, typer.Option(min=2, help="Prompts to trace signals in.", metavar="N")] = 24,
    proved: Annotated[int, typer.Option(min=1, help="Prompts to remove signals in.", metavar="N")] = 6,
    names: options.Names = None,
    seed: options.Seed = 0,
    model: options.Model = None,
    out: options.Out = None,
    workers: sharing.MoreWorkers = None,
    ray: sharing.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Find attention sinks, the heads that park there, the signals that make them, and proof."""
    from headwise.sinks.texts import TEXTS, read_texts

    if task is not None and texts is not None:
        raise HeadwiseError(f"TASK {task} and --texts {texts} both say what to read: give one of them")
    if task is None and texts is None and prompts > len(TEXTS):
        raise HeadwiseError(
            f"{prompts} prompts are more than the {len(TEXTS)} texts that come with headwise: "
            "give --texts FILE, or a TASK such as ioi"
        )
    given = read_texts(texts) if texts is not None else list(TEXTS)
    if out is not None:
        from headwise.scale.place import refuse_taken

        refuse_taken(out, "sinks")
    from headwise.sinks.study import find_sinks

    loaded, labels = load(model), None
    known = options.known_names(names, loaded)
    if task is not None:
        from headwise.tasks.answers.make import make_answers

        made = make_answers(task, loaded.tokenizer, prompts=prompts, seed=seed).prompts
        given, labels = [p.prompt for p in made], [p.labels for p in made]
    with stage_bars() as progress:
        study = find_sinks(
            loaded,
            given[:prompts],
            labels=labels,
            threshold=threshold,
            parked=parked,
            traced=traced,
            proved=proved,
            out=out,
            workers=sharing.share_work(workers, ray),
            seed=seed,
            progress=progress,
        )
    document = study.to_json()
    if known is not None:
        document["names"] = known.to_json(study.subjects)
    if out is not None:
        from headwise.show.sinks.report import sinks_report

        sinks_report(study, known).write(out / "report.html")
    from headwise.show.sinks.terminal import sinks_tables

    finish(document, lambda: sinks_tables(study, known), as_json=as_json, run=out, report=report_in(out))
