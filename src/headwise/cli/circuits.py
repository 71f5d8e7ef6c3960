"""``headwise circuits``: one circuit per prompt, for thousands of prompts, in a folder that survives interruptions."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from headwise.cli import options, sharing
from headwise.cli.loading import load
from headwise.cli.outputs import finish
from headwise.cli.verb import new_app
from headwise.strings import counted, printable

app = new_app(
    "Trace the circuits of many prompts of a task into one folder; interrupted, it continues.", loads=True
)


@app.command()
def circuits(
    task: options.AnswerTask,
    out: options.RequiredOut,
    prompts: Annotated[
        int | None, typer.Option(min=1, help="How many prompts; default 300, of a file all.", metavar="N")
    ] = None,
    workers: sharing.Workers = None,
    ray: sharing.Ray = None,
    mode: options.Mode = "exact",
    tau: options.Tau = None,
    basis: options.Basis = "singular",
    seed: options.Seed = 0,
    model: options.Model = None,
    as_json: options.Json = False,
) -> None:
    """Trace the circuits of many prompts of a task into one folder; interrupted, it continues.

    The run folder holds manifest.json, schema.json and the tables prompts, edges and firings as parquet.
    """
    from headwise.cli.progress import timed_bar
    from headwise.progress import is_quiet
    from headwise.scale.cluster import cores
    from headwise.scale.disk import size_text
    from headwise.survey.collect import estimated_bytes, trace_many
    from headwise.tasks.answers.make import make_answers

    loaded = load(model)
    answers = make_answers(task, loaded.tokenizer, prompts=prompts, seed=seed)
    for note in answers.notes:
        print(printable(f"headwise: {note}"), file=sys.stderr)
    size = size_text(estimated_bytes(loaded, answers))
    if not is_quiet():
        print(
            f"headwise: {counted(len(answers), 'prompt')}, about {size} in {str(out)!r}",
            file=sys.stderr,
            flush=True,
        )
    began = time.perf_counter()
    reports: list[int] = []
    with timed_bar() as bar:

        def progress(stage: str, done: int, total: int) -> None:
            reports.append(done)
            bar(stage, done, total)

        run = trace_many(
            loaded,
            answers,
            out=out,
            workers=sharing.share_work(workers, ray, cores()),
            mode=mode,
            tau=tau,
            basis=basis,
            seed=seed,
            progress=progress,
        )
    seconds = time.perf_counter() - began
    summary = run.to_json()
    new = reports[-1] - reports[0] if reports else 0
    summary |= {
        "out": str(out),
        "bytes": sum(file.stat().st_size for file in out.iterdir()),
        "seconds": round(seconds, 1),
        "prompts_per_second": round(new / seconds, 3) if new else None,
        "notes": list(answers.notes),
    }
    from headwise.show.survey.terminal import summary_tables

    finish(summary, lambda: summary_tables(summary), as_json=as_json, run=out)
